// Remembers when the wall clock was set back, so that a reader of events who comes back after that misses nothing.
//
// Events have the time of the wall clock. Example: a reader has got an event of 12:00:50. The clock is set back to 12:00:10, and an event follows.
// At 12:02 the reader comes back and asks for what was after 12:00:50. Its events begin at 12:00:10, where the clock went on.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { int } from '../../base/db/columns.ts';
import { type Db, sql } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';

export interface SetBacks {
  /** Stores whether the clock was set back since the last call. The first call looks at the time when no control plane ran. */
  note(): Promise<void>;
  /** The earliest time of events that were appended after an event of this time. */
  earliestAfter(ms: number): Promise<number>;
}

/** Less than this is not noted, because the two clocks are not read at the same instant. */
export const UNNOTED_MS_MAX = 20;

interface Deps {
  db: Db;
  clock: Clock;
  events: Pick<Events, 'newestSince'>;
}

const ToRow = z.object({ to_ms: int.nullable() });

export function openSetBacks({ db, clock, events }: Deps, lateMs: number): SetBacks {
  const openedMs = clock.now();
  const read = () => ({ wallMs: clock.now(), monotonicMs: clock.monotonicMs() });
  let last = read();
  let isFirst = true;

  const store = (fromMs: number, toMs: number): Promise<unknown> =>
    db.tx('journal.set_back', (tx) =>
      tx.run(
        sql`insert into journal_set_backs (from_ms, to_ms) values (${Math.ceil(fromMs)}, ${Math.floor(toMs)}) on conflict do nothing`,
      ),
    );

  return {
    note: async () => {
      const now = read();
      const passedMs = now.monotonicMs - last.monotonicMs;
      const expectedMs = last.wallMs + passedMs;
      // It happened at any moment since the last call, so the clock may have gone on since then.
      if (now.wallMs <= expectedMs - UNNOTED_MS_MAX) await store(expectedMs, now.wallMs - passedMs);
      if (isFirst) {
        const [newest] = await events.newestSince(db.read, { fromMs: now.wallMs + lateMs + 1, limit: 1 });
        if (newest !== undefined) await store(newest.created_ms, openedMs);
      }
      last = now;
      isFirst = false;
    },
    earliestAfter: async (ms) => {
      let earliestMs = ms;
      for (;;) {
        const row = await db.read.one(
          ToRow,
          sql`select min(to_ms) as to_ms from journal_set_backs where from_ms >= ${earliestMs} and to_ms < ${earliestMs}`,
        );
        if (row === undefined || row.to_ms === null) return earliestMs;
        earliestMs = row.to_ms;
      }
    },
  };
}
