// The two states of a workload on the wire: what should run (desired) and what runs (observed), and the lines that its container writes.
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX, IMAGE_REFERENCE_CHARS_MAX } from '../limits.ts';
import { DesiredJob, ObservedJob } from './job.ts';

/** The container's command. `null` keeps the image's value; an empty array clears it (as in Docker and Kubernetes). */
const WorkloadCommand = z.strictObject({
  entrypoint: z.array(z.string()).nullable(),
  cmd: z.array(z.string()).nullable(),
});

/** The id is part of the names of a folder, a container and a network on the host, so only safe characters are allowed. */
export const WorkloadId = z.string().regex(/^[A-Za-z0-9_-]{1,40}$/);

/** The longest reference that a launch may contain, plus the verified digest that we append. */
const PINNED_IMAGE_CHARS_MAX = IMAGE_REFERENCE_CHARS_MAX + '@sha256:'.length + 64;

export const DesiredWorkload = z.strictObject({
  workload_id: WorkloadId,
  instance_id: z.string().min(1).max(64),
  /** `removed` is the tombstone. A workload that is merely absent from a list is never touched. */
  desired: z.enum(['running', 'removed']),
  image: z.string().min(1).max(PINNED_IMAGE_CHARS_MAX),
  /** The image is private: the host requests a login (`pull_login`) right before each pull. */
  pull_login: z.boolean(),
  command: WorkloadCommand,
  env: z.record(z.string(), z.string()),
  /** UUIDs as nvidia-smi prints them. The host gives CPU and RAM in proportion to its GPUs. */
  gpu_uuids: z.array(z.string()).max(GPUS_PER_MACHINE_MAX),
  /** Limit of the container's file system; null if the host cannot enforce one. */
  disk_gb: z.int().min(1).nullable(),
  /**
   * The end of the runtime limit, by the control plane's clock. The host ends the rental by itself AUTO_TERMINATE_GRACE_MS later, in case
   * it has no link. Null without a limit, and before the instance runs.
   */
  ends_at_ms: z.int().nullable(),
  /** Set if the workload is a job. A job has no network and no guest, and it ends by itself. Since version 2 of the protocol. */
  job: DesiredJob.optional(),
  /**
   * True for a batch job: if its container dies, the host reports that and does not start the container again, because the program would run a second
   * time. Since version 5 of the protocol.
   */
  runs_once: z.literal(true).optional(),
});
export type DesiredWorkload = z.infer<typeof DesiredWorkload>;

/**
 * The resulting command, as in Docker: an entrypoint of the request drops the image's cmd, `null` keeps the image's value, an empty
 * array clears it (an empty entrypoint keeps the image's cmd). An empty result means that there is nothing to run.
 */
export function commandOf(
  command: DesiredWorkload['command'],
  image: { entrypoint: readonly string[]; cmd: readonly string[] },
): string[] {
  const entrypoint = command.entrypoint ?? image.entrypoint;
  const replacesEntrypoint = command.entrypoint !== null && command.entrypoint.length > 0;
  const cmd = command.cmd ?? (replacesEntrypoint ? [] : image.cmd);
  return [...entrypoint, ...cmd];
}

/**
 * - `pulling` to `starting`: not ready yet. `running`: the container is up and its SSH server answers on the host.
 * - `failed`: it cannot run here; `detail` says why. `stopped`: the container is stopped and cut off, its disk kept.
 * - `removed`: nothing of it is left. `missing`: it had a container here, and the engine no longer knows it.
 * - Only for jobs: `finishing`: the program has ended, and its files are being uploaded. `finished`: they are uploaded, or there are none.
 */
export const WORKLOAD_PHASES = [
  'pulling',
  'creating',
  'starting',
  'running',
  'failed',
  'stopped',
  'removed',
  'missing',
  'finishing',
  'finished',
] as const;

/** How a main process has ended: by itself with a code, or by a signal. */
export const MainExit = z.strictObject({
  code: z.int().min(0).max(255).nullable(),
  signal: z.string().max(32).nullable(),
});
export type MainExit = z.infer<typeof MainExit>;

export const ObservedWorkload = z.strictObject({
  workload_id: z.string().min(1).max(64),
  phase: z.enum(WORKLOAD_PHASES),
  /** Bytes of the image so far; null when nothing is being pulled. */
  pull: z.strictObject({ done_bytes: z.int().min(0), total_bytes: z.int().min(0) }).nullable(),
  /** `sha256:...` of the image that runs, once known. */
  image_digest: z.string().max(128).nullable(),
  /** OpenSSH public key line of this workload's SSH server. It is made on the host and never changes. */
  host_key: z.string().max(256).nullable(),
  /** Set once the container's main process has exited. The container stays up and reachable. */
  main_exit: MainExit.nullable(),
  failure_code: z
    .enum([
      'image_pull_failed',
      'image_unusable',
      'no_command',
      'guest_silent',
      'start_failed',
      'gpu_unavailable',
      'engine_unavailable',
      // Both since version 5 of the protocol, and only for a workload with `runs_once`: its container has died.
      'out_of_memory',
      'container_died',
    ])
    .nullable(),
  detail: z.string().max(2048).nullable(),
  /** Set if the workload is a job. */
  job: ObservedJob.optional(),
});
export type ObservedWorkload = z.infer<typeof ObservedWorkload>;

/** What customers read about a failure if the image is the operator's. The host's own text could name it, and it stays hidden (2.2, 2.15). */
export const FAILURE_WORDS: Record<NonNullable<ObservedWorkload['failure_code']>, string> = {
  image_pull_failed: 'its image could not be pulled',
  image_unusable: 'its image cannot be run',
  no_command: 'its image has nothing to run',
  guest_silent: 'the container did not answer',
  start_failed: 'the container could not be started',
  gpu_unavailable: 'a GPU was not there',
  engine_unavailable: 'the container engine of the host did not answer',
  out_of_memory: 'the container was killed, because it needed more memory than the host gives it',
  container_died: 'the container died, and its program with it',
};

/**
 * A line on a stream of logs: one JSON object and a line feed, in the order in which the container has written them. Hosts send
 * it so, and customers read it so.
 */
export const LogLine = z.strictObject({
  /** RFC 3339 with nanoseconds, by the host's clock, as the engine has recorded it. */
  at: z.string().max(40).describe('When it was written, by the clock of the host'),
  stream: z.enum(['stdout', 'stderr']).describe('Where it was written to'),
  line: z.string().max(20_000).describe('Without its line feed; very long lines come in parts'),
});
export type LogLine = z.infer<typeof LogLine>;

/** Maximum size of a line as JSON: 20,000 characters, all of them escaped. */
export const LOG_LINE_BYTES_MAX = 160 * 1024;
