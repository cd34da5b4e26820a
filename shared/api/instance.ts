// The instance as customers see it, and what they send to get one (specification 2.2 and 4.3).
import { z } from 'zod';
import {
  AUTO_TERMINATE_HOURS_MAX,
  DISK_GB_INCLUDED,
  DISK_GB_MAX,
  DISK_GB_MIN,
  GPU_COUNT_MAX,
  IMAGE_REFERENCE_CHARS_MAX,
  PORTS_MAX,
} from '../limits.ts';

const ENV_KEY = /^[A-Za-z_][A-Za-z0-9_]*$/;
const ENTRYPOINT_ARGUMENTS_MAX = 32;
const ENTRYPOINT_BYTES_MAX = 4096;
const ENV_ENTRIES_MAX = 256;
const ENV_KEY_CHARS_MAX = 256;
const SSH_PORT = 22;

/** Maximum length of one argument or variable. Linux allows 128 KiB for each, and a character may have three bytes. */
const TEXT_CHARS_MAX = 32_768;
const argument = z.string().min(1, 'must not be an empty string').max(TEXT_CHARS_MAX);

/** A port of the application (specification 4.3 `ports`). */
export const Port = z.strictObject({
  port: z
    .int()
    .min(1)
    .max(65_535)
    .refine((port) => port !== SSH_PORT, 'must not be 22: every instance has SSH already, at connection.port')
    .describe('What the application listens on inside the container'),
  protocol: z.enum(['http', 'tcp']).describe('How it is served'),
  primary: z.boolean().optional().describe('Served at the app URL; at most one, and it must be http'),
});
export type Port = z.infer<typeof Port>;

/** The allowed environments (specification 4.3). The text of the rule leaves out raw_vm: it has the right form, but no host can run it. */
const ENVIRONMENT =
  /^(certified(:[a-z0-9][a-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._-]*)?)?|raw_vm(:[a-z0-9][a-z0-9._-]*)?|provider_template)$/;
const ENVIRONMENT_RULE =
  'must be certified, certified:<framework>, certified:<framework>@<version> or provider_template';

export const Ports = z.array(Port).max(PORTS_MAX).superRefine(refusePorts);

/** The name of a variable of a container. */
export const EnvKey = z
  .string()
  .max(ENV_KEY_CHARS_MAX)
  .regex(ENV_KEY, 'must be letters, digits and _, and not begin with a digit');

/**
 * Body of POST /v1/instances. The request names an image, a template or an environment. If it names none, the default environment is used.
 */
