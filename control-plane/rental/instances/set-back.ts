// Instances that wait for a time while somebody sets the wall clock back: they start or stop, their GPU is broken, or their program has ended. All
// times that were written before are then in the future: when the row is due, and since when it waits. Without a correction, nothing would happen to
// it until the clock has caught up.
//
// Example: a probe fails at 13:00:00 and is due again at 13:00:01. The clock is set back to 12:00:00. The next look of the engine makes the row due
// at once, and its status counts as begun at 12:00:00. The status of an instance with a broken GPU is running: it keeps its begin, because charges
// count from it. A fault keeps its time too. So the half hour of a fault that was noted at a time that is now in the future ends as much later.
import type { Clock } from '../../../shared/clock.ts';
import { idRow } from '../../base/db/columns.ts';
import { type Db, join, type Sql, sql } from '../../base/db/db.ts';
import type { Driver } from '../../base/operations/engine.ts';
import type { WorkloadRow } from '../../fleet/workloads/store.ts';
import type { Facts } from './plan.ts';
import type { Quiet } from './quiet.ts';
import * as store from './store.ts';

/** Smaller steps delay nothing that anybody notices. */
const SET_BACK_MS_MIN = 500;
/** Number of rows in one transaction. */
const PIECE = 100;

interface DueDeps {
  db: Db;
  clock: Clock;
  quiet: Pick<Quiet, 'fromMs'>;
}

/**
 * Finds due instances. If the clock was set back since the last look, it first corrects the rows that wait. At the first look of a process, a status
 * that begins in the future shows that: the clock was set back meanwhile, or the process before ran on a machine with another time.
 */
export function openDue({ db, clock, quiet }: DueDeps): Driver['due'] {
  let seenMs: number | undefined;
  return async (nowMs, limit) => {
    const lookedMs = clock.now();
    if (seenMs === undefined) await correct(db, sql`entered_ms > ${lookedMs}`, quiet.fromMs - 1);
    else if (lookedMs < seenMs - SET_BACK_MS_MIN)
      await correct(db, sql`(due_ms > ${lookedMs} or entered_ms > ${lookedMs})`, lookedMs);
    seenMs = lookedMs;
    return store.dueInstances(db.read, nowMs, limit);
  };
}

/** Makes the rows due. A status that passes has begun at `enteredMs` at the latest. */
async function correct(db: Db, isLater: Sql, enteredMs: number): Promise<void> {
  const passes = sql`status in ('allocating', 'starting', 'stopping')`;
  const ends = sql`status in ('running', 'unreachable') and main_exit is not null`;
  const waits = sql`(${passes} or (status = 'running' and gpu_fault is not null) or (${ends})) and ${isLater}`;
  const ids = await db.read.all(idRow, sql`select id from instances where ${waits} order by id`);
  for (let from = 0; from < ids.length; from += PIECE) {
    const piece = ids.slice(from, from + PIECE).map(({ id }) => id);
    await db.tx('instances.set_back', async (tx) => {
      await tx.lock('instance', ...piece);
      await tx.run(
        sql`update instances set due_ms = ${enteredMs}, facts_version = facts_version + 1,
              entered_ms = case when ${passes} and entered_ms > ${enteredMs} then ${enteredMs} else entered_ms end
            where id in (${join(piece)}) and ${waits}`,
      );
    });
  }
}

/**
 * Times of a workload, of the last good probe and of the end of the program for the plan. One that is in the future counts as the time at which the
 * status began; the end of a program then counts as long ago.
 */
export function timesOf(
  { entered_ms: enteredMs, last_reachable_ms: reachedMs, main_exit_ms: exitedMs, shown }: store.RentalRow,
  workload: WorkloadRow | undefined,
  nowMs: number,
): Pick<Facts, 'placedMs' | 'startingMs' | 'reachedMs' | 'exitedMs'> {
  const known = (ms: number | null): number | null => (ms !== null && ms > nowMs ? enteredMs : ms);
  return {
    placedMs: known(workload?.created_ms ?? null),
    startingMs: known(workload?.starting_ms ?? null),
    reachedMs: known(reachedMs),
    exitedMs: shown.auto_terminate_on_exit === true ? pastOf(exitedMs, nowMs) : null,
  };
}

function pastOf(ms: number | null, nowMs: number): number | null {
  return ms !== null && ms > nowMs ? 0 : ms;
}
