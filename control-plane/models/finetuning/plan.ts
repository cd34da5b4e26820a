// Decides the next step of a fine-tuning job from its rows and from what its host reports. Pure: no I/O, no clock.
import type { ErrorCode } from '../../../shared/errors.ts';
import {
  FINE_TUNING_ATTEMPTS_MAX,
  FINE_TUNING_FINISH_MS_MAX,
  FINE_TUNING_GONE_MS,
  FINE_TUNING_KEEP_MS,
  FINE_TUNING_LOST_MS,
  FINE_TUNING_QUEUE_MS_MAX,
  FINE_TUNING_START_MS_MAX,
  JOB_GRACE_MS,
} from '../../../shared/limits.ts';
import { FAILURE_WORDS, type ObservedWorkload } from '../../../shared/protocol/workload.ts';
import type { Quiet } from '../../rental/instances/quiet.ts';
import type { Attempt } from './attempts.ts';
import type { JobFileRow } from './files.ts';
import type { Job } from './store.ts';

export interface Facts {
  job: Job;
  /** The present attempt; undefined while the job is on no machine. */
  attempt: Attempt | undefined;
  /** What the host has last reported about the workload of the attempt. `gone`: the host has nothing of it any more. Null: no report yet. */
  observed: ObservedWorkload | 'gone' | null;
  /** When the host first reported that the program has ended; null before. */
  endedMs: number | null;
  /** True if the host was ordered to remove the workload. */
  isRemoving: boolean;
  /** True if the machine of the attempt has a link. */
  isOnline: boolean;
  files: readonly JobFileRow[];
  quiet: Quiet;
}

export type Step =
  | { do: 'validate' }
  | { do: 'place' }
  | { do: 'start' }
  /** Read an uploaded file, and compare its size and hash. */
  | { do: 'verify'; file: JobFileRow }
  /** The program has ended: no time is priced after `atMs`. */
  | { do: 'note-stop'; atMs: number }
  /** The machine has lost its link, or has it again (false). */
  | { do: 'note-offline'; isOffline: boolean }
  /** Give this machine up and go on elsewhere, from the last verified checkpoint. `detail`: the host's own words, for the log. */
  | { do: 'leave'; because: string; detail?: string | null }
  | { do: 'succeed' }
  | { do: 'fail'; code: ErrorCode; message: string }
  /** The budget is used up. The time of the program is charged, and the checkpoints that it has left are kept. */
  | { do: 'exhaust' }
  | { do: 'cancel' }
  /** The host does not end the job in time: order its removal, which kills the program. */
  | { do: 'remove' }
  /** The files and events were kept long enough. */
  | { do: 'forget' }
  | { do: 'wait'; untilMs: number | null };

/** A host confirms a new workload within seconds. An agent without jobs never does. */
const ACKNOWLEDGE_MS_MAX = 3 * 60_000;
/** How soon a search for a machine is repeated. */
const PLACE_AGAIN_MS = 30_000;
/** A host that goes on after its limit and the grace has this long to report its end. */
const LATE_MS = 10 * 60_000;
/** A file that can never be read must not keep the budget of a job and its machine for ever. */
const READ_MS_MAX = 24 * 3_600_000;
/** Exit codes of a program that was killed, or whose host went down: another host may succeed. */
const KILLED_CODES = new Set([130, 137, 143, 255]);

export function plan(facts: Facts, nowMs: number): Step {
  const { job, files, attempt } = facts;
  if (job.finished_ms !== null) {
    const untilMs = job.finished_ms + FINE_TUNING_KEEP_MS;
    return nowMs >= untilMs ? { do: 'forget' } : { do: 'wait', untilMs };
  }
  const stoppedMs = unnotedStopMs(facts, nowMs);
  if (stoppedMs !== undefined) return { do: 'note-stop', atMs: stoppedMs };
  const uploaded = files.find((file) => file.state === 'uploaded' && nowMs < readByMs(file, facts));
  if (uploaded !== undefined) return { do: 'verify', file: uploaded };
  if (job.cancel_ms !== null) return planCancel(facts, job.cancel_ms, nowMs);
  if (job.status === 'validating') return nowMs < readByMs(job, facts) ? { do: 'validate' } : UNREADABLE;
  if (attempt === undefined) return planQueued(job, nowMs);
  return job.status === 'queued' ? planStart(facts, attempt, nowMs) : planRunning(facts, attempt, nowMs);
}

/**
 * When the program ended, if that was reported but is not noted yet. It is noted first, because reading an uploaded file may take minutes. If the
 * host or this control plane was away, the report comes late, so the run time that the host reports counts too. It only ever shortens the charge.
 */
function unnotedStopMs({ job, attempt, observed, endedMs }: Facts, nowMs: number): number | undefined {
  if (attempt === undefined || attempt.stopped_ms !== null || endedMs === null) return undefined;
  if (job.status !== 'running' && job.cancel_ms === null) return undefined;
  const startedMs = attempt.started_ms;
  if (startedMs === null) return Math.min(endedMs, nowMs);
  const ranMs = ranMsOf(observed) ?? Infinity;
  return Math.max(Math.min(endedMs, nowMs, startedMs + ranMs), startedMs);
}

