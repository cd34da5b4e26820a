// The control link: one WebSocket per machine, dialled by the agent, JSON text messages. This file is the specification of that wire.
//
// Order: server `challenge` -> agent `hello` (signs the nonce) -> server `welcome`. Then, in any order:
//   from the server: `clone_token`, `desired`, `open`, `pull_login`, `job_url`, `job_events_kept`, `repair`, `watch`, `drain`
//   from the agent: `clone_token_kept`, `observed`, `inventory`, `pull_login`, `job_url`, `job_events`, `holder`, `stream_refused`,
//   `metrics`
// The server sends WebSocket pings to detect a dead peer. A message that does not decode closes the link with a reason and has no other effect.
import { z } from 'zod';
import { parseJson, TooManyValues } from '../json.ts';
import { LOG_LINES_MAX, METRICS_WATCH_MS, WORKLOADS_PER_MACHINE_MAX } from '../limits.ts';
import { Inventory } from './inventory.ts';
import { type DesiredJob, JobEvents, JobFileName, JobUrlAnswer, JobUrlPurpose, type ObservedJob } from './job.ts';
import { MetricsSample } from './metrics.ts';
import { DesiredWorkload, ObservedWorkload, WorkloadId } from './workload.ts';

/** The version of a desired state. Every change raises the revision; a control plane restored from a backup raises the epoch. */
export const Revision = z.strictObject({ epoch: z.int().min(0), revision: z.int().min(0) });
export type Revision = z.infer<typeof Revision>;

/** The SSH server of a workload's holder. */
export const SshTarget = z.strictObject({
  kind: z.literal('ssh'),
  /** OpenSSH public key lines that may log in, as of the moment of this connection. */
  authorized_keys: z.array(z.string().max(16_384)).max(1024),
  client_ip: z.string().max(64),
});
export type SshTarget = z.infer<typeof SshTarget>;

/** A probe of the workload's SSH server by the control plane. It has a reserved place, waits in no queue, and opens no channels. */
export const ProbeTarget = z.strictObject({
  kind: z.literal('probe'),
  /** OpenSSH public key line that may authenticate. */
  probe_key: z.string().max(1024),
});
export type ProbeTarget = z.infer<typeof ProbeTarget>;

/** A port of the application, on the container's own loopback. */
export const TcpTarget = z.strictObject({ kind: z.literal('tcp'), port: z.int().min(1).max(65_535) });

/**
 * The container's log, in lines as `LogLine` of workload.ts describes them. The stream ends with the log. With `follow`, it ends with the container.
 */
const LogsTarget = z.strictObject({
  kind: z.literal('logs'),
  /** The number of last lines to send. */
  tail: z.int().min(0).max(LOG_LINES_MAX),
  follow: z.boolean(),
  /** Only lines written at or after this time (unix seconds, decimals allowed); null: from the beginning. */
  since: z
    .string()
    .regex(/^\d{1,12}(\.\d{1,9})?$/)
    .nullable(),
});
export type LogsTarget = z.infer<typeof LogsTarget>;

/** The browser console: HTTP/1.1 for its page, and one WebSocket per shell. The control plane has already authenticated the user. */
export const TerminalTarget = z.strictObject({ kind: z.literal('terminal') });

/** The target of a data stream. */
export const OpenTarget = z.discriminatedUnion('kind', [SshTarget, ProbeTarget, TcpTarget, TerminalTarget, LogsTarget]);

/** The login to a registry for one image: a token for its repository, or a password if the registry does not use tokens. */
export const PullLogin = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('bearer'), token: z.string().min(1).max(65_536) }),
  z.strictObject({ kind: z.literal('basic'), username: z.string(), password: z.string() }),
]);
export type PullLogin = z.infer<typeof PullLogin>;

/**
 * The answer to a host that is about to pull an image. `refused`: the organisation may not pull the image, and another request gets the
 * same answer.
 */
const PullAnswer = z.discriminatedUnion('kind', [
  ...PullLogin.options,
  z.strictObject({ kind: z.literal('refused'), detail: z.string().max(512) }),
]);
export type PullAnswer = z.infer<typeof PullAnswer>;

/** The value of a clone token. The host stores it and does not interpret it. */
const CloneTokenValue = z.string().min(1).max(128);

