// What each room adds to the overview of operators, as data: what waits for a decision, which rows are due, and how its model servers are.
import { z } from 'zod';
import type { OverviewServer, OverviewWaiting } from '../../../shared/api/overview.ts';
import { int } from '../db/columns.ts';
import { type Query, type Sql, sql } from '../db/db.ts';

/** Something that waits for an operator. */
export interface Waiting extends Pick<OverviewWaiting, 'kind' | 'id' | 'what' | 'command'> {
  /** When it began to wait. */
  sinceMs: number;
}

/** Returns the objects of one kind that wait for an operator: the oldest ones, at most `limit`. */
export type Waits = (query: Query, now: { nowMs: number; limit: number }) => Promise<Waiting[]>;

/** A kind of due rows, which a loop or the engine works off. */
export interface DueRows {
  kind: string;
  count(query: Query, nowMs: number): Promise<DueCount>;
  /** The name of the engine's driver for these rows, or a function that counts the rows that were worked off since a time. */
  done: { driver: string } | { since(query: Query, sinceMs: number): Promise<number> };
}

/** The state of the servers of models. */
export type Servers = (query: Query) => Promise<OverviewServer[]> | OverviewServer[];

const DueCount = z.object({ count: int, oldest_ms: int.nullable() });
type DueCount = z.infer<typeof DueCount>;

/** More rows than this are not counted, so that a long queue costs no more than a short one. */
const DUE_COUNTED_MAX = 1_000;

/** Counts the rows of a statement with the column `due_ms`. The column needs an index. */
export async function countDue(query: Query, due: Sql): Promise<DueCount> {
  const found = await query.one(
    DueCount,
    sql`select count(*) as count, min(due_ms) as oldest_ms from (${due} order by due_ms limit ${DUE_COUNTED_MAX}) as due`,
  );
  return found ?? { count: 0, oldest_ms: null };
}
