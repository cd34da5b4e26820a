// Keeps what customers see of the reliability of machines in the rows of their offerings. The list of offerings is what is read most, so it must not
// compute these numbers.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { int, text } from '../../base/db/columns.ts';
import { type Db, join, type Query, sql } from '../../base/db/db.ts';
import { shownReliabilityOf } from './reliability.ts';

/** Number of machines that are read together, in some milliseconds. */
const PAGE = 100;

const ShownRow = z.object({
  machine_id: text,
  uptime_bps: int.nullable(),
  failed_launch_share_bps: int.nullable(),
});
type ShownRow = z.infer<typeof ShownRow>;

/** Computes the numbers of all machines with offerings anew, page by page, and stores those that differ. Ends early if the signal aborts. */
export async function keepUptimes({ db, clock }: { db: Db; clock: Clock }, signal: AbortSignal): Promise<void> {
  for (let afterId = ''; !signal.aborted;) {
    const rows = await pageAfter(db.read, afterId);
    const last = rows.at(-1);
    if (last === undefined) return;
    await store(db, await changedOf(db.read, rows, clock.now()));
    afterId = last.machine_id;
    // A large fleet has many pages, and requests are answered in between.
    await clock.nextTurn();
  }
}

/** All offerings of the next machines, listed or not, in the order of machines. */
function pageAfter(query: Query, afterId: string): Promise<ShownRow[]> {
  return query.all(
    ShownRow,
    sql`select machine_id, uptime_bps, failed_launch_share_bps from offerings
        where machine_id in (select distinct machine_id from offerings where machine_id > ${afterId} order by machine_id limit ${PAGE})
        order by machine_id`,
  );
}

/** The numbers of the machines of which an offering has others. */
async function changedOf(query: Query, rows: readonly ShownRow[], nowMs: number): Promise<ShownRow[]> {
  const byMachine = Map.groupBy(rows, (row) => row.machine_id);
  const shown = await shownReliabilityOf(query, [...byMachine.keys()], nowMs);
  return [...shown].flatMap(([machineId, { uptimeBps, failedLaunchShareBps }]) => {
    const now = { machine_id: machineId, uptime_bps: uptimeBps, failed_launch_share_bps: failedLaunchShareBps };
    return byMachine.get(machineId)?.every((row) => isSame(row, now)) === true ? [] : [now];
  });
}

function isSame(a: ShownRow, b: ShownRow): boolean {
  return a.uptime_bps === b.uptime_bps && a.failed_launch_share_bps === b.failed_launch_share_bps;
}

/** Most machines have the same numbers, and share a statement. */
async function store(db: Db, changed: readonly ShownRow[]): Promise<void> {
  if (changed.length === 0) return;
  const alike = Map.groupBy(changed, (row) => `${row.uptime_bps} ${row.failed_launch_share_bps}`);
  await db.tx('supply.uptimes', async (tx) => {
    await tx.lock('machine', ...changed.map((row) => row.machine_id));
    for (const [row, ...others] of alike.values()) {
      if (row === undefined) continue;
      const ids = [row, ...others].map(({ machine_id: id }) => id);
      await tx.run(
        sql`update offerings set uptime_bps = ${row.uptime_bps}, failed_launch_share_bps = ${row.failed_launch_share_bps}
            where machine_id in (${join(ids)})`,
      );
    }
  });
}
