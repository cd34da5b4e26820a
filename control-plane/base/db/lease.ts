// Leases: who may do something alone, with an epoch that grows at every change of holder. Time comes from the caller's clock.
import { z } from 'zod';
import { type Db, sql } from './db.ts';
import { int } from './columns.ts';

const LeaseRow = z.object({ epoch: int });

export interface LeaseRequest {
  name: string;
  /** Unique to this process start. */
  holder: string;
  nowMs: number;
  untilMs: number;
  /** Take it even from a live holder: right only where something else (the SQLite lock file) proves that it is dead. */
  force: boolean;
}

/** The lease's epoch where we hold it now (taken, renewed or inherited after expiry), undefined where somebody else does. */
export async function holdLease(db: Db, request: LeaseRequest): Promise<number | undefined> {
  const { name, holder, nowMs, untilMs, force } = request;
  return db.tx('lease.hold', async (tx) => {
    const row = await tx.one(
      LeaseRow,
      sql`insert into leases (name, holder, epoch, until_ms) values (${name}, ${holder}, 1, ${untilMs})
          on conflict (name) do update set
            epoch = case when leases.holder = excluded.holder then leases.epoch else leases.epoch + 1 end,
            holder = excluded.holder, until_ms = excluded.until_ms
          where leases.holder = excluded.holder or leases.until_ms <= ${nowMs} or ${force ? 1 : 0} = 1
          returning epoch`,
    );
    return row?.epoch;
  });
}

/** Lets the next process start at once. */
export async function releaseLease(db: Db, name: string, holder: string): Promise<void> {
  await db.tx('lease.release', (tx) =>
    tx.run(sql`update leases set until_ms = 0 where name = ${name} and holder = ${holder}`),
  );
}
