// The states of a fine-tuning job, and the only function that changes them. The status, the last charge, the hold, the workload and the event
// change together or not at all.
//
// | from       | to         | why                                              | money                        | workload  |
// | validating | queued     | the file is there                                | none                         | none      |
// | queued     | running    | the host reports that the program runs           | priced time begins           | goes on   |
// | running    | queued     | the machine is lost                              | closed at the last checkpoint | removed  |
// | running    | succeeded  | the result is here, with its sizes and hashes    | charged to the program's end | removed   |
// | (open)     | failed     | budget, trainer, result, no machine              | charged to the last checkpoint; the budget's end charges to the program's end | removed |
// | (open)     | cancelled  | its owner, and its host has stopped it           | like the budget's end        | removed   |
// (open) is validating, queued or running. The hold is released by every end.
import type { ErrorCode } from '../../../shared/errors.ts';
import { FINE_TUNING_STATES, type FineTuningState, mayMove } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import { wallet } from '../../money/ledger/accounts.ts';
import type { Attempt } from './attempts.ts';
import type { FineTuningDeps } from './deps.ts';
import { appendEvents, type NewEvent } from './events.ts';
import { chargeThrough, holdId } from './money.ts';
import { type Job, type Patch, setStatus } from './store.ts';

export interface Move {
  to: FineTuningState;
  nowMs: number;
  event: NewEvent;
  /** Charges the present attempt up to this time. If undefined, nothing is charged beyond the last verified checkpoint. */
  chargedThroughMs?: number | undefined;
  error?: { code: ErrorCode; message: string };
  patch?: Patch;
}

export function isOpen({ status }: Pick<Job, 'status'>): boolean {
  return FINE_TUNING_STATES[status].length > 0;
}

/** Moves a job that was read in this transaction. `attempt` is its present one. */
export async function move(
  tx: Tx,
  { job: before, attempt }: { job: Job; attempt: Attempt | undefined },
  { to, nowMs, event, chargedThroughMs, error, patch }: Move,
  deps: FineTuningDeps,
): Promise<void> {
  const from = before.status;
  if (!mayMove(FINE_TUNING_STATES, from, to)) throw new Error(`the job ${before.id} cannot go from ${from} to ${to}`);
  const isEnd = !isOpen({ status: to });
  const mayCharge = attempt !== undefined && chargedThroughMs !== undefined;
  const job = mayCharge ? await chargeThrough(tx, { job: before, attempt }, chargedThroughMs, deps.ledger) : before;
  const moved = await setStatus(
    tx,
    job.id,
    { from, to },
    {
      due_ms: nowMs,
      ...(isEnd ? { finished_ms: nowMs } : {}),
      ...(to === 'queued' ? { queued_ms: nowMs } : {}),
      ...(error === undefined ? {} : { error_code: error.code, error_message: error.message }),
      ...patch,
    },
  );
  if (!moved) throw new Error(`the job ${job.id} is not ${from} any more`);
  const data = { status: to, reason: error?.message ?? null };
  await deps.events.append(tx, { type: `fine_tuning_job.${to}`, subjectId: job.id, orgId: job.org_id, data });
  if (isEnd) await deps.ledger.setHold(tx, holdId(job.id), wallet(job.org_id), 0n);
  const leaves = isEnd || to === 'queued';
  if (leaves && job.workload_id !== null) await deps.workloads.remove(tx, job.workload_id);
  await appendEvents(tx, job, [event], { ids: deps.ids, nowMs });
}

/** The move to `failed`. */
export function failure(code: NonNullable<Move['error']>['code'], message: string): Omit<Move, 'nowMs'> {
  return { to: 'failed', error: { code, message }, event: { level: 'error', message } };
}
