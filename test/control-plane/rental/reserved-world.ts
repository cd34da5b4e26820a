// A world with a holder of reserved capacity, and what tests do with its contracts.
import { expect } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/offerings.ts';
import type { OperatorView } from '../../../control-plane/rental/reservations/reservations.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import type { NewReservation } from '../../../shared/api/reservation.ts';
import { openWorld, type World } from '../../kit/world.ts';

export const DAY_MS = 24 * 3_600_000;
export const H100 = { gpu_type: 'H100_SXM', region: 'eu-west' };

type Account = Parameters<World['launch']>[0];

export interface ReservedWorld {
  world: World;
  /** Without a cent: reserved capacity is paid for by contract. */
  who: { orgId: string; apiKeyId: string };
  /** The virtual time so far from now. */
  iso(offsetMs: number): string;
  /** Makes one that begins now and lasts 30 days. */
  contract(gpus: number, patch?: Partial<NewReservation>): Promise<string>;
  launch(request?: Partial<CreateInstance>, by?: Account): Promise<string>;
  /** Launches, and waits until it runs. */
  run(request?: Partial<CreateInstance>): Promise<string>;
  end(id: string): Promise<void>;
  /** The holder's first contract, as its page shows it. */
  seen(): Promise<unknown>;
  /** How many GPUs each offering has free. */
  available(): Promise<number[]>;
  /** Proves the books. */
  close(): Promise<void>;
}

export async function openReservedWorld(): Promise<ReservedWorld> {
  const world = await openWorld();
  const who = { orgId: (await world.rooms.accounts.createOrg('holder')).id, apiKeyId: 'apk_holder' };
  const iso = (offsetMs: number): string => new Date(world.clock.now() + offsetMs).toISOString();
  const launch: ReservedWorld['launch'] = (request = {}, by = who) =>
    world.launch(by, { tier: 'reserved', ...request });
  return {
    world,
    who,
    iso,
    contract: async (gpus, patch = {}) => {
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
    },
    launch,
    run: async (request = {}) => {
      const id = await launch(request);
      await world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
      await world.drive();
      return id;
    },
    end: async (id) => {
      await world.rooms.instances.remove(who, id, async () => undefined);
      await world.observe(id, { phase: 'removed' });
      await world.drive();
    },
    seen: async () => (await world.rooms.reservations.ofOrg(who.orgId))[0],
    available: async () =>
      (await listedOfferings(world.db.read, sql`1 = 1`, 10)).map((row) => row.gpu_free).toSorted((a, b) => a - b),
    close: async () => {
      await world.verify();
      await world.close();
    },
  };
}

/** What a refused launch or contract rejects with. */
export function refusal(code: string, detail: RegExp): object {
  return { code, details: expect.objectContaining({ detail: expect.stringMatching(detail) }) };
}

/** Over all machines of a contract. */
export function totals({ slots }: OperatorView): { slots: number; inUse: number; free: number } {
  return {
    slots: slots.reduce((sum, machine) => sum + machine.slots, 0),
    inUse: slots.reduce((sum, machine) => sum + machine.in_use, 0),
    free: slots.reduce((sum, machine) => sum + machine.free, 0),
  };
}
