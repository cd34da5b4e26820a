// What operators have paused in an emergency. A pause is a row that each transaction reads, so all control planes obey it as soon as it is committed.
import { z } from 'zod';
import { int, text } from './columns.ts';
import { type Query, type Sql, sql, type Tx } from './db.ts';

/** `launches`: no new rental, and no training starts. `payouts`: none becomes due, leaves or is recorded by hand. */
export const PAUSABLE = ['launches', 'payouts'] as const;
export type Pausable = (typeof PAUSABLE)[number];

const PauseRow = z.object({ what: z.enum(PAUSABLE), since_ms: int, actor: text, reason: text });
export type Pause = z.infer<typeof PauseRow>;

/** The reason of a pause as a value of a larger statement; null if nothing is paused. */
export function pausedBecause(what: Pausable): Sql {
  return sql`(select reason from pauses where what = ${what})`;
}

export function pauseOf(query: Query, what: Pausable): Promise<Pause | undefined> {
  return query.one(PauseRow, sql`select what, since_ms, actor, reason from pauses where what = ${what}`);
}

export function allPauses(query: Query): Promise<Pause[]> {
  return query.all(PauseRow, sql`select what, since_ms, actor, reason from pauses order by what`);
}

/** A pause that lasts already keeps its begin, and takes the new reason and its author. */
export async function pause(tx: Tx, { what, since_ms: nowMs, actor, reason }: Pause): Promise<void> {
  await tx.run(
    sql`insert into pauses (what, since_ms, actor, reason) values (${what}, ${nowMs}, ${actor}, ${reason})
        on conflict (what) do update set actor = excluded.actor, reason = excluded.reason`,
  );
}

/** Without a pause, this has no effect. */
export async function resume(tx: Tx, what: Pausable): Promise<void> {
  await tx.run(sql`delete from pauses where what = ${what}`);
}
