// A world with a holder of reserved capacity, and what tests do with its contracts.
import { afterEach, beforeEach, expect } from 'vitest';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import type { OperatorView } from '../../../control-plane/rental/reservations/reservations.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import type { NewReservation } from '../../../shared/api/reservation.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

export const DAY_MS = 24 * 3_600_000;
export const H100 = { gpu_type: 'H100_SXM', region: 'eu-west' };

export let world: World;
/** The account has no money: reserved capacity is paid for by contract. */
export let who: WorldAccount;

/** Every test of the file gets its own world. After the test, the books of the world are proved. */
export function openReservedWorldForEachTest(): void {
  beforeEach(async () => {
    world = await openWorld();
    who = await world.customer(0);
  });
  afterEach(async () => {
    await world.verify();
    await world.close();
  });
}

/** The virtual time so far from now. */
export function iso(offsetMs: number): string {
  return new Date(world.clock.now() + offsetMs).toISOString();
}

/** Makes one that begins now and lasts 30 days. */
export async function contract(gpus: number, patch: Partial<NewReservation> = {}): Promise<string> {
  const made = await world.rooms.reservations.create({
    org_id: who.orgId,
    title: 'training',
    starts_at: iso(0),
    ends_at: iso(30 * DAY_MS),
    renewal: 'none',
    commitment: [{ ...H100, gpu_count: gpus }],
    ...patch,
  });
  return made.contract.id;
}

export function launch(request: Partial<CreateInstance> = {}, by: WorldAccount = who): Promise<string> {
  return world.launch(by, { tier: 'reserved', ...request });
}

/** Launches, and waits until it runs. */
export function run(request: Partial<CreateInstance> = {}): Promise<string> {
  return world.run(who, { tier: 'reserved', ...request });
}

/** The holder's first contract, as its page shows it. */
export async function seen(): Promise<unknown> {
  return (await world.rooms.reservations.ofOrg(who.orgId))[0];
}

/** How many GPUs each offering has free. */
export async function available(): Promise<number[]> {
  return (await listedOfferings(world.db.read, { count: 10 })).map((row) => row.gpu_free).toSorted((a, b) => a - b);
}

/** What a refused launch or contract rejects with. */
export function refusal(code: string, detail: RegExp): object {
  return { code, details: expect.objectContaining({ detail: expect.stringMatching(detail) }) };
}

/** The totals over all machines of a contract. */
export function totals({ slots }: OperatorView): { slots: number; inUse: number; free: number } {
  return {
    slots: slots.reduce((sum, machine) => sum + machine.slots, 0),
    inUse: slots.reduce((sum, machine) => sum + machine.in_use, 0),
    free: slots.reduce((sum, machine) => sum + machine.free, 0),
  };
}
