// A host whose disk was copied and started twice: both are detected, the instance on one of them goes on, and the operator clears it.
import { expect, test } from 'vitest';
import { findMachine } from '../../control-plane/fleet/supply/store.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import type { Disk } from './disk.ts';
import { type Fleet, openFleet } from './fleet.ts';
import type { SimHost } from './host.ts';
import { brokenRules, leftOver } from './rules.ts';

const MINUTE_MS = 60_000;

test('the first link of a copied disk shows that it is a copy, and ends no rental', async () => {
  const { fleet, host } = await openSmallFleet();
  const image = host.disk.copy();
  const id = await rent(fleet);
  expect(await copiedMs(fleet, host)).toBeNull();
  const copy = await startCopy(fleet, host, image);
  expect(await rent(fleet)).toBe('');
  await endCopy(fleet, host, copy);
  await settle(fleet, host, id);
});

test('a copy that is as young as its disk ends no rental before it is found out', async () => {
  const { fleet, host } = await openSmallFleet();
  const id = await rent(fleet);
  // The copy knows the container, which stays with its host, and has the newest clone token.
  const copy = await startCopy(fleet, host, host.disk.copy());
  await endCopy(fleet, host, copy);
  await settle(fleet, host, id);
});

async function openSmallFleet(): Promise<{ fleet: Fleet; host: SimHost }> {
  const fleet = await openFleet(5, { hosts: [2], customers: [10_000] });
  const [host] = fleet.hosts;
  if (host === undefined) throw new Error('there is no host');
  await fleet.clock.advance(5_000);
  return { fleet, host };
}

/** The id of a rental that runs; empty if none was taken. */
async function rent(fleet: Fleet): Promise<string> {
  const [customer] = fleet.customers;
  if (customer === undefined) throw new Error('there is no customer');
  const id = (await fleet.launch(customer, { gpu_count: 1 })) ?? '';
  await fleet.clock.advance(3 * MINUTE_MS);
  return id;
}

async function copiedMs({ plane }: Fleet, { machineId }: SimHost): Promise<number | null | undefined> {
  return (await findMachine(plane.world().db.read, machineId))?.copied_ms;
}

async function startCopy(fleet: Fleet, host: SimHost, image: Disk): Promise<SimHost> {
  const copy = host.copyTo(image);
  for (const one of [host, copy]) one.setCopied(true);
  await copy.startAgent();
  await fleet.clock.advance(2 * MINUTE_MS);
  expect(await copiedMs(fleet, host)).toBeGreaterThan(0);
  return copy;
}

async function endCopy({ clock }: Fleet, host: SimHost, copy: SimHost): Promise<void> {
  copy.cutPower();
  host.setCopied(false);
  await clock.advance(5 * MINUTE_MS);
}

/** The instance goes on. Nothing is left after the operator has cleared the machines. */
async function settle(fleet: Fleet, host: SimHost, id: string): Promise<void> {
  const { clock, plane } = fleet;
  expect((await findInstance(plane.world().db.read, id))?.status).toBe('running');
  expect(await brokenRules(fleet)).toEqual([]);
  await plane.world().rooms.supply.setCopied(host.machineId, false);
  await clock.advance(2 * MINUTE_MS);
  expect(await leftOver(fleet)).toEqual([]);
  plane.kill();
  await plane.world().close();
}
