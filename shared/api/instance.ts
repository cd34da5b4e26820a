// The instance as customers see it, and what they send to get one (specification 2.2 and 4.3).
import { z } from 'zod';
import {
  AUTO_TERMINATE_HOURS_MAX,
  DISK_GB_INCLUDED,
  DISK_GB_MAX,
  DISK_GB_MIN,
  GPU_COUNT_MAX,
  IMAGE_REFERENCE_CHARS_MAX,
  LOG_LINES_MAX,
  PORTS_MAX,
} from '../limits.ts';
import { KEPT_LOG_DAYS, KEPT_LOG_KIB, KEPT_LOGS_PER_ORG_MAX } from './instance-journal.ts';
import { label } from './label.ts';
import { type PlacementWish, refusePlacement, Requirements } from './requirements.ts';
import { instanceShare } from './share.ts';

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
    .describe('The port on which the application listens inside the container'),
  protocol: z.enum(['http', 'tcp']).describe('Protocol of the port'),
  primary: z
    .boolean()
    .optional()
    .describe(
      'True if the port is served at `connection.app_url`. At most one port can be primary, and its protocol must be http',
    ),
});
export type Port = z.infer<typeof Port>;

/** The allowed environments (specification 4.3). The text of the rule leaves out raw_vm: it has the right form, but no host can run it. */
const ENVIRONMENT =
  /^(certified(:[a-z0-9][a-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._-]*)?)?|raw_vm(:[a-z0-9][a-z0-9._-]*)?|provider_template)$/;
const ENVIRONMENT_RULE =
  'must be certified, certified:<framework>, certified:<framework>@<version> or provider_template';

export const Ports = z.array(Port).max(PORTS_MAX).superRefine(refusePorts);

