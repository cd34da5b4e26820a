// Counts of what somebody may do a number of times in a window of time, in rows of the database, so that all control planes count together.
import { raw, sql, type Tx } from './db.ts';

/** A table of counts and the names of its columns. It also has `began_ms`: when the window of a row began, with the first thing that was counted. */
export interface WindowCounts {
  table: string;
  /** The primary key: whose things are counted. */
  id: string;
  count: string;
  windowMs: number;
}

/** Counts one thing. False if `most` things were counted in the window already. It is one statement, so no two things pass together. */
export async function isCounted(
  tx: Tx,
  { table, id, count, windowMs }: WindowCounts,
  { of, most, nowMs }: { of: string; most: number; nowMs: number },
): Promise<boolean> {
  const counted = raw(`${table}.${count}`);
  const beganMs = raw(`${table}.began_ms`);
  const isOver = sql`${beganMs} <= ${nowMs - windowMs}`;
  const changed = await tx.run(
    sql`insert into ${raw(table)} (${raw(`${id}, ${count}`)}, began_ms) values (${of}, 1, ${nowMs})
        on conflict (${raw(id)}) do update set
          ${raw(count)} = case when ${isOver} then 1 else ${counted} + 1 end,
          began_ms = case when ${isOver} then excluded.began_ms else ${beganMs} end
        where ${isOver} or ${counted} < ${most}`,
  );
  return changed === 1;
}