export const CreateInstance = z
  .strictObject({
    gpu_type: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe(
        'Canonical GPU type from GET /v1/gpu-types. May be left out with template_id: then the cheapest free GPU that is large enough for the template is taken, with tier reserved the smallest one of the contract',
      ),
    gpu_count: z.int().min(1).max(GPU_COUNT_MAX).describe('GPUs of one machine'),
    tier: z
      .enum(['on_demand', 'spot', 'reserved'])
      .describe(
        'spot currently has no capacity; reserved runs on the slots of an active contract (GET /v1/reservations) at price 0, and nowhere else. Of several contracts, the one with room that ends last',
      ),
    template_id: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe('An application from GET /v1/templates; not together with image or environment'),
    environment: z
      .string()
      .max(128)
      .regex(ENVIRONMENT, ENVIRONMENT_RULE)
      .optional()
      .describe(
        'A place to log in to, from GET /v1/environments: certified, certified:<framework>, certified:<framework>@<version> or provider_template. Omitted, with neither image nor template_id: provider_template, the default of the operator',
      ),
    image: z
      .string()
      .optional()
      .describe(
        `Own container image for linux/amd64, as \`docker pull\` takes it, such as ghcr.io/org/app:1.2, of at most ${IMAGE_REFERENCE_CHARS_MAX} characters; its registry is asked before anything is created. Not with tier spot`,
      ),
    registry_credential_id: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe(
        'The stored login for a private image, from POST /v1/registry-credentials; must be for the registry of the image. Requires image',
      ),
    cmd: z
      .array(argument)
      .max(256)
      .optional()
      .describe('Overrides the image CMD; an empty array clears it. Requires image'),
    entrypoint: z
      .array(argument)
      .max(ENTRYPOINT_ARGUMENTS_MAX)
      .refine(
        (args) => new TextEncoder().encode(args.join('')).byteLength <= ENTRYPOINT_BYTES_MAX,
        `must have at most ${ENTRYPOINT_BYTES_MAX} bytes in all`,
      )
      .optional()
      .describe(
        'Overrides the image ENTRYPOINT and drops its CMD unless cmd is given; an empty array clears it and keeps the CMD. Requires image',
      ),
    env: z
      .record(EnvKey, z.string().max(TEXT_CHARS_MAX))
      .refine((env) => Object.keys(env).length <= ENV_ENTRIES_MAX, `must have at most ${ENV_ENTRIES_MAX} entries`)
      .superRefine(refuseReservedEnv)
      .optional()
      .describe(
        'Variables of the container. With template_id: only those that the template lets users set. Kept encrypted and never shown',
      ),
    ports: Ports.optional().describe('Ports of the application. Requires image'),
    disk_gb: z
      .int()
      .min(DISK_GB_MIN)
      .max(DISK_GB_MAX)
      .optional()
      .describe(
        `Size of the file system; only hosts that honour it are considered. Omitted: ${DISK_GB_INCLUDED}, on any host. What is above ${DISK_GB_INCLUDED} is charged at the offering's disk_price_per_gb_hour, within price_per_hour`,
      ),
    auto_terminate_hours: z
      .int()
      .min(1, 'must be at least 1; leave it out for no limit')
      .max(AUTO_TERMINATE_HOURS_MAX)
      .optional()
      .describe('Ends the rental this long after it began to run; omitted: no limit'),
    ssh_key_ids: z
      .array(z.string().min(1))
      .max(64)
      .optional()
      .describe('Keys that may log in; omitted: all keys of the organisation, also later ones; an empty list: none'),
    region: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe('Preferred region, best effort; with tier reserved it must be one of the contract'),
    name: z.string().min(1).max(128).optional().describe('A name of your own'),
    offering_id: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe(
        'Pins the launch to one offering at its listed rate; with tier reserved one that the contract has slots on',
      ),
    max_price_per_hour: z
      .number()
      .positive()
      .max(1_000_000)
      .optional()
      .describe('Cap on the hourly price of the whole instance, in dollars'),
    viewed_price_per_hour: z
      .number()
      .min(0)
      .max(1_000_000)
      .optional()
      .describe(
        'The hourly price of the whole instance that you saw; more than 0.01 above it is refused with price_changed',
      ),
  })
  .superRefine(refuseCombinations, { when: canBeCompared })
  .meta({ id: 'CreateInstance' });
export type CreateInstance = z.infer<typeof CreateInstance>;

const ONLY_WITH_IMAGE = ['registry_credential_id', 'cmd', 'entrypoint', 'ports'] as const;

/**
 * Whether the fields that exclude each other can be compared. They are compared even if other fields break rules, so that a caller sees all
 * errors at once. If one of these fields has a wrong type, they are not compared.
 */
function canBeCompared({ value, issues }: z.core.ParsePayload): boolean {
  const named = new Set<PropertyKey | undefined>([
    ...ONLY_WITH_IMAGE,
    'gpu_type',
    'template_id',
    'environment',
    'image',
  ]);
  return typeof value === 'object' && value !== null && issues.every(({ path }) => !named.has(path?.[0]));
}

function refuseCombinations(
  request: Partial<
    Record<(typeof ONLY_WITH_IMAGE)[number] | 'gpu_type' | 'template_id' | 'environment' | 'image' | 'tier', unknown>
  >,
  context: z.RefinementCtx,
): void {
  const refuse = (field: string, message: string): void => context.addIssue({ code: 'custom', path: [field], message });
  const { image, template_id: template, environment } = request;
  if (request.gpu_type === undefined && template === undefined) refuse('gpu_type', 'is required without template_id');
  if (image !== undefined && template !== undefined) refuse('template_id', 'cannot be combined with image');
  if (image !== undefined && environment !== undefined) refuse('environment', 'cannot be combined with image');
  if (template !== undefined && environment !== undefined) refuse('environment', 'cannot be combined with template_id');
  if (image !== undefined && request.tier === 'spot')
    refuse('tier', 'spot cannot be combined with image; use on_demand');
  if (image !== undefined) return;
  for (const field of ONLY_WITH_IMAGE) if (request[field] !== undefined) refuse(field, 'requires image');
}

/** Whether the service itself sets this variable, so that callers may not. */
export function isReservedEnv(key: string): boolean {
  return key === 'PUBLIC_KEY' || key.startsWith('SVC_');
}

function refuseReservedEnv(env: Record<string, string>, context: z.RefinementCtx): void {
  for (const key of Object.keys(env).filter(isReservedEnv)) {
    context.addIssue({
      code: 'custom',
      path: [key],
      message: 'is a reserved name, as are PUBLIC_KEY and all that begin with SVC_',
    });
  }
}

