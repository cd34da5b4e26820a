// Finds the events that were committed since the last poll, for all readers of this process.
//
// On PostgreSQL an event becomes visible when its transaction commits, so an event can appear behind a later one. Each poll therefore reads a
// little of the past again, and some polls read all of the time in which a transaction may still commit. Events that were found before are
// left out. Example: event 7 is seen at once, event 6 commits two seconds later and is found by the next long poll.
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../../base/db/db.ts';
import type { EventRow, Events } from '../../base/events/events.ts';

export interface Tail {
  /** Marks all events that are visible now as found. */
  start(): Promise<void>;
  /** The new events, oldest first. Undefined if there may be more of them: then the readers have to read everything again. */
  poll(): Promise<EventRow[] | undefined>;
}

const SHORT_MS = 1_000;
const LONG_PERIOD_MS = 2_000;
/** Largest number of ids in one poll. On PostgreSQL, a long poll reads 15 seconds, so this is about 1,300 events a second. */
const IDS_MAX = 20_000;
/** Databases limit the parameters of a statement. */
const ROWS_PER_READ = 500;

/**
 * How long after its creation time an event may still become visible. The time is short on SQLite, which commits transactions one after another.
 */
export function lateMs({ dialect }: Pick<Db, 'dialect'>): number {
  return dialect === 'sqlite' ? SHORT_MS : 15_000;
}

interface TailDeps {
  db: Db;
  clock: Clock;
  events: Pick<Events, 'newestSince' | 'byIds'>;
}

export function openTail({ db, clock, events }: TailDeps): Tail {
  const found = new Map<string, number>();
  let newestMs = 0;
  let longAtMs = 0;

  /** Reads a little of the past, or more if a long poll is due. Returns the ids that were not found before, and marks them as found. */
  const findNew = async (): Promise<{ ids: string[]; mayBeMore: boolean }> => {
    const isLong = clock.monotonicMs() - longAtMs >= LONG_PERIOD_MS;
    // If the clock was set back, new events are older than the newest one.
    newestMs = Math.min(newestMs, clock.now());
    const shortFromMs = newestMs - SHORT_MS;
    const longFromMs = clock.now() - lateMs(db);
    const fromMs = isLong ? Math.min(shortFromMs, longFromMs) : shortFromMs;
    if (isLong) longAtMs = clock.monotonicMs();
    // Events that are much later than now were there before the clock was set back.
    const untilMs = clock.now() + lateMs(db);
    const rows = await events.newestSince(db.read, { fromMs, untilMs, limit: IDS_MAX });
    const fresh = rows.filter(({ id }) => !found.has(id));
    for (const { id, created_ms: createdMs } of fresh) {
      found.set(id, createdMs);
      newestMs = Math.max(newestMs, createdMs);
    }
    const nextFromMs = Math.min(newestMs - SHORT_MS, longFromMs);
    for (const [id, createdMs] of found) if (createdMs < nextFromMs) found.delete(id);
    return { ids: fresh.map(({ id }) => id), mayBeMore: rows.length === IDS_MAX };
  };

  return {
    start: async () => {
      found.clear();
      newestMs = clock.now() - lateMs(db) + SHORT_MS;
      longAtMs = clock.monotonicMs();
      await findNew();
    },
    poll: async () => {
      const { ids, mayBeMore } = await findNew();
      if (mayBeMore) return undefined;
      const rows: EventRow[] = [];
      for (let at = ids.length; at > 0; at -= ROWS_PER_READ)
        rows.push(...(await events.byIds(db.read, ids.slice(Math.max(0, at - ROWS_PER_READ), at))));
      return rows;
    },
  };
}
