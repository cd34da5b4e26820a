// Writes the history that the overview shows, one row a minute: the links of machines, and the due rows that were worked off. Every control
// plane on the database writes what it did itself. So all of them show the same figures.
import { z } from 'zod';
import { METRICS_KEEP_MS } from '../../shared/limits.ts';
import type { Clock } from '../../shared/clock.ts';
import type { LoopOptions } from '../../shared/loop.ts';
import { int, text } from '../base/db/columns.ts';
import { type Db, join, type Query, sql, type Tx } from '../base/db/db.ts';
import { type Forgets, inPieces, type Piece } from '../base/db/pieces.ts';
import { linkedMachines } from '../fleet/supply/overview.ts';

export const MINUTE_MS = 60_000;
/** Age up to which a row counts as the last minute of its process. A process writes once a minute. */
const LAST_MS = 150_000;

interface Deps {
  db: Db;
  clock: Clock;
  /** Identifies this process among all processes that have run on the database. */
  processId: string;
  /** Rows that the engine of this process drove since its start, by driver. */
  driven(): ReadonlyMap<string, number>;
}

export function minutesLoop({ db, clock, processId, driven }: Deps): LoopOptions {
  const before = new Map<string, number>();
  const run = async (): Promise<void> => {
    const minuteMs = Math.floor(clock.now() / MINUTE_MS) * MINUTE_MS;
    const links = await linkedMachines(db.read);
    await db.tx('admin.minute', (tx) => insertMinute(tx, minuteMs, links));
    const now = [...driven()];
    if (now.length === 0) return;
    const done = now.map(([kind, count]) => ({ kind, done: count - (before.get(kind) ?? 0) }));
    await db.tx('admin.work', (tx) => insertWork(tx, { minuteMs, processId, done }));
    // `before` changes only after the write. If the write fails, its rows are counted in the next minute.
    for (const [kind, count] of now) before.set(kind, count);
  };
  return { name: 'minutes', periodMs: MINUTE_MS, run };
}

export function minutesForgets({ db, clock }: Pick<Deps, 'db' | 'clock'>): Forgets {
  return {
    what: 'minutes',
    run: async (signal) => {
      const untilMs = clock.now() - METRICS_KEEP_MS;
      const links = await inPieces(
        untilMs,
        (piece) => db.tx('admin.forget_minutes', (tx) => forgetMinutes(tx, piece)),
        signal,
      );
      const work = await inPieces(
        untilMs,
        (piece) => db.tx('admin.forget_work', (tx) => forgetWork(tx, piece)),
        signal,
      );
      return links + work;
    },
  };
}

async function insertMinute(tx: Tx, minuteMs: number, links: { listed: number; linked: number }): Promise<void> {
  await tx.run(
    sql`insert into service_minutes (minute_ms, listed, linked) values (${minuteMs}, ${links.listed}, ${links.linked})
        on conflict (minute_ms) do nothing`,
  );
}

interface Work {
  minuteMs: number;
  processId: string;
  done: readonly { kind: string; done: number }[];
}

async function insertWork(tx: Tx, { minuteMs, processId, done }: Work): Promise<void> {
  const rows = done.map((row) => sql`(${minuteMs}, ${row.kind}, ${processId}, ${row.done})`);
  await tx.run(
    sql`insert into work_minutes (minute_ms, kind, process, done) values ${join(rows)}
        on conflict (minute_ms, kind, process) do update set done = work_minutes.done + excluded.done`,
  );
}

const MinuteRow = z.object({ minute_ms: int, listed: int, linked: int });
export type LinkMinute = z.infer<typeof MinuteRow>;

/** The minutes since `sinceMs`, oldest first. */
export function linkMinutes(query: Query, sinceMs: number): Promise<LinkMinute[]> {
  return query.all(
    MinuteRow,
    sql`select minute_ms, listed, linked from service_minutes where minute_ms >= ${sinceMs} order by minute_ms`,
  );
}

const WorkRow = z.object({ kind: text, process: text, done: int });

/**
 * Number of rows that each driver has worked off: the sum of the last minute of each process. If a driver is missing in the map, its number is
 * not known.
 */
export async function workOfLastMinute(query: Query, nowMs: number): Promise<Map<string, number>> {
  const rows = await query.all(
    WorkRow,
    sql`select kind, process, done from work_minutes where minute_ms > ${nowMs - LAST_MS} order by minute_ms`,
  );
  const newest = new Map(rows.map((row) => [JSON.stringify([row.kind, row.process]), row]));
  const sums = new Map<string, number>();
  for (const { kind, done } of newest.values()) sums.set(kind, (sums.get(kind) ?? 0) + done);
  return sums;
}

function forgetMinutes(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from service_minutes where minute_ms in (
          select minute_ms from service_minutes where minute_ms <= ${untilMs} order by minute_ms limit ${limit})`,
  );
}

function forgetWork(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from work_minutes where (minute_ms, kind, process) in (
          select minute_ms, kind, process from work_minutes where minute_ms <= ${untilMs} order by minute_ms limit ${limit})`,
  );
}
