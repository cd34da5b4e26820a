// Decides the next step of a video job from its row. Pure: no I/O, no clock.
import { VIDEO_FETCH_MS_MAX, VIDEO_QUEUE_MS_MAX } from '../../../shared/limits.ts';
import type { ErrorCode } from '../../../shared/errors.ts';
import { isOpen } from './states.ts';
import type { Job } from './store.ts';

/** Number of lost submissions after which the request itself is taken for the cause. */
const SUBMISSIONS_LOST_MAX = 3;

/** How often a server may be silent before a job ends whose time is over. The time may have passed while we were away. */
export const SILENCES_MAX = 5;

/** How long the server may take, from the catalog. Undefined if the server is not in the catalog any more. */
export type ServerFacts = { videoMs: number } | undefined;

export type Step =
  | { do: 'submit' }
  /** `late`: the job has been in the queue, or is being made, for too long. It ends unless the server has better news. */
  | { do: 'poll'; late: 'queued' | 'in_progress' | null }
  | { do: 'fetch' }
  | { do: 'expire' }
  | { do: 'fail'; code: ErrorCode; message: string }
  /** Remove an unwanted job or copy from the server, or wait until the server has finished it. */
  | { do: 'release' }
  | { do: 'wait'; untilMs: number | null };

export function planJob(job: Job, server: ServerFacts, nowMs: number): Step {
  if (isOpen(job)) return planOpen(job, server, nowMs);
  if (job.upstream_open) return { do: 'release' };
  if (job.status === 'completed') {
    const { expires_ms: untilMs } = job;
    return untilMs !== null && nowMs >= untilMs ? { do: 'expire' } : { do: 'wait', untilMs };
  }
  return { do: 'wait', untilMs: null };
}

/** The wait until the next status request for a job of this age: short at first, growing to 15 seconds. */
export function againMs(ageMs: number): number {
  return Math.min(Math.max(1_000, Math.round(ageMs / 20)), 15_000);
}

function planOpen(job: Job, server: ServerFacts, nowMs: number): Step {
  const { status, upstream_job_id: upstreamJobId, started_ms: startedMs, committed_ms: committedMs } = job;
  const isQueuedLong = status === 'queued' && nowMs >= job.created_ms + VIDEO_QUEUE_MS_MAX;
  if (upstreamJobId === null) {
    if (isQueuedLong) return { do: 'expire' };
    // A crash between a submission and its answer counts as a lost submission as soon as the job is sent again.
    const lost = job.submissions_lost + (job.upstream === null ? 0 : 1);
    if (lost >= SUBMISSIONS_LOST_MAX)
      return failed('upstream_error', 'No server could be made to begin with this video.');
    return { do: 'submit' };
  }
  if (server === undefined) return failed('upstream_error', 'The server that made this video is gone.');
  if (committedMs !== null) {
    // The time may have passed while nobody tried, because we were away or busy with other files.
    if (nowMs < committedMs + VIDEO_FETCH_MS_MAX || job.failures < SILENCES_MAX) return { do: 'fetch' };
    return failed('upstream_error', 'The finished video could not be fetched from its server.');
  }
  if (isQueuedLong) return { do: 'poll', late: 'queued' };
  const isMadeLong = startedMs !== null && nowMs >= startedMs + server.videoMs;
  return { do: 'poll', late: isMadeLong ? 'in_progress' : null };
}

function failed(code: ErrorCode, message: string): Step {
  return { do: 'fail', code, message: `${message} Send the request again.` };
}
