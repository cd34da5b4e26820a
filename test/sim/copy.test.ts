// A host whose disk was copied and started twice: both are found out, the rental on one of them stays, and the operator ends it.
import { expect, test } from 'vitest';
import { findMachine } from '../../control-plane/fleet/supply/store.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { openFleet } from './fleet.ts';
import { brokenRules, leftOver } from './rules.ts';

const MINUTE_MS = 60_000;

test(
  'a copy of a disk is told from its host at its first link, and takes no rental with it',
  { timeout: 60_000 },
  async () => {
    const fleet = await openFleet(5, { hosts: [2], customers: [10_000] });
    const { clock, plane } = fleet;
    const [[customer], [host]] = [fleet.customers, fleet.hosts];
    if (customer === undefined || host === undefined) throw new Error('nobody is there');
    await clock.advance(5_000);
    const image = host.disk.copy();
    const id = (await fleet.launch(customer, { gpu_count: 1 })) ?? '';
    await clock.advance(3 * MINUTE_MS);
    const copiedMs = async () => (await findMachine(plane.world().db.read, host.machineId))?.copied_ms;
    expect(await copiedMs()).toBeNull();
    const copy = host.copyTo(image);
    for (const one of [host, copy]) one.setCopied(true);
    await copy.startAgent();
    await clock.advance(2 * MINUTE_MS);
    expect(await copiedMs()).toBeGreaterThan(0);
    expect(await fleet.launch(customer, { gpu_count: 1 })).toBeUndefined();
    copy.cutPower();
    host.setCopied(false);
    await clock.advance(5 * MINUTE_MS);
    expect((await findInstance(plane.world().db.read, id))?.status).toBe('running');
    expect(await brokenRules(fleet)).toEqual([]);
    await plane.world().rooms.supply.setCopied(host.machineId, false);
    await clock.advance(2 * MINUTE_MS);
    expect(await leftOver(fleet)).toEqual([]);
    plane.kill();
    await plane.world().close();
  },
);