function ranMsOf(observed: Facts['observed']): number | undefined {
  return observed === null || observed === 'gone' ? undefined : observed.job?.ran_ms;
}

/** The step that follows if no machine was found. */
export function planUnplaced(job: Job, nowMs: number): Step {
  const deadlineMs = job.queued_ms + FINE_TUNING_QUEUE_MS_MAX;
  return { do: 'wait', untilMs: Math.min(nowMs + PLACE_AGAIN_MS, deadlineMs) };
}

/**
 * A job is cancelled only after the host has stopped its program, because the GPUs work for the job until then. A program that runs was sent
 * SIGTERM, so that its last checkpoint still arrives. A host that is online and does not stop it is waited for as long as one that is gone.
 */
function planCancel(facts: Facts, cancelMs: number, nowMs: number): Step {
  const { attempt, observed, isOnline, isRemoving } = facts;
  if (attempt === undefined || observed === 'gone' || hasLeft(observed)) return { do: 'cancel' };
  if (observed?.phase === 'finished') return { do: 'cancel' };
  const offlineMs = attempt.offline_since_ms;
  if (!isOnline) {
    if (offlineMs === null) return { do: 'note-offline', isOffline: true };
    const goneMs = heard(Math.max(offlineMs, cancelMs), facts) + FINE_TUNING_GONE_MS;
    return nowMs >= goneMs ? { do: 'cancel' } : { do: 'wait', untilMs: goneMs };
  }
  if (offlineMs !== null) return { do: 'note-offline', isOffline: false };
  const lateMs = removeByMs(cancelMs, facts);
  if (!isRemoving) return nowMs >= lateMs ? { do: 'remove' } : { do: 'wait', untilMs: lateMs };
  // A host that is online but stuck must not keep the budget for ever. Its GPUs stay held until it has confirmed the removal.
  const stuckMs = cancelByMs(cancelMs, facts);
  return nowMs >= stuckMs ? { do: 'cancel' } : { do: 'wait', untilMs: stuckMs };
}

/** When the removal of a cancelled job is ordered that its host has not ended. */
function removeByMs(cancelMs: number, facts: Facts): number {
  return heard(cancelMs, facts) + JOB_GRACE_MS + LATE_MS;
}

/** When a cancelled job ends although its host is online and has not confirmed the removal, or a file of the job could not be read. */
function cancelByMs(cancelMs: number, facts: Facts): number {
  return removeByMs(cancelMs, facts) + FINE_TUNING_GONE_MS;
}

/** Until when a file is tried that was announced at `createdMs`, or the training file of a job that was created then. */
function readByMs({ created_ms: createdMs }: { created_ms: number }, facts: Facts): number {
  const byMs = heard(createdMs, facts) + READ_MS_MAX;
  return facts.job.cancel_ms === null ? byMs : Math.min(byMs, cancelByMs(facts.job.cancel_ms, facts));
}

function planQueued(job: Job, nowMs: number): Step {
  const used = job.tried_machine_ids.length;
  if (used >= FINE_TUNING_ATTEMPTS_MAX)
    return failed('operation_failed', `${used} machines were tried, and none of them has finished the job.`);
  if (nowMs < job.queued_ms + FINE_TUNING_QUEUE_MS_MAX) return { do: 'place' };
  return failed('no_capacity', 'No machine was free for this job within a day.');
}

/** The begin of a time limit for the host. The host could report nothing while the control plane was away, so an earlier limit begins again then. */
function heard(fromMs: number, { quiet }: Facts): number {
  return Math.max(fromMs, quiet.fromMs);
}

function planStart(facts: Facts, attempt: Attempt, nowMs: number): Step {
  const { observed } = facts;
  if (observed !== null && observed !== 'gone' && RUNS.has(observed.phase)) return { do: 'start' };
  if (observed !== null && hasLeft(observed)) return leave('the job vanished from the host');
  if (observed !== null && observed !== 'gone' && observed.phase === 'failed') return leaveFailed(observed);
  const offline = planOffline(facts, attempt, nowMs);
  if (offline !== undefined) return offline;
  const deadlineMs =
    heard(attempt.created_ms, facts) + (observed === null ? ACKNOWLEDGE_MS_MAX : FINE_TUNING_START_MS_MAX);
  return nowMs >= deadlineMs ? leave('the host did not start the job in time') : { do: 'wait', untilMs: deadlineMs };
}

