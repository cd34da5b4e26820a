// Reads stored minutes in pages that take turns, so that the requests of others are served between them.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { openSemaphore } from '../../../shared/semaphore.ts';
import type { Db } from '../../base/db/db.ts';
import { minutesOf, type StoredMinute } from './store.ts';

export interface Span {
  fromMs: number;
  untilMs: number;
}

export interface Pages {
  /**
   * Calls `take` with each minute of a span, the newest first.
   * @throws ServiceError `unavailable` if a page does not get its turn in time
   */
  each(machineId: string, span: Span, take: (minute: StoredMinute) => void): Promise<void>;
}

/** Number of minutes that are read and summed up in one turn of the event loop: a few milliseconds for a machine with eight GPUs. */
const MINUTES_PER_PAGE = 120;
/** Turns in which a request that has just arrived is answered. */
const TURNS_TO_SERVE = 8;
/** How long a page waits for the pages of other reads. If it waits longer, the database does not answer. */
const PAGE_WAIT_MS = 30_000;

export function openPages({ db, clock }: { db: Db; clock: Clock }): Pages {
  /** The pages of all reads take turns. A stranger's request waits for one page, not for one of each read. */
  const turns = openSemaphore(clock, 1);

  /** Resolves as soon as the page is read. The turn of the last page goes on for a while after that. */
  const readPage = (machineId: string, span: Span, take: (minute: StoredMinute) => void): Promise<StoredMinute[]> => {
    const page = Promise.withResolvers<StoredMinute[]>();
    const work = async (): Promise<StoredMinute[]> => {
      const rows = await minutesOf(db.read, machineId, { ...span, limit: MINUTES_PER_PAGE });
      for (const row of rows) take(row);
      await clock.nextTurn();
      page.resolve(rows);
      // After its last page a read makes its answer, which takes as long as many pages. Reads that began together end together, so without a
      // break their answers would be made one after another.
      for (let turn = 0; turn < TURNS_TO_SERVE && isLast(rows); turn += 1) await clock.nextTurn();
      return rows;
    };
    const late = { detail: 'The figures could not be read in time.' };
    const done = turns.run('page', PAGE_WAIT_MS, work).then((rows) => rows ?? fail('unavailable', late));
    done.then(page.resolve, page.reject);
    return page.promise;
  };

  return {
    each: async (machineId, { fromMs, untilMs }, take) => {
      for (let endMs = untilMs; ;) {
        const rows = await readPage(machineId, { fromMs, untilMs: endMs }, take);
        if (isLast(rows)) return;
        endMs = rows.at(-1)?.minute_ms ?? fromMs;
      }
    },
  };
}

function isLast(rows: readonly StoredMinute[]): boolean {
  return rows.length < MINUTES_PER_PAGE;
}
