// Launches instances, and finds out which instance a launch has made.
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import type { Client } from './client.ts';
import { EXIT, inOptions, SvcError } from './exit.ts';

/** Loose, so that a newer API with more members is read too. */
const Operation = z.looseObject({
  operation_id: z.string(),
  state: z.string(),
  resource_id: z.string().nullable(),
  error: z.looseObject({ code: z.string(), detail: z.string() }).optional(),
});
export type Operation = z.infer<typeof Operation>;

interface Placing {
  clock: Clock;
  timeoutMs: number;
  interrupted: AbortSignal;
}

const POLL_MS = 500;

/** The option for each member of a launch, by its path. */
export const LAUNCH_OPTIONS = {
  gpu_type: '--gpu-type (svc gpu list)',
  gpu_count: '--count',
  tier: '--tier',
  image: '--image',
  template_id: '--template',
  environment: '--environment',
  region: '--region',
  offering_id: '--offering (svc price list)',
  'requirements.gpu_types': '--gpu-type with several types',
  'requirements.regions': '--only-region',
  'requirements.min_vram_gb': '--min-vram',
  'requirements.min_cpu_cores': '--min-cpus',
  'requirements.min_ram_gb': '--min-ram',
  'requirements.min_cuda_version': '--min-cuda',
  'requirements.min_uptime': '--min-uptime',
  name: '--name',
  disk_gb: '--disk',
  env: '--env',
  ports: '--port',
  ssh_key_ids: '--ssh-key',
  registry_credential_id: '--registry-credential',
  max_price_per_hour: '--max-price',
  auto_terminate_hours: '--auto-terminate-hours',
  auto_terminate_on_exit: '--auto-terminate-on-exit',
  cmd: '--',
  entrypoint: '--entrypoint',
} as const;

/** The options that together are one member. */
const REQUIREMENTS =
  'what --only-region, --min-vram, --min-cpus, --min-ram, --min-cuda, --min-uptime and several types of --gpu-type say';

/** `signal` ends the request in place of the first Ctrl-C. @throws SvcError */
export async function launch(client: Client, body: Record<string, unknown>, signal?: AbortSignal): Promise<Operation> {
  const request = { method: 'POST', path: '/instances', body, ...(signal === undefined ? {} : { signal }) };
  try {
    return Operation.parse(await client.json(request));
  } catch (error) {
    if (!(error instanceof SvcError) || error.exit !== EXIT.interrupted)
      throw inOptions(error, new Map([...Object.entries(LAUNCH_OPTIONS), ['requirements', REQUIREMENTS]]));
    const next = 'The launch may have been accepted, and then costs money. See what there is: svc instance list';
    throw new SvcError(error.exit, { ...error.refusal, next });
  }
}

/** The id of the instance, as soon as the launch has one. @throws SvcError if the launch fails, or takes too long */
export async function placed(
  client: Client,
  accepted: Operation,
  { clock, interrupted, timeoutMs }: Placing,
): Promise<string> {
  const untilMs = clock.monotonicMs() + timeoutMs;
  for (let operation = accepted; ;) {
    if (operation.resource_id !== null) return operation.resource_id;
    if (operation.state === 'failed' || operation.state === 'cancelled') {
      const { code = 'operation_failed', detail = `the launch was ${operation.state}` } = operation.error ?? {};
      throw new SvcError(EXIT.operationFailed, { code, message: detail, resourceId: operation.operation_id });
    }
    if (clock.monotonicMs() >= untilMs) {
      const message = `the launch had no instance after ${timeoutMs / 1_000} s`;
      throw new SvcError(EXIT.timedOut, { code: 'wait_timed_out', message }).about(
        operation.operation_id,
        launchGoesOn(operation.operation_id),
      );
    }
    await clock.sleep(POLL_MS, interrupted);
    operation = Operation.parse(await read(client, operation.operation_id, interrupted));
  }
}

/** @throws SvcError that names the operation, because the launch goes on and may cost money */
async function read(client: Client, id: string, signal: AbortSignal): Promise<unknown> {
  try {
    return await client.json({ method: 'GET', path: `/operations/${id}`, signal });
  } catch (error) {
    if (!(error instanceof SvcError)) throw error;
    throw error.about(id, launchGoesOn(id));
  }
}

const launchGoesOn = (operationId: string): string =>
  `The launch goes on. See what it has come to: svc instance operation ${operationId}`;
