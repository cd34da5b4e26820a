// Counts the probes of each machine by hour. A good probe that follows a good one writes nothing, so counts are collected in memory and added to
// the rows every ten minutes. A process that is killed loses what it has counted since: these numbers inform a supplier and decide nothing.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { int } from '../../base/db/columns.ts';
import { type Db, join, type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';

const HOUR_MS = 3_600_000;
const ROWS_PER_WRITE = 200;
/**
 * A rental is probed about every 30 seconds, and every 2 seconds while it fails. Two equal results that are closer than this count once:
 * otherwise an outage of 10 minutes would count as many probes as 2.5 hours without one.
 */
const SAME_RESULT_MS = 20_000;

const HourRow = z.object({ hour_ms: int, good: int, failed: int });
export type HourRow = z.infer<typeof HourRow>;

interface Counted extends HourRow {
  machine_id: string;
}

export interface ProbeHours {
  /** Counts a probe of a rental that ended now. Must not be called for a probe that failed on our side. */
  count(rental: { id: string; machineId: string }, isGood: boolean): void;
  /** Adds what was counted to the rows, unless that was done less than `everyMs` ago. */
  store(everyMs: number): Promise<void>;
}

export function openProbeHours({ db, clock }: { db: Db; clock: Clock }): ProbeHours {
  const counted = new Map<string, Counted>();
  /** The last counted result of each rental. A result that is no longer recent is removed when the counts are stored. */
  const last = new Map<string, { isGood: boolean; atMs: number }>();
  const isRecent = ({ atMs }: { atMs: number }): boolean => clock.monotonicMs() - atMs < SAME_RESULT_MS;
  let storedMs = clock.monotonicMs();
  const add = ({ machine_id: machineId, hour_ms: hourMs, good, failed }: Counted): void => {
    const key = `${hourMs} ${machineId}`;
    const known = counted.get(key) ?? { machine_id: machineId, hour_ms: hourMs, good: 0, failed: 0 };
    counted.set(key, { ...known, good: known.good + good, failed: known.failed + failed });
  };
  return {
    count: ({ id, machineId }, isGood) => {
      const before = last.get(id);
      if (before?.isGood === isGood && isRecent(before)) return;
      last.set(id, { isGood, atMs: clock.monotonicMs() });
      const hour = { machine_id: machineId, hour_ms: hourOf(clock.now()) };
      add({ ...hour, good: isGood ? 1 : 0, failed: isGood ? 0 : 1 });
    },
    store: async (everyMs) => {
      if (clock.monotonicMs() - storedMs < everyMs) return;
      storedMs = clock.monotonicMs();
      for (const [id, result] of last) if (!isRecent(result)) last.delete(id);
      const rows = [...counted.values()];
      // Cleared before the write, so a probe that ends during the write is counted in the next one.
      counted.clear();
      for (let i = 0; i < rows.length; i += ROWS_PER_WRITE) {
        try {
          await db.tx('outages.probe_hours', (tx) => addHours(tx, rows.slice(i, i + ROWS_PER_WRITE)));
        } catch (error) {
          rows.slice(i).forEach(add);
          throw error;
        }
      }
    },
  };
}

async function addHours(tx: Tx, rows: readonly Counted[]): Promise<void> {
  const values = rows.map((row) => sql`(${row.machine_id}, ${row.hour_ms}, ${row.good}, ${row.failed})`);
  await tx.run(
    sql`insert into probe_hours (machine_id, hour_ms, good, failed) values ${join(values)}
        on conflict (machine_id, hour_ms) do update set good = probe_hours.good + excluded.good, failed = probe_hours.failed + excluded.failed`,
  );
}

/** The hours in which the machine had probes, oldest first, beginning with the hour of `sinceMs`. */
export function hoursOf(query: Query, machineId: string, sinceMs: number): Promise<HourRow[]> {
  return query.all(
    HourRow,
    sql`select hour_ms, good, failed from probe_hours where machine_id = ${machineId} and hour_ms >= ${hourOf(sinceMs)} order by hour_ms`,
  );
}

export function forgetHours(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('outages.forget', (tx) =>
    tx.run(
      sql`delete from probe_hours where (machine_id, hour_ms) in (
            select machine_id, hour_ms from probe_hours where hour_ms <= ${untilMs} order by hour_ms limit ${limit})`,
    ),
  );
}

const hourOf = (ms: number): number => Math.floor(ms / HOUR_MS) * HOUR_MS;
