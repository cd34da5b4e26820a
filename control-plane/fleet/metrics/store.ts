// The SQL of stored figures.
import { z } from 'zod';
import { METRICS_STALE_MS } from '../../../shared/limits.ts';
import { int, json, text } from '../../base/db/columns.ts';
import { join, type Query, type Tx, sql } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';
import { StoredFigures } from './figures.ts';

export interface MinuteRow {
  machine_id: string;
  minute_ms: number;
  samples: number;
  figures: StoredFigures;
}

/**
 * Stores minutes of many machines with one statement. The caller sorts them by machine id, so that two processes lock rows in the same order. If
 * two processes store the same minute (after a restart), the row with more samples is kept.
 */
export async function insertMinutes(tx: Tx, rows: readonly MinuteRow[]): Promise<void> {
  const values = rows.map(
    (row) => sql`(${row.machine_id}, ${row.minute_ms}, ${row.samples}, ${JSON.stringify(row.figures)})`,
  );
  await tx.run(
    sql`insert into metric_minutes (machine_id, minute_ms, samples, figures) values ${join(values)}
        on conflict (machine_id, minute_ms) do update set samples = excluded.samples, figures = excluded.figures
        where metric_minutes.samples < excluded.samples`,
  );
}

export interface NewestRow {
  machine_id: string;
  sampled_ms: number;
  figures: StoredFigures;
}

/** Stores the newest samples. One that is a little older than the stored one changes nothing. One that is much older does: the clock was set back. */
export async function setNewest(tx: Tx, rows: readonly NewestRow[]): Promise<void> {
  const values = rows.map((row) => sql`(${row.machine_id}, ${row.sampled_ms}, ${JSON.stringify(row.figures)})`);
  await tx.run(
    sql`insert into metric_machines (machine_id, sampled_ms, figures) values ${join(values)}
        on conflict (machine_id) do update set sampled_ms = excluded.sampled_ms, figures = excluded.figures
        where metric_machines.sampled_ms < excluded.sampled_ms
          or metric_machines.sampled_ms > excluded.sampled_ms + ${METRICS_STALE_MS}`,
  );
}

export async function setWatched(tx: Tx, machineId: string, untilMs: number): Promise<void> {
  await tx.run(
    sql`insert into metric_machines (machine_id, watched_until_ms) values (${machineId}, ${untilMs})
        on conflict (machine_id) do update set watched_until_ms = excluded.watched_until_ms`,
  );
}

const WatchedRow = z.object({ machine_id: text, watched_until_ms: int });

export async function watchedMachines(query: Query, nowMs: number): Promise<Map<string, number>> {
  const rows = await query.all(
    WatchedRow,
    sql`select machine_id, watched_until_ms from metric_machines where watched_until_ms > ${nowMs}`,
  );
  return new Map(rows.map((row) => [row.machine_id, row.watched_until_ms]));
}

const MachineRow = WatchedRow.extend({ sampled_ms: int, figures: json(StoredFigures).nullable() });
export type MachineFigures = z.infer<typeof MachineRow>;

export async function newestOf(query: Query, machineIds: readonly string[]): Promise<Map<string, MachineFigures>> {
  if (machineIds.length === 0) return new Map();
  const rows = await query.all(
    MachineRow,
    sql`select machine_id, sampled_ms, figures, watched_until_ms from metric_machines where machine_id in (${join([...machineIds])})`,
  );
  return new Map(rows.map((row) => [row.machine_id, row]));
}

/** `figures` is the document as it is stored: its reader parses only what it needs. */
const StoredMinute = z.object({ minute_ms: int, figures: text });
export type StoredMinute = z.infer<typeof StoredMinute>;

/** The newest minutes of a machine, the newest first, from `fromMs` and before `untilMs`. */
export function minutesOf(
  query: Query,
  machineId: string,
  { fromMs, untilMs, limit }: { fromMs: number; untilMs: number; limit: number },
): Promise<StoredMinute[]> {
  return query.all(
    StoredMinute,
    sql`select minute_ms, figures from metric_minutes
        where machine_id = ${machineId} and minute_ms >= ${fromMs} and minute_ms < ${untilMs} order by minute_ms desc limit ${limit}`,
  );
}

/** Deletes at most `limit` minutes that are too old, and returns their number. They are found through the index by age. */
export function forgetMinutes(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from metric_minutes where (machine_id, minute_ms) in (
          select machine_id, minute_ms from metric_minutes where minute_ms <= ${untilMs} order by minute_ms limit ${limit})`,
  );
}

/** Deletes machines that have no recent sample and that nobody looks at. Returns their number. */
export function forgetMachines(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from metric_machines where machine_id in (
          select machine_id from metric_machines where sampled_ms <= ${untilMs} and watched_until_ms <= ${untilMs}
          order by sampled_ms limit ${limit})`,
  );
}
