// Our own outages: a row that says when the control plane was last alive, and the credit for the time in which it was not.
import { z } from 'zod';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { int } from '../../base/db/columns.ts';
import { type Db, type Query, type Tx, sql } from '../../base/db/db.ts';
import type { Metering } from '../../money/metering/metering.ts';
import { findInstance } from '../instances/store.ts';

export const HEARTBEAT_PERIOD_MS = 10_000;
/** A restart takes less; above it, nobody could have reached an instance or ended it. */
export const ABSENCE_MS_MIN = 60_000;

export interface Heartbeat {
  /**
   * Says that we are alive. Where that was last said more than ABSENCE_MS_MIN ago, nobody is charged for the time since, and suppliers
   * are paid for it by us (DESIGN section 7): the process was not there, stood still, or its clock was set. Dies half way and is
   * repeated: the row still tells of the whole absence. Resolves with whether we were away for so long.
   */
  beat(): Promise<boolean>;
}

const BeatRow = z.object({ beat_ms: int });

export function openHeartbeat(deps: {
  db: Db;
  clock: Clock;
  log: Log;
  metering: Pick<Metering, 'excuseAll'>;
}): Heartbeat {
  const { db, clock, log, metering } = deps;
  return {
    beat: async () => {
      const last = await db.read.one(BeatRow, sql`select beat_ms from heartbeats where id = 1`);
      const untilMs = clock.now();
      const wasAway = last !== undefined && untilMs - last.beat_ms > ABSENCE_MS_MIN;
      if (wasAway) {
        const [from, until] = [isoTime(last.beat_ms), isoTime(untilMs)];
        const evidence = `the control plane was away from ${from} to ${until}`;
        const rentals = await metering.excuseAll({ fromMs: last.beat_ms, untilMs, evidence, limitOf });
        log.error({ from, until, rentals }, 'we were away: this time is credited to customers and paid to suppliers');
      }
      await db.tx('edge.heartbeat', (tx) => write(tx, clock.now()));
      return wasAway;
    },
  };
}

async function limitOf(query: Query, instanceId: string): Promise<number | null> {
  return (await findInstance(query, instanceId))?.auto_terminate_ms ?? null;
}

async function write(tx: Tx, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into heartbeats (id, beat_ms) values (1, ${nowMs}) on conflict (id) do update set beat_ms = excluded.beat_ms`,
  );
}