/** What its owner calls an instance. Several may have the same name. */
export const InstanceName = label(128);

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
        'Canonical GPU type from GET /v1/gpu-types. It may be left out if the launch names an `offering_id`, which has a type, a `template_id` or `requirements.gpu_types`. With the latter two, the launch then takes the cheapest free GPU type that is large enough for the template. With tier reserved, it takes the smallest such type of the contract',
      ),
    gpu_count: z.int().min(1).max(GPU_COUNT_MAX).describe('Number of GPUs. All of them are on one machine'),
    tier: z
      .enum(['on_demand', 'spot', 'reserved'])
      .describe(
        'How the instance is rented. spot: currently there is no capacity. reserved: the instance runs at price 0, and only on the slots of an active contract (GET /v1/reservations). If several contracts have enough free slots, the one that ends last is used',
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
        'An environment to log in to, from GET /v1/environments: certified, certified:<framework>, certified:<framework>@<version> or provider_template. If `environment`, `image` and `template_id` are all left out, the launch uses provider_template, the default of the operator',
      ),
    image: z
      .string()
      .optional()
      .describe(
        `Own container image for linux/amd64, written as for \`docker pull\`, such as ghcr.io/org/app:1.2; at most ${IMAGE_REFERENCE_CHARS_MAX} characters. The image is looked up in its registry before anything is created. It cannot be combined with tier spot`,
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
        'Replaces the ENTRYPOINT of the image, and drops the CMD of the image unless `cmd` is set. An empty array clears the ENTRYPOINT and keeps the CMD. Requires `image`',
      ),
    env: z
      .record(EnvKey, z.string().max(TEXT_CHARS_MAX))
      .refine((env) => Object.keys(env).length <= ENV_ENTRIES_MAX, `must have at most ${ENV_ENTRIES_MAX} entries`)
      .superRefine(refuseReservedEnv)
      .optional()
      .describe(
        'Environment variables of the container. With `template_id`, only variables that are `user_overridable` in the template are accepted. The values are stored encrypted and never shown',
      ),
    ports: Ports.optional().describe('Ports of the application. Requires image'),
    disk_gb: z
      .int()
      .min(DISK_GB_MIN)
      .max(DISK_GB_MAX)
      .optional()
      .describe(
        `Size of the file system, in GB. Only hosts that honour a size are considered. If it is left out, any host is considered. On a host that honours sizes the size is then ${DISK_GB_INCLUDED}, or what the host has left, which is at least ${DISK_GB_MIN}. Each GB above ${DISK_GB_INCLUDED} costs the \`disk_price_per_gb_hour\` of the offering, which is included in \`price_per_hour\``,
      ),
    auto_terminate_hours: z
      .int()
      .min(1, 'must be at least 1; leave it out for no limit')
      .max(AUTO_TERMINATE_HOURS_MAX)
      .optional()
      .describe(
        'The rental ends this many hours after the instance began to run. If it is left out, there is no limit',
      ),
    auto_terminate_on_exit: z
      .boolean()
      .optional()
      .describe(
        `True for a batch job: the instance ends when the main process of its container has ended, however it ended. It is charged until its host reports that. \`main_exit\` and \`status_reason\` then have the exit code or the signal. The last ${LOG_LINES_MAX} lines of its log, at most ${KEPT_LOG_KIB} KiB, can be read for ${KEPT_LOG_DAYS} days more, if the host sends them; an organisation has its newest ${KEPT_LOGS_PER_ORG_MAX} logs. If the container dies on its host, the program is not started again: the status is then \`error\`. If the field is false or left out, the instance runs on after its main process`,
      ),
    ssh_key_ids: z
      .array(z.string().min(1))
      .max(64)
      .optional()
      .describe(
        'Ids of the SSH keys that may log in. If the list is left out, all keys of the organisation may log in, also keys that are added later. If the list is empty, no key may log in',
      ),
    region: label(64)
      .optional()
      .describe(
        'Preferred region; the instance may be placed in another one, unless `requirements.regions` excludes it. With tier reserved, it must be a region of the contract',
      ),
    requirements: Requirements.optional().describe(
      'Conditions that the host must meet. If no free host meets them, the launch fails with `no_capacity`, and its `detail` says which condition left none. They cannot be combined with `offering_id`, which names the host, or with tier reserved, whose contract names the hosts',
    ),
    name: InstanceName.optional().describe('A name of your own'),
    offering_id: z
      .string()
      .min(1)
      .max(64)
      .optional()
      .describe(
        'Launches on this offering only, at its listed rate. With tier reserved, the contract must have slots on this offering',
      ),
    max_price_per_hour: z
      .number()
      .positive()
      .max(1_000_000)
      .optional()
      .describe('The highest accepted price of the whole instance for an hour, in dollars'),
    viewed_price_per_hour: z
      .number()
      .min(0)
      .max(1_000_000)
      .optional()
      .describe(
        'The price of the whole instance for an hour that you saw, in dollars. If the price is now more than 0.01 higher, the launch is refused with `price_changed`',
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
    'requirements',
  ]);
  return typeof value === 'object' && value !== null && issues.every(({ path }) => !named.has(path?.[0]));
}

function refuseCombinations(
  request: Partial<
    Record<(typeof ONLY_WITH_IMAGE)[number] | 'gpu_type' | 'template_id' | 'environment' | 'image' | 'tier', unknown>
  > &
    PlacementWish,
  context: z.RefinementCtx,
): void {
  const refuse = (field: string, message: string): void => context.addIssue({ code: 'custom', path: [field], message });
  const { image, template_id: template, environment } = request;
  refusePlacement(request, context);
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
    name: InstanceName.nullable().describe('The new name; null removes it'),
  })
  .meta({ id: 'RenameInstance' });

/** A port of the application that is not the primary one. */
const ReachablePort = z.strictObject({
  port: z.int().describe('The port on which the application listens inside the container'),
  protocol: z.enum(['http', 'tcp']).describe('Protocol of the port'),
  url: z.string().optional().describe('URL of the port, behind the same login as `app_url`; only for an http port'),
  hostname: z.string().optional().describe('Host name to connect to; only for a tcp port'),
  public_port: z.int().optional().describe('Port number to connect to, open to everybody; only for a tcp port'),
});