export const ServerMessage = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('challenge'),
    /** base64url; the agent signs `linkProof(machine_id, nonce)` with its ed25519 key. */
    nonce: z.string().min(16).max(128),
    protocol: z.strictObject({ min: z.int(), max: z.int() }),
  }),
  z.strictObject({ type: z.literal('welcome'), protocol: z.int(), now_ms: z.int() }),
  /** Sent after each welcome and every CLONE_TOKEN_MS. The host stores it, sends `clone_token_kept`, and shows it in its next hello. */
  z.strictObject({ type: z.literal('clone_token'), value: CloneTokenValue }),
  z.strictObject({
    type: z.literal('desired'),
    ...Revision.shape,
    /** Always true: the message contains every workload of this machine. An agent ignores a message without it. */
    complete: z.literal(true),
    /** Time of the control plane. The host compares it with the end times of rentals and quarantines. */
    now_ms: z.int(),
    workloads: z.array(DesiredWorkload).max(WORKLOADS_PER_MACHINE_MAX),
  }),
  z.strictObject({
    type: z.literal('open'),
    stream_id: z.string().min(1).max(64),
    /** The token in the path of the data stream, `/agent/v1/streams/<token>`. It works once and only for a short time. */
    token: z.string().min(16).max(128),
    workload_id: WorkloadId,
    target: OpenTarget,
  }),
  /**
   * The answer to `pull_login`. The login is valid for a few minutes, and the host keeps it in memory only. Null: the host pulls without a
   * login.
   */
  z.strictObject({ type: z.literal('pull_login'), workload_id: WorkloadId, login: PullAnswer.nullable() }),
  /** The answer to `job_url` for the file of this name. */
  z.strictObject({ type: z.literal('job_url'), workload_id: WorkloadId, name: JobFileName, answer: JobUrlAnswer }),
  /** The events up to this offset are stored. The host sends the events after it, even if it has sent more or fewer before. */
  z.strictObject({ type: z.literal('job_events_kept'), workload_id: WorkloadId, offset: z.int().min(0) }),
  /** The control plane cannot reach a workload's SSH server: the agent must replace its holder. The container goes on. */
  z.strictObject({ type: z.literal('repair'), workload_id: WorkloadId }),
  /**
   * Sent while somebody looks at the figures of this host. The host takes a sample every second for this time, then slowly again. Since
   * version 3.
   */
  z.strictObject({ type: z.literal('watch'), for_ms: z.int().min(0).max(METRICS_WATCH_MS) }),
  z.strictObject({ type: z.literal('drain'), reconnect_after_ms: z.int().min(0).max(600_000) }),
]);
export type ServerMessage = z.infer<typeof ServerMessage>;
export type HolderMessage = Extract<AgentMessage, { type: 'holder' }>;
export type OpenMessage = Extract<ServerMessage, { type: 'open' }>;
export type PullLoginMessage = Extract<ServerMessage, { type: 'pull_login' }>;
export type JobUrlMessage = Extract<ServerMessage, { type: 'job_url' }>;
export type JobEventsKeptMessage = Extract<ServerMessage, { type: 'job_events_kept' }>;
export type DesiredMessage = Extract<ServerMessage, { type: 'desired' }>;

