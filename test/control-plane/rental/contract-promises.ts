// The invariants of contracts: slots, states, and what the organisation sees.
import { z } from 'zod';
import { int, text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { standing } from '../../../control-plane/rental/reservations/term.ts';
import { mayMove, RESERVATION_STATES, type ReservationState } from '../../../shared/states.ts';
import type { World } from '../../kit/world.ts';

/** A sentence for each promise that is broken now. */
export async function brokenContracts(world: World): Promise<string[]> {
  const broken: string[] = [];
  for (const { contract, slots, awaited } of await world.rooms.reservations.list({ count: 1_000 })) {
    const had = slots.reduce((sum, machine) => sum + machine.slots, 0);
    const committed = contract.commitment.reduce((sum, entry) => sum + entry.gpu_count, 0);
    const isOver = RESERVATION_STATES[contract.status].length === 0;
    const isClaimed = contract.claimed_ms !== null && !isOver;
    if (had + awaited !== (isClaimed ? committed : 0)) {
      broken.push(`${contract.status} with ${had} and ${awaited} awaited of ${committed} slots`);
    }
    if (contract.status === 'active' && !isClaimed) broken.push('active, and its GPUs were never set aside');
    const views = await world.rooms.reservations.ofOrg(contract.org_id);
    const view = views.find((shown) => shown.reservation_id === contract.id);
    // The view shows the new status before the engine has written it.
    const { status } = standing(contract, world.clock.now());
    if (view?.status !== status) broken.push(`shown as ${view?.status}, stands at ${status}`);
    if ((view?.utilization.pct ?? 2) > 1) broken.push('used beyond what is committed');
    const path = (await world.journal(contract.id)).flatMap((type) => statusOf(type) ?? []);
    const strays = path.filter((to, i) => i > 0 && !mayMove(RESERVATION_STATES, path[i - 1] ?? to, to));
    if (strays.length > 0 || path.at(-1) !== contract.status) broken.push(`path ${path.join(', ')}`);
  }
  return [...broken, ...(await misusedSlots(world)), ...(await wrongOffers(world)), ...(await missedGpus(world))];
}

/** Undefined for an event that is no move. */
function statusOf(type: string): ReservationState | undefined {
  return (Object.keys(RESERVATION_STATES) as ReservationState[]).find((status) => type === `reservation.${status}`);
}

const HeldRow = z.object({ reserved_by: text.nullable(), tier: text.nullable(), reservation_id: text.nullable() });

/**
 * A slot is held by launches under its contract, and until the contract begins by those that end by themselves. If nothing has run since their
 * end, they hold it still. Launches under a contract hold nothing else while it has its slots.
 */
async function misusedSlots({ db, clock }: World): Promise<string[]> {
  const isBorrowed = sql`i.reservation_id is null and i.request like '%auto_terminate_hours%'
    and (g.reserved_from_ms > ${clock.now()} or i.auto_terminate_ms <= ${clock.now()} or i.status not in ('allocating', 'starting', 'running', 'unreachable'))`;
  const rows = await db.read.all(
    HeldRow,
    sql`select g.reserved_by, i.tier, i.reservation_id
        from machine_gpus g
          left join workloads w on w.id = g.held_by
          left join instances i on i.id = w.instance_id
          left join reservations r on r.id = i.reservation_id
        where g.held_by is not null
          and (g.reserved_by <> coalesce(i.reservation_id, '') and not (${isBorrowed})
            or g.reserved_by is null and r.status not in ('expired', 'cancelled'))`,
  );
  return rows.map(
    (row) =>
      `a ${row.tier} instance under ${row.reservation_id ?? 'no contract'} holds a slot of ${row.reserved_by ?? 'none'}`,
  );
}

const MissedRow = z.object({ reserved_by: text, offering_id: text });

/** What is free goes to the contracts that wait for it, before anybody can launch on it. */
async function missedGpus({ db }: World): Promise<string[]> {
  const rows = await db.read.all(
    MissedRow,
    sql`select w.reserved_by, o.id as offering_id
        from slot_wants w join offerings o on o.gpu_type = w.gpu_type and o.region = w.region
        where o.listed = 1 and o.tier = 'on_demand' and o.gpu_free > 0`,
  );
  return rows.map((row) => `${row.reserved_by} waits for GPUs, but ${row.offering_id} has free ones`);
}

const FreeRow = z.object({ id: text, offered: int, free: int });

/** What is on offer is what nobody holds and nobody has set aside. */
async function wrongOffers({ db }: World): Promise<string[]> {
  const rows = await db.read.all(
    FreeRow,
    sql`select * from (
          select o.id, o.gpu_free as offered,
            (select count(*) from machine_gpus g where g.machine_id = o.machine_id and g.gpu_type = o.gpu_type
               and g.usable = 1 and g.held_by is null and g.reserved_by is null) as free
          from offerings o where o.listed = 1) as counted
        where offered <> free`,
  );
  return rows.map((row) => `${row.offered} GPUs of ${row.id} are offered, ${row.free} are free`);
}
