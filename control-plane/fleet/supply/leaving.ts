// Takes machines off offer at the time that their supplier has set (`rentable_until_ms`). What runs on them goes on. Placement does not wait for
// this: it sends no launch to a machine that the launch would outlast (`staysUntil`).
import type { Clock } from '../../../shared/clock.ts';
import { idRow } from '../../base/db/columns.ts';
import { type Db, type Tx, sql } from '../../base/db/db.ts';
import type { Driver } from '../../base/operations/engine.ts';

export interface Leaving {
  /** Takes the machines off offer whose time has come. */
  leaving: Driver;
}

interface LeavingDeps {
  db: Db;
  clock: Clock;
  /** Updates the offerings of the machine. */
  refresh(tx: Tx, machineId: string): Promise<void>;
}

export function openLeaving({ db, clock, refresh }: LeavingDeps): Leaving {
  return {
    leaving: {
      name: 'rentable_until',
      due: async (nowMs, limit) => {
        const rows = await db.read.all(
          idRow,
          sql`select id from machines where rentable_until_ms <= ${nowMs} and offer_ended = 0 order by rentable_until_ms, id limit ${limit}`,
        );
        return rows.map((row) => row.id);
      },
      drive: (machineId) =>
        db.tx('supply.end_offer', async (tx) => {
          await tx.lock('machine', machineId);
          // The supplier may have set another time meanwhile.
          const ended = await tx.run(
            sql`update machines set offer_ended = 1 where id = ${machineId} and rentable_until_ms <= ${clock.now()} and offer_ended = 0`,
          );
          if (ended === 1) await refresh(tx, machineId);
        }),
    },
  };
}