export const AgentMessage = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('hello'),
    machine_id: z.string().min(1).max(64),
    /** base64url ed25519 signature over `linkProof(machine_id, nonce)`. */
    proof: z.string().min(1).max(128),
    protocol: z.strictObject({ min: z.int(), max: z.int() }),
    /**
     * The desired state that this host has stored; null on a new host. If it is newer than the server's, the server was restored from a
     * backup.
     */
    held: Revision.nullable(),
    /** Changes with every boot of the host. */
    boot_id: z.string().max(64),
    inventory: Inventory,
    /** The newest clone token on the host's disk; null before the first one. If it is old, this disk is a copy. */
    clone_token: CloneTokenValue.nullable(),
  }),
  z.strictObject({ type: z.literal('clone_token_kept'), value: CloneTokenValue }),
  z.strictObject({
    type: z.literal('observed'),
    /** The desired state from which this report was computed; null before the first one. */
    held: Revision.nullable(),
    workloads: z.array(ObservedWorkload).max(WORKLOADS_PER_MACHINE_MAX),
    /** Ids on labels of our containers that the desired state does not contain. They are reported and never touched. */
    unknown_workload_ids: z.array(z.string().max(64)).max(WORKLOADS_PER_MACHINE_MAX),
  }),
  z.strictObject({ type: z.literal('inventory'), inventory: Inventory }),
  /** Requests the login for a workload's private image. No answer comes while the registry is away; the host requests again. */
  z.strictObject({ type: z.literal('pull_login'), workload_id: WorkloadId }),
  /**
   * Requests a URL right before a transfer. After an upload the host asks again and gets `stored`. No answer comes while the control plane
   * cannot give one; the host requests again.
   */
  z.strictObject({ type: z.literal('job_url'), workload_id: WorkloadId, purpose: JobUrlPurpose }),
  /** The next events of a job. An empty list asks for the offset from which the control plane needs them. */
  z.strictObject({ type: z.literal('job_events'), workload_id: WorkloadId, events: JobEvents }),
  /** A holder did not answer its agent, or was replaced. This is evidence and starts a probe, but decides nothing by itself. */
  z.strictObject({
    type: z.literal('holder'),
    workload_id: WorkloadId,
    state: z.enum(['silent', 'replaced']),
    detail: z.string().max(512),
  }),
  z.strictObject({ type: z.literal('stream_refused'), stream_id: z.string().max(64), detail: z.string().max(512) }),
  /** A sample of the host's figures, since version 3. It gets no answer, and a lost sample is not sent again. */
  MetricsSample,
]);
export type AgentMessage = z.infer<typeof AgentMessage>;
export type ObservedMessage = Extract<AgentMessage, { type: 'observed' }>;
export type JobUrlRequest = Extract<AgentMessage, { type: 'job_url' }>;
export type HelloMessage = Extract<AgentMessage, { type: 'hello' }>;

export const LINK_PATH = '/agent/v1/link';
export const ENROLL_PATH = '/agent/v1/enroll';
export const STREAMS_PATH = '/agent/v1/streams/';

/** Application close codes of the link (WebSocket 4000-4999). */
export const LINK_CLOSE = {
  malformed: 4400,
  unauthorized: 4401,
  version: 4406,
  superseded: 4409,
  silent: 4408,
  busy: 4429,
} as const;

/** The bytes that an agent signs to prove that it is this machine. */
export function linkProof(machineId: string, nonce: string): Buffer {
  return Buffer.from(`svc-link-v1\n${machineId}\n${nonce}`);
}

/**
 * The message without what a peer of this version does not know: version 1 has no jobs, versions 2 and 3 have no run times of jobs, and versions up
 * to 4 have no programs that run once. The peer leaves a workload alone that a list does not contain.
 */
export function forVersion<T extends DesiredMessage | ObservedMessage>(message: T, version: number): T {
  if (version >= PROTOCOL_WITH_RUNS_ONCE) return message;
  const workloads: readonly (DesiredWorkload | ObservedWorkload)[] = message.workloads;
  const known = workloads.map(withoutRunsOnce).flatMap(({ job, ...workload }) => {
    if (job === undefined) return [workload];
    if (version < PROTOCOL_WITH_JOBS) return [];
    return [{ ...workload, job: version < PROTOCOL_WITH_RUN_TIMES ? withoutRunTime(job) : job }];
  });
  return { ...message, workloads: known };
}

function withoutRunsOnce(workload: DesiredWorkload | ObservedWorkload): DesiredWorkload | ObservedWorkload {
  if ('phase' in workload) {
    const { failure_code: code } = workload;
    const isNew = code === 'out_of_memory' || code === 'container_died';
    return isNew ? { ...workload, failure_code: 'start_failed' } : workload;
  }
  const { runs_once: _, ...known } = workload;
  return known;
}

function withoutRunTime(job: DesiredJob | ObservedJob): DesiredJob | ObservedJob {
  if (!('ran_ms' in job)) return job;
  const { ran_ms: _, ...known } = job;
  return known;
}

export type Decoded<T> = { ok: true; message: T } | { ok: false; reason: string };

/** Short enough for the 123 bytes of a close frame, with some words before it. */
const REASON_CHARS_MAX = 100;

/**
 * Decodes one text frame with at most `valuesMax` names and values; the socket bounds its size. Never throws; the reason names the
 * first broken field. U+0000 becomes U+FFFD, because texts of a registry may contain it and PostgreSQL cannot store it. That happens
 * after the schema has bounded the message: a JSON reviver would visit every value of a hostile one and take a hundred times as long.
 */