function planRunning(facts: Facts, attempt: Attempt, nowMs: number): Step {
  const { observed } = facts;
  if (observed !== null && hasLeft(observed)) return leave('the job vanished from the host');
  if (observed !== null && observed !== 'gone') {
    if (observed.phase === 'failed') return leaveFailed(observed);
    if (observed.phase === 'finished') return planFinished(facts, observed, nowMs);
    if (attempt.stopped_ms !== null && nowMs >= filesByMs(attempt.stopped_ms, facts))
      return leave('the host did not send the files of the job in time');
  }
  const offline = planOffline(facts, attempt, nowMs);
  if (offline !== undefined) return offline;
  const lateMs = heard((attempt.started_ms ?? nowMs) + attempt.run_ms_max + JOB_GRACE_MS, facts) + LATE_MS;
  if (attempt.stopped_ms === null && nowMs >= lateMs) return { do: 'exhaust' };
  const finishMs = attempt.stopped_ms === null ? lateMs : filesByMs(attempt.stopped_ms, facts);
  return { do: 'wait', untilMs: finishMs };
}

/** When the files must be here. The time counts from the report of the end, which may come long after the end. */
function filesByMs(stoppedMs: number, facts: Facts): number {
  return heard(Math.max(stoppedMs, facts.endedMs ?? 0), facts) + FINE_TUNING_FINISH_MS_MAX;
}

/** The next step after the program has ended and the host has sent its files. A report of the host counts only if its files are verified. */
function planFinished(facts: Facts, { job: report }: ObservedWorkload, nowMs: number): Step {
  const { attempt, files } = facts;
  const results = files.filter((file) => file.kind === 'result' && file.workload_id === attempt?.id);
  const isWrong = results.some(({ state }) => state === 'wrong');
  const named = report?.results ?? [];
  const isHere = named.every(({ name }) => results.some((file) => file.name === name && file.state === 'verified'));
  const untilMs = filesByMs(attempt?.stopped_ms ?? nowMs, facts);
  const isLate = nowMs >= untilMs;
  if (!isHere && !isWrong && !isLate) return { do: 'wait', untilMs };
  if (report?.stopped_at_limit === true)
    return wasInTime(facts) ? { do: 'exhaust' } : leave('its host stopped it too early');
  const code = report?.exit_code ?? 255;
  if (KILLED_CODES.has(code)) return leave('the program was killed on its host');
  if (code !== 0) return failed('training_failed', `The trainer ended with code ${code}.`);
  if (isWrong)
    return failed('result_invalid', 'A file of the result has not the size and hash that the trainer has given.');
  if (named.length === 0)
    return failed(
      'training_failed',
      `The trainer left no result that can be used: ${report?.detail ?? 'no reason was given'}.`,
    );
  if (isHere) return { do: 'succeed' };
  const isUnread = results.some(({ state }) => state === 'uploaded');
  return failed('result_invalid', isUnread ? RESULT_UNREAD : 'The host did not send the files of the result.');
}

/**
 * True if the host has let the program run to its limit, measured by our clock. The host's clock starts a little earlier or later, which
 * JOB_GRACE_MS allows for. If the program may have started while this control plane was away, the run time that the host reports counts too, up to
 * the time since the placement. In every other case, a host could stop a program early and be believed.
 */
function wasInTime({ attempt, observed, quiet }: Facts): boolean {
  if (attempt?.started_ms == null || attempt.stopped_ms === null) return false;
  const { created_ms: createdMs, started_ms: startedMs, stopped_ms: stoppedMs } = attempt;
  const limitMs = attempt.run_ms_max - JOB_GRACE_MS;
  if (stoppedMs - startedMs >= limitMs) return true;
  const isSeenLate = createdMs < quiet.fromMs && quiet.fromMs <= startedMs && startedMs <= quiet.untilMs;
  return isSeenLate && Math.min(ranMsOf(observed) ?? 0, stoppedMs - createdMs) >= limitMs;
}

/** The next step of a job whose machine has no link, or has it again. Undefined while the machine is online. */
function planOffline(facts: Facts, { offline_since_ms: sinceMs }: Attempt, nowMs: number): Step | undefined {
  if (facts.isOnline) return sinceMs === null ? undefined : { do: 'note-offline', isOffline: false };
  if (sinceMs === null) return { do: 'note-offline', isOffline: true };
  const lostMs = heard(sinceMs, facts) + FINE_TUNING_LOST_MS;
  return nowMs >= lostMs ? leave('its machine is away') : { do: 'wait', untilMs: lostMs };
}

const RUNS = new Set<ObservedWorkload['phase']>(['running', 'finishing', 'finished']);
const LEFT = new Set<ObservedWorkload['phase']>(['stopped', 'removed', 'missing']);

function hasLeft(observed: Facts['observed']): boolean {
  return observed === 'gone' || (observed !== null && LEFT.has(observed.phase));
}

function leave(because: string): Step {
  return { do: 'leave', because };
}

function leaveFailed({ failure_code: code, detail }: ObservedWorkload): Step {
  return { do: 'leave', because: FAILURE_WORDS[code ?? 'start_failed'], detail };
}

function failed(code: ErrorCode, message: string): Step {
  return { do: 'fail', code, message };
}

const RESULT_UNREAD = 'The files of the result could not be read within a day.';
const UNREADABLE = failed(
  'operation_failed',
  'The training file could not be read within a day, so nothing was trained. Upload it again, or create the job again later.',
);
