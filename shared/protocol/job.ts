// A job on the wire: a program that runs to its end without a network, its inputs, its events and the files that it leaves behind.
import { z } from 'zod';
import { parseJson } from '../json.ts';
import {
  JOB_CONFIG_CHARS_MAX,
  JOB_EVENT_LINE_BYTES_MAX,
  JOB_EVENTS_PER_MESSAGE_MAX,
  JOB_FILE_BYTES_MAX,
  JOB_INPUTS_MAX,
  JOB_JSON_VALUES_MAX,
  JOB_RAN_MS_MAX,
  JOB_RESULT_FILES_MAX,
} from '../limits.ts';

/** A plain name without a folder: hosts use it in paths. */
export const JobFileName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/);
const Sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** Name, size and hash of a file that is transferred by a presigned URL. */
export const JobFile = z.strictObject({
  name: JobFileName,
  bytes: z.int().min(0).max(JOB_FILE_BYTES_MAX),
  sha256: Sha256,
});
export type JobFile = z.infer<typeof JobFile>;

/** The part of a desired workload that makes it a job. */
export const DesiredJob = z.strictObject({
  /** Files that the host fetches before the start and mounts read-only at `/job/<name>`. */
  inputs: z.array(JobFile).max(JOB_INPUTS_MAX),
  /** The text of `/job/job.json`. */
  config: z.string().max(JOB_CONFIG_CHARS_MAX),
  /** The host sends SIGTERM this long after the start, and SIGKILL after JOB_GRACE_MS more. */
  run_ms_max: z.int().min(0),
});
export type DesiredJob = z.infer<typeof DesiredJob>;

/** What the host reports about a job besides its phase. */
export const ObservedJob = z.strictObject({
  /** Exit code of the program; null while it runs. */
  exit_code: z.int().nullable(),
  /** The host has sent SIGTERM because `run_ms_max` was over. */
  stopped_at_limit: z.boolean(),
  /** The uploaded files of the result. Null before the upload, and if the program has left no result that can be used. */
  results: z.array(JobFile).max(JOB_RESULT_FILES_MAX).nullable(),
  /** The reason in words why there are no results. */
  detail: z.string().max(512).nullable(),
  /** Lines of the events file that were no events. */
  skipped_lines: z.int().min(0),
  /**
   * How long the program ran, from its start to its exit. Absent while it runs, and if the host cannot say. Since version 4 of the protocol.
   */
  ran_ms: z.int().min(0).max(JOB_RAN_MS_MAX).optional(),
});
export type ObservedJob = z.infer<typeof ObservedJob>;

const finite = z.number().min(-1e15).max(1e15);

/** One line of `/job/out/events.jsonl`. Unknown members are dropped. */
export const JobEvent = z.object({
  type: z.enum(['message', 'metrics', 'checkpoint']),
  level: z.enum(['info', 'warn', 'error']).default('info'),
  message: z.string().max(1_000).optional(),
  step: z.int().min(0).max(1e12).optional(),
  total_steps: z.int().min(0).max(1e12).optional(),
  epoch: finite.optional(),
  loss: finite.optional(),
  lr: finite.optional(),
  tokens: z.int().min(0).max(1e15).optional(),
  /** The name of a finished file in `/job/ckpt`. Only a `checkpoint` has it. */
  file: JobFileName.optional(),
});
export type JobEvent = z.infer<typeof JobEvent>;

/** An event with the offset in bytes at which its line ends. */
export const SentJobEvent = z.strictObject({ end: z.int().min(1), event: JobEvent });
export type SentJobEvent = z.infer<typeof SentJobEvent>;

export const JobEvents = z.array(SentJobEvent).max(JOB_EVENTS_PER_MESSAGE_MAX);

/** The file for which the host needs a URL. */
export const JobUrlPurpose = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('input'), name: JobFileName }),
  z.strictObject({ kind: z.literal('checkpoint'), step: z.int().min(0), file: JobFile }),
  z.strictObject({ kind: z.literal('result'), file: JobFile }),
]);
export type JobUrlPurpose = z.infer<typeof JobUrlPurpose>;

/** The answer to a request for a URL. `stored`: the file is stored already. `refused`: another request gets the same answer. */
export const JobUrlAnswer = z.discriminatedUnion('kind', [
  /** The URL, and the headers that the request to it must have. */
  z.strictObject({
    kind: z.literal('url'),
    url: z.string().max(8192),
    headers: z.record(z.string(), z.string()),
  }),
  z.strictObject({ kind: z.literal('stored') }),
  z.strictObject({ kind: z.literal('refused'), detail: z.string().max(512) }),
]);
export type JobUrlAnswer = z.infer<typeof JobUrlAnswer>;

/** The name of a file in a host's request. */
export function fileOf(purpose: JobUrlPurpose): string {
  return purpose.kind === 'input' ? purpose.name : purpose.file.name;
}

/** The event in a line of the events file; undefined if the line is not an event. */
export function jobEventOf(line: string): JobEvent | undefined {
  if (line.length > JOB_EVENT_LINE_BYTES_MAX) return undefined;
  try {
    const parsed = JobEvent.safeParse(parseJson(line, JOB_JSON_VALUES_MAX));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}
