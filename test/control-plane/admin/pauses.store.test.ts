// The switch for emergencies: what operators have paused, who sees it, and what goes on.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { pause } from '../../../control-plane/base/db/pauses.ts';
import { pageOfPayouts } from '../../../control-plane/money/payouts/store.ts';
import { brought } from '../../../control-plane/brings.ts';
import { addMeasures, openMetrics } from '../../../control-plane/base/http/metrics.ts';
import { isoTime } from '../../../shared/clock.ts';
import { Overview } from '../../../shared/api/overview.ts';
import { openOperator } from '../../kit/operator.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { earnCents, nameDestination } from '../../kit/payees.ts';
import { LAUNCH, openWorld, openWorldOver, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const admin = (...words: string[]): Promise<string> => runCommand(world, ['admin', ...words]);

async function overview(): Promise<Overview> {
  const { http, ask } = openOperator(world);
  const answer = await ask('GET', '/admin/overview');
  await http.close();
  return Overview.parse(answer);
}

test('while launches are paused, new ones are refused before a registry is asked, and the others go on', async () => {
  await world.machine({ gpus: 3 });
  const who = await world.customer(100_000);
  const running = await world.run(who);
  const accepted = await world.launch(who);
  await admin('pause', 'launches', '--reason', 'The prices of today are wrong.');

  const create = (image: string): Promise<unknown> =>
    world.rooms.instances.create(who, { ...LAUNCH, image }, async () => undefined);
  for (const image of [LAUNCH.image ?? '', 'never/seen:1']) {
    const refused = create(image);
    await expect(refused).rejects.toMatchObject({ code: 'unavailable', details: { retryAfterSeconds: 300 } });
    await expect(refused).rejects.toThrow('The reason: The prices of today are wrong.');
  }
  await world.start(accepted);
  expect((await world.rooms.instances.get(who.orgId, accepted)).instance.status).toBe('running');
  await world.remove(who, running);

  await admin('resume', 'launches');
  await world.launch(who);
});

test('while payouts are paused, none becomes due, is exported or is recorded by hand, and all go on afterwards', async () => {
  const { supplierId, orgId } = await world.machine();
  const { payouts } = world.rooms;
  const never = new AbortController().signal;
  const rows = () => pageOfPayouts(world.db.read, { supplierId, state: undefined }, { count: 9 });
  await nameDestination(world, { supplierId, orgId });
  await earnCents(world, supplierId, 3_000);
  await admin('pause', 'payouts', '--reason', 'a stolen key');
  await payouts.makeDue(never);
  expect(await rows()).toEqual([]);
  await expect(payouts.pay({ supplierId, cents: 100, reference: 'r' })).rejects.toThrow('(a stolen key)');

  await admin('resume', 'payouts');
  await payouts.makeDue(never);
  await admin('pause', 'payouts', '--reason', 'a stolen key');
  const [due] = await rows();
  expect(due && (await payouts.waitsBecause(world.db.read, due))).toContain('(a stolen key)');
  await expect(payouts.exportBatch('b')).rejects.toMatchObject({ code: 'conflict' });
  expect(await rows()).toEqual([due]);

  await admin('resume', 'payouts');
  const [flying] = await payouts.exportBatch('b');
  // What has left already is still entered.
  await admin('pause', 'payouts', '--reason', 'a stolen key');
  expect(await payouts.sent(flying?.id ?? '', '0x1')).toMatchObject({ state: 'paid' });
});

test('a pause during an export leaves the rest due', async () => {
  await world.close();
  const pausing = (db: Db): Db => ({
    ...db,
    tx: async (name, body) => {
      const paused = { what: 'payouts', since_ms: 0, actor: 'a', reason: 'r' } as const;
      if (name === 'payouts.export') await db.tx('test.pause', (tx) => pause(tx, paused));
      return db.tx(name, body);
    },
  });
  ({ world } = await openWorldOver((db) => ({ db: pausing(db) })));
  const { supplierId, orgId } = await world.machine();
  await nameDestination(world, { supplierId, orgId });
  await earnCents(world, supplierId, 3_000);
  await world.rooms.payouts.makeDue(new AbortController().signal);
  expect(await world.rooms.payouts.exportBatch('b')).toEqual([]);
  const rows = await pageOfPayouts(world.db.read, { supplierId, state: undefined }, { count: 9 });
  expect(rows).toMatchObject([{ state: 'due', batch: null }]);
});

test('a second pause keeps its begin and takes the new reason, and the overview shows it', async () => {
  const sinceMs = world.clock.now();
  await admin('pause', 'launches', '--reason', 'an attack');
  await world.clock.advance(60_000);
  expect(await admin('pause', 'launches', '--reason', 'a worse attack')).toContain('a worse attack');
  expect((await overview()).paused).toEqual([
    { what: 'launches', since: isoTime(sinceMs), by: expect.any(String), reason: 'a worse attack' },
  ]);
  expect(await admin('overview')).toMatch(/launches paused +since \S+ +by .*: a worse attack/);

  const metrics = openMetrics();
  addMeasures(metrics.registry, brought(world.brings(), 'measures'));
  const sample = `svc_paused_since_timestamp_seconds{what="launches"} ${sinceMs / 1000}`;
  expect(await metrics.text()).toContain(sample);
  await admin('resume', 'launches');
  expect(await admin('resume', 'launches')).toContain('false');
  expect((await overview()).paused).toEqual([]);
  expect(await metrics.text()).not.toContain(sample);
});