const Connection = z.strictObject({
  hostname: z.string().optional().describe('Host name of the SSH endpoint'),
  port: z.int().optional().describe('TCP port of the SSH endpoint'),
  ssh_command: z.string().optional().describe('The complete ssh command, ready to paste'),
  host_key: z
    .string()
    .optional()
    .describe('OpenSSH line of the SSH host key; stays the same for the life of the instance'),
  app_url: z.string().optional().describe('URL of the application, if it has a primary port'),
  terminal_url: z
    .string()
    .optional()
    .describe(
      'URL of the browser console: a shell in the instance that needs no SSH key. Present only while the instance is running',
    ),
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
        'allocating: GPUs are being found. starting: the instance boots. running: SSH works and each second is charged. unreachable: the instance runs, but SSH cannot reach it, and nothing is charged. stopping: its container is being removed. stopped: the host ended the instance. terminated: the customer, the operator, a limit or the end of its program ended it. error: the launch or the instance failed',
      ),
    gpu_type: z.string().describe('Canonical GPU type'),
    gpu_count: z.int().describe('GPUs of one machine'),
    region: z
      .string()
      .describe(
        'The region where the instance was placed last. Before the first placement: the requested region. If none was requested: the region of the contract (tier reserved) or of the cheapest offer',
      ),
    ...instanceShare,
    tier: z.enum(['on_demand', 'spot', 'reserved']).describe('How it is rented'),
    price_per_hour: z.number().describe('Dollars an hour for the whole instance'),
    created_at: z.iso.datetime().describe('When it was asked for'),
    name: z.string().nullable().describe('A name of your own'),
    ready_at: z.iso
      .datetime()
      .nullable()
      .describe('When the instance first ran. Charging begins at this time. Null before the instance has run'),
    terminated_at: z.iso
      .datetime()
      .nullable()
      .describe(
        'When the instance ended. Charging ends at this time at the latest. Null before the instance has ended',
      ),
    disk_gb: z.int().optional().describe('Size of the file system; absent if the host does not honour a size'),
    image: z
      .string()
      .optional()
      .describe(
        '`<image>@sha256:<digest>`: the image, pinned to the digest that was verified at the launch. Present only if the launch named an image',
      ),
    reservation_id: z.string().nullable().describe('The contract of a reserved instance; null for all others'),
    host_rentable_until: z.iso
      .datetime()
      .nullable()
      .describe(
        'Time from which the supplier does not offer the host any more. The instance runs on until you end it, but move what you need before. Null if the supplier has set none, and after the end of the instance',
      ),
    auto_terminate_hours: z
      .int()
      .optional()
      .describe('The runtime limit that the launch set, in hours; absent if it set none'),
    auto_terminate_at: z.iso
      .datetime()
      .optional()
      .describe(
        'When the runtime limit will end the instance. Absent before the instance runs, and after the limit has ended it',
      ),
    auto_terminate_on_exit: z
      .literal(true)
      .optional()
      .describe('True if the launch asked for it: the instance ends when its main process has ended. Absent otherwise'),
    status_reason: z.string().optional().describe('The reason for the status, if it needs an explanation'),
    main_exit: z
      .strictObject({
        code: z.int().nullable().describe('Its exit code; null if a signal has ended it'),
        signal: z
          .string()
          .nullable()
          .describe('The signal that has ended it, such as `SIGKILL`; null if it has exited by itself'),
      })
      .optional()
      .describe(
        'How the main process of the container has ended. The instance runs on, and costs money, unless it has `auto_terminate_on_exit`. Absent while the process runs, and if it has ended only because the instance was ended',
      ),
    last_reachable_at: z.iso
      .datetime()
      .optional()
      .describe(
        'Time of the last successful end-to-end check of the SSH path. While checks succeed, it may be up to 10 minutes old. After a check has failed, it is exact. Absent before the first check has succeeded',
      ),
    unreachable_since: z.iso
      .datetime()
      .optional()
      .describe('Start of the confirmed outage; present exactly while unreachable'),
    connection: Connection.nullable().describe('How to reach the instance. Null before the instance has a place'),
  })
  .meta({ id: 'Instance' });
export type Instance = z.infer<typeof Instance>;