export function decodeMessage<T>(schema: z.ZodType<T>, frame: string, valuesMax: number): Decoded<T> {
  let json: unknown;
  try {
    json = parseJson(frame, valuesMax);
  } catch (error) {
    return { ok: false, reason: error instanceof TooManyValues ? error.message : 'not JSON' };
  }
  const parsed = schema.safeParse(json);
  if (parsed.success) {
    return { ok: true, message: frame.includes(String.raw`\u0000`) ? withoutNul(parsed.data) : parsed.data };
  }
  return { ok: false, reason: reasonOf(parsed.error) };
}

/** Why the peer would not decode this message, and close the link; undefined if it will. */
export function faultIn<T>(schema: z.ZodType<T>, message: T): string | undefined {
  const parsed = schema.safeParse(message);
  return parsed.success ? undefined : reasonOf(parsed.error);
}

/** Names the first broken field. */
function reasonOf({ issues: [issue] }: z.ZodError): string {
  const reason = `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'invalid'}`;
  return reason.slice(0, REASON_CHARS_MAX).replace(/[^\x20-\x7e]/g, '?');
}

/** The socket under the control link, for both ends: a WebSocket of the package `ws`, or the simulated network of the tests. */
export interface LinkSocket {
  readonly readyState: number;
  readonly OPEN: number;
  /** Bytes that were sent but that the peer has not read yet. */
  readonly bufferedAmount: number;
  on(event: 'message', heard: (data: Buffer, isBinary: boolean) => void): unknown;
  on(event: 'close', heard: (code: number, reason: Buffer) => void): unknown;
  on(event: 'error', heard: (error: Error) => void): unknown;
  on(event: 'ping' | 'pong', heard: () => void): unknown;
  send(text: string): void;
  ping(): void;
  /** Starts the closing handshake; the event `close` follows. */
  close(code: number, reason: string): void;
  /** Cuts the connection without a handshake. */
  terminate(): void;
  /** Stops reading until `resume`. Messages that have arrived already may still be emitted. */
  pause(): void;
  resume(): void;
}

// The versions of this wire. Both sides send the range of their versions; the highest common one is used.
//
// 1 (2026-11-21): enrolment; challenge and hello; complete desired state; observed state; streams on request. The desired state contains
//   the time, the end of a rental, its disk size, and whether its image is private (the host then requests a login). The inventory contains
//   whether disk sizes are enforced, whether the network fence stands, GPUs with faults, and the version of the container toolkit. Streams
//   lead to SSH, to a port inside or to the container's log. A failed workload names the cause, also if the guest never connected. A clone
//   token exposes copies of a host's disk.
// 2 (2026-11-23): jobs. A desired workload may have `job`: a program without a network that reads inputs, appends events to a file and leaves
//   results. New messages: `job_url` (both ways), `job_events`, `job_events_kept`. An observed job has `job` and the phases
//   `finishing` and `finished`. A peer of version 1 is sent no job and no report about one.
// 3 (2026-11-24): figures of GPUs, containers and the host. New messages: `metrics` from the host, `watch` to it. A peer of version 2 is
//   sent neither.
// 4 (2026-11-25): run times of jobs. An observed job has `ran_ms` once its program has ended. A peer of version 3 is sent none.
// 5 (2026-11-30): programs that run once. A desired workload may have `runs_once`; a container of it that has died is reported as failed, with
//   `out_of_memory` or `container_died`. A peer of version 4 is sent no such word, so an agent of that version starts the container again.

export const PROTOCOL_MIN = 1;
export const PROTOCOL_MAX = 5;
/** The first version whose agents run jobs. */
export const PROTOCOL_WITH_JOBS = 2;
/** The first version whose agents send figures. */
export const PROTOCOL_WITH_METRICS = 3;
/** The first version whose agents report how long the program of a job ran. */
const PROTOCOL_WITH_RUN_TIMES = 4;
/** The first version whose agents leave the dead container of a program that runs once alone. */
const PROTOCOL_WITH_RUNS_ONCE = 5;

/** The highest version that is in both ranges; undefined if there is none. In that case one side must be upgraded. */
export function negotiateVersion(peer: { min: number; max: number }): number | undefined {
  const version = Math.min(PROTOCOL_MAX, peer.max);
  return version >= Math.max(PROTOCOL_MIN, peer.min) ? version : undefined;
}

/** Returns the value with each U+0000 in its strings replaced by U+FFFD. */
function withoutNul<T>(value: T): T;
function withoutNul(value: unknown): unknown {
  if (typeof value === 'string') return value.replaceAll('\u0000', '\ufffd');
  if (Array.isArray(value)) return value.map((each) => withoutNul<unknown>(each));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, withoutNul<unknown>(each)]));
}
