// What bounds the launches of an organisation now, read in one statement, because each launch reads it.
import { z } from 'zod';
import { flag, int, text } from '../../base/db/columns.ts';
import { pausedBecause } from '../../base/db/pauses.ts';
import { type Query, type Sql, sql } from '../../base/db/db.ts';
import { isLivingPrincipal } from '../../base/users/sessions.ts';
import { launchesOf } from './unpaid-holds.ts';

const StandingRow = z.object({
  may_act: flag,
  paused_because: text.nullable(),
  open_launches: int,
  unpaid_gpu_ms: int,
});

export interface Standing {
  /** False if the API key or the session of the caller was ended a moment ago. */
  mayAct: boolean;
  /** Why operators have paused all launches; null if they have not. */
  pausedBecause: string | null;
  /** Launches that are accepted and do not run yet. */
  openLaunches: number;
  /** GPU milliseconds that launches of the last 24 hours held without paying. */
  unpaidGpuMs: number;
}

export async function standingOf(
  query: Query,
  { orgId, principalId }: { orgId: string; principalId: string },
  nowMs: number,
): Promise<Standing> {
  const row = await query.one(StandingRow, standing(orgId, { mayAct: isLivingPrincipal(principalId, nowMs), nowMs }));
  if (row === undefined) throw new Error('a select of expressions returned no row');
  return {
    mayAct: row.may_act,
    pausedBecause: row.paused_because,
    openLaunches: row.open_launches,
    unpaidGpuMs: row.unpaid_gpu_ms,
  };
}

const LaunchesRow = StandingRow.pick({ open_launches: true, unpaid_gpu_ms: true });

/** GPU milliseconds that launches of the organisation held without paying in the last 24 hours. */
export async function unpaidLaunchesMs(query: Query, orgId: string, nowMs: number): Promise<number> {
  const row = await query.one(LaunchesRow, launchesOf(orgId, nowMs));
  return row?.unpaid_gpu_ms ?? 0;
}

function standing(orgId: string, { mayAct, nowMs }: { mayAct: Sql; nowMs: number }): Sql {
  return sql`select case when ${mayAct} then 1 else 0 end as may_act,
      ${pausedBecause('launches')} as paused_because, open_launches, unpaid_gpu_ms
    from (${launchesOf(orgId, nowMs)}) as launches`;
}
