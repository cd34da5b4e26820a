// Work on many rows, in which one that fails keeps no other from its turn.
import { throwAll } from '../../../shared/errors.ts';
import { DbError } from './db.ts';

export interface RowFailures {
  /** Waits for the work on a row. `failed` says what was not done. @throws DbError at once: no other row would fare better without the database */
  note(failed: string, work: Promise<unknown>): Promise<void>;
  /** @throws Error what has failed, after all rows had their turn */
  throwAll(): void;
}

export function openRowFailures(): RowFailures {
  const failures: Error[] = [];
  return {
    note: async (failed, work) => {
      try {
        await work;
      } catch (error) {
        if (error instanceof DbError) throw error;
        failures.push(new Error(failed, { cause: error }));
      }
    },
    throwAll: () => throwAll(failures),
  };
}
