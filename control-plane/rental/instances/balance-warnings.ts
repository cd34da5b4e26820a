// Warns the customers of running instances before their balance ends. A column of the instance stores the warning. So a customer gets one warning
// each time the balance falls below a threshold, even after a restart and with several control planes. An instance that begins to run later is
// warned about too.
import { z } from 'zod';
import { int, text } from '../../base/db/columns.ts';
import { type Db, join, type Query, sql } from '../../base/db/db.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import type { Events } from '../../base/events/events.ts';

export interface BalanceWarningsDeps {
  db: Db;
  events: Events;
  /**
   * The smallest warning threshold, in hours, that is above the time for which the balance lasts at the present rate. Null if the balance is
   * enough.
   */
  balanceBelowHours(query: Query, orgId: string): Promise<number | null>;
}

/** Number of instances that one statement reads. */
const PAGE = 500;

/** The text for the customer. It names the threshold and not the time left, so that it changes only if a threshold is crossed. */
export function balanceReason(belowHours: number): string {
  return `The balance ends in less than ${belowHours} h at the present rate. Add funds, or the instance is stopped when it ends.`;
}

/**
 * Looks at the organisations of all running instances once. One that fails keeps no other one from its warning.
 * @throws what has failed, at the end; DbError at once
 */
export async function warnOfBalances(signal: AbortSignal, deps: BalanceWarningsDeps): Promise<void> {
  const failures = openRowFailures();
  for (let after: Place | undefined = { created_ms: 0, id: '' }; after !== undefined && !signal.aborted;) {
    const page: Running[] = await runningAfter(deps.db.read, after);
    for (const [orgId, running] of Map.groupBy(page, ({ org_id: id }) => id))
      await failures.note(
        `the organisation ${orgId} could not be warned of its balance`,
        warnIfLow(orgId, running, deps),
      );
    after = page.length < PAGE ? undefined : page.at(-1);
  }
  failures.throwAll();
}

async function warnIfLow(orgId: string, running: readonly Running[], deps: BalanceWarningsDeps): Promise<void> {
  const { db, balanceBelowHours } = deps;
  const below = await db.snapshot('instances.balance', (query) => balanceBelowHours(query, orgId));
  const stale = running.filter((row) => row.balance_below_hours !== below);
  if (stale.length > 0) await warn(orgId, stale, deps);
}

const RunningRow = z.object({ id: text, org_id: text, created_ms: int, balance_below_hours: int.nullable() });
type Running = z.infer<typeof RunningRow>;
const RUNNING = sql`id, org_id, created_ms, balance_below_hours`;
type Place = Pick<Running, 'created_ms' | 'id'>;

/** An instance under a contract costs nothing by itself, and does not stop when the balance ends. */
const IS_CHARGED = sql`price_ucents_per_hour > 0`;

/** A page, oldest first. Its first two conditions have it read along the index `instances_by_status`, which has none that is terminated. */
function runningAfter(query: Query, after: Place): Promise<Running[]> {
  return query.all(
    RunningRow,
    sql`select ${RUNNING} from instances
        where status = 'running' and status <> 'terminated' and (created_ms, id) > (${after.created_ms}, ${after.id}) and ${IS_CHARGED}
        order by created_ms, id limit ${PAGE}`,
  );
}

/** Reads everything again under the lock: another control plane may have warned, or money may have come. */
async function warn(orgId: string, stale: readonly Running[], deps: BalanceWarningsDeps): Promise<void> {
  const { db, events, balanceBelowHours } = deps;
  const ids = stale.map(({ id }) => id);
  await db.tx('instances.warn', async (tx) => {
    await tx.lock('org', orgId);
    await tx.lock('instance', ...ids);
    const below = await balanceBelowHours(tx, orgId);
    const rows = await tx.all(
      RunningRow,
      sql`select ${RUNNING} from instances where id in (${join(ids)}) and status = 'running' order by id`,
    );
    for (const { id, balance_below_hours: before } of rows) {
      if (before === below) continue;
      await tx.run(sql`update instances set balance_below_hours = ${below} where id = ${id}`);
      // The customer has added money: the warning ends, or a higher threshold replaces a lower one. Nobody is notified about that.
      if (below === null || (before !== null && before < below)) continue;
      const data = { status: 'running', reason: balanceReason(below), below_hours: below };
      await events.append(tx, { type: 'instance.balance_low', subjectId: id, orgId, data });
    }
  });
}
