// The whole fleet in one process, from a seed: what holds at every step, and that everything comes to its end.
import { expect, test } from 'vitest';
import { live } from './story.ts';
import { TROUBLES } from './troubles.ts';
import { openFleet } from './fleet.ts';
import { QUARANTINE_MS } from './host.ts';
import { brokenRules, journalHash, leftOver } from './rules.ts';

async function rentOnce(seed: number): Promise<{ hash: string; types: string[] }> {
  const fleet = await openFleet(seed, { hosts: [2], customers: [1_000] });
  const { clock, plane } = fleet;
  const [customer] = fleet.customers;
  if (customer === undefined) throw new Error('nobody is there');
  await clock.advance(5_000);
  const id = await fleet.launch(customer, { gpu_count: 1 });
  await clock.advance(120_000);
  expect(await brokenRules(fleet)).toEqual([]);
  expect(await leftOver(fleet)).toEqual([]);
  await fleet.remove(id ?? '');
  await clock.advance(QUARANTINE_MS + 60_000);
  expect(await brokenRules(fleet)).toEqual([]);
  expect(await leftOver(fleet)).toEqual([]);
  const types = await plane.world().journal(id ?? '');
  const hash = await journalHash(fleet);
  plane.kill();
  await plane.world().close();
  return { hash, types };
}

test('a rental goes from its launch to its last trace, the same twice for the same seed', async () => {
  const [one, again, other] = [await rentOnce(1), await rentOnce(1), await rentOnce(2)];
  expect(one.types).toEqual([
    'instance.creating',
    'instance.starting',
    'instance.running',
    // The prepaid amount does not last for a day.
    'instance.balance_low',
    'instance.stopping',
    'instance.terminated',
  ]);
  expect(again.hash).toBe(one.hash);
  expect(other.hash).not.toBe(one.hash);
});

test('the same seed gives the same story, whatever goes wrong in it', async () => {
  const size = { hosts: [2, 1, 2], customers: [1_000_000, 400] };
  const plot = { size, steps: 25, troubles: TROUBLES.map(({ name }) => name) };
  expect((await live(7, plot)).hash).toBe((await live(7, plot)).hash);
});
