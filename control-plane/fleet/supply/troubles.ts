// What is wrong with machines that their suppliers want on the market: they are offline, not on offer, or have broken GPUs.
import { z } from 'zod';
import { flag, int, json, text } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql } from '../../base/db/db.ts';
import { obstacleOf, tierObstacle } from './checks.ts';
import { findMachine } from './store.ts';

const BrokenGpu = z.object({ uuid: text, detail: text });

const StandingRow = z.object({
  id: text,
  org_id: text,
  /** What the supplier calls it. */
  name: text.nullable(),
  online: flag,
  last_heartbeat_ms: int.nullable(),
  /** It is on the market, or still has a rental. */
  serves: flag,
  /** Its supplier wants it on the market, and the operator has approved it. */
  wanted: flag,
  /** Some of its GPUs are on offer or rented from an offer. Never true while it is offline. */
  on_offer: flag,
  broken_gpus: json(z.array(BrokenGpu)),
});
export type MachineStanding = z.infer<typeof StandingRow>;

/** How these machines stand, in the order of ids. */
export function standingOf(query: Query, ids: readonly string[]): Promise<MachineStanding[]> {
  return ids.length === 0 ? Promise.resolve([]) : standings(query, sql`m.id in (${join([...ids])}) order by m.id`);
}

/** Machines that serve and have had no link since `untilMs` or longer. A page, in the order of ids. */
export function offlineMachines(
  query: Query,
  { untilMs, afterId, limit }: { untilMs: number; afterId: string; limit: number },
): Promise<MachineStanding[]> {
  return standings(
    query,
    sql`${SERVES} and m.online = 0 and m.last_heartbeat_ms <= ${untilMs} and m.id > ${afterId} order by m.id limit ${limit}`,
  );
}

/** All machines that have a link. A page, in the order of ids. */
export function onlineMachines(
  query: Query,
  { afterId, limit }: { afterId: string; limit: number },
): Promise<MachineStanding[]> {
  return standings(query, sql`m.online = 1 and m.id > ${afterId} order by m.id limit ${limit}`);
}

/** A text for people: why nothing of the machine is on offer. Undefined if its usable GPUs are on offer. */
export async function offOfferReason(query: Query, machineId: string): Promise<string | undefined> {
  const machine = await findMachine(query, machineId);
  return machine === undefined ? undefined : (obstacleOf(machine) ?? tierObstacle(machine));
}

const SERVES = sql`m.status in ('listed', 'draining')`;

function standings(query: Query, which: Sql): Promise<MachineStanding[]> {
  return query.all(
    StandingRow,
    sql`select m.id, s.org_id, m.name, m.online, m.last_heartbeat_ms, m.broken_gpus, case when ${SERVES} then 1 else 0 end as serves,
          case when m.status in ('listed', 'suspended') and m.offer_ended = 0 then 1 else 0 end as wanted,
          case when exists (select 1 from offerings o where o.machine_id = m.id and o.listed = 1 and o.tier = 'on_demand')
            then 1 else 0 end as on_offer
        from machines m join suppliers s on s.id = m.supplier_id where ${which}`,
  );
}