function refusePorts(ports: Port[], context: z.RefinementCtx): void {
  const refuse = (index: number, member: keyof Port, message: string): void =>
    context.addIssue({ code: 'custom', path: [index, member], message });
  ports.forEach(({ port, protocol, primary }, index) => {
    if (ports.findIndex((other) => other.port === port) < index) refuse(index, 'port', 'must not be listed twice');
    if (primary !== true) return;
    if (protocol !== 'http') refuse(index, 'protocol', 'must be http for the primary port');
    if (ports.findIndex((other) => other.primary === true) < index) {
      refuse(index, 'primary', 'must be true for at most one port');
    }
  });
}

/** Body of PATCH /v1/instances/{id}. */
export const RenameInstance = z
  .strictObject({
    name: z.string().min(1).max(128).nullable().describe('The new name; null removes it'),
  })
  .meta({ id: 'RenameInstance' });

/** A port of the application that is not the primary one. */
const ReachablePort = z.strictObject({
  port: z.int().describe('What the application listens on inside the container'),
  protocol: z.enum(['http', 'tcp']).describe('How it is served'),
  url: z.string().optional().describe('Of an http port; behind the same login as app_url'),
  hostname: z.string().optional().describe('Of a tcp port'),
  public_port: z.int().optional().describe('Of a tcp port: what to connect to; open to everybody'),
});

const Connection = z.strictObject({
  hostname: z.string().optional().describe('Host name of the SSH endpoint'),
  port: z.int().optional().describe('TCP port of the SSH endpoint'),
  ssh_command: z.string().optional().describe('Ready to paste'),
  host_key: z
    .string()
    .optional()
    .describe('OpenSSH line of the SSH host key; stays the same for the life of the instance'),
  app_url: z.string().optional().describe('URL of the application, if it has a primary port'),
  terminal_url: z
    .string()
    .optional()
    .describe('The browser console: a shell in the instance, no SSH key needed; only while it is running'),
  app_user: z.string().optional().describe('HTTP Basic user of app_url, of terminal_url and of the URLs in ports'),
  app_password: z.string().optional().describe('HTTP Basic password; only with `include=credentials`'),
  ports: z.array(ReachablePort).optional().describe('How the other ports of the launch are reached'),
});
export type Connection = z.infer<typeof Connection>;

/** Optional members are absent if they do not apply; nullable ones are always present. */
export const Instance = z
  .strictObject({
    id: z.string().describe('Identifies the instance'),
    status: z
      .enum(['allocating', 'starting', 'running', 'stopping', 'stopped', 'terminated', 'unreachable', 'error'])
      .describe(
        'allocating: GPUs are being found; starting: it boots; unreachable: running, but SSH does not get through; stopped: the host ended it',
      ),
    gpu_type: z.string().describe('Canonical GPU type'),
    gpu_count: z.int().describe('GPUs of one machine'),
    region: z
      .string()
      .describe('Where it was placed last; before that, the region asked for, or that of the cheapest offer'),
    tier: z.enum(['on_demand', 'spot', 'reserved']).describe('How it is rented'),
    price_per_hour: z.number().describe('Dollars an hour for the whole instance'),
    created_at: z.iso.datetime().describe('When it was asked for'),
    name: z.string().nullable().describe('A name of your own'),
    ready_at: z.iso.datetime().nullable().describe('When it first ran; charging begins here'),
    terminated_at: z.iso.datetime().nullable().describe('When it ended; charging ends here at the latest'),
    disk_gb: z.int().optional().describe('Size of the file system; absent if the host does not honour a size'),
    image: z
      .string()
      .optional()
      .describe(
        '`<image>@sha256:<digest>`: pinned to what was verified at the launch; only where the launch named an image',
      ),
    reservation_id: z.string().nullable().describe('The contract of a reserved instance; null for all others'),
    auto_terminate_hours: z.int().optional().describe('The runtime limit of the launch; absent without one'),
    auto_terminate_at: z.iso
      .datetime()
      .optional()
      .describe('When the limit ends it; absent before it runs, and once the limit has ended it'),
    status_reason: z.string().optional().describe('The reason for the status, if it needs an explanation'),
    last_reachable_at: z.iso
      .datetime()
      .optional()
      .describe(
        'Last good end-to-end check of the SSH path; at most 10 minutes behind while checks are good, exact once one has failed; absent before the first',
      ),
    unreachable_since: z.iso
      .datetime()
      .optional()
      .describe('Start of the confirmed outage; present exactly while unreachable'),
    connection: Connection.nullable().describe('How to reach it; null before it has a place'),
  })
  .meta({ id: 'Instance' });
export type Instance = z.infer<typeof Instance>;
