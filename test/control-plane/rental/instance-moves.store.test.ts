// A move of an instance that another transaction has moved meanwhile does nothing, and says so. A delete that is asked again is the same one.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findInstance, type InstanceRow } from '../../../control-plane/rental/instances/store.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

let world: World;
let who: WorldAccount;
let id: string;
beforeEach(async () => {
  world = await openWorld();
  await world.machine();
  who = await world.customer(100_000);
  id = await world.run(who);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function seen(): Promise<InstanceRow> {
  const row = await findInstance(world.db.read, id);
  if (row === undefined) throw new Error('the instance is gone');
  return row;
}
type Verdict = (tx: Parameters<Parameters<World['db']['tx']>[1]>[0], row: InstanceRow) => Promise<boolean>;
const carryOut = (row: InstanceRow, verdict: Verdict): Promise<boolean> =>
  world.db.tx('verdict', async (tx) => {
    await world.rooms.instances.lock(tx, row);
    return verdict(tx, row);
  });

test('an outage is confirmed once, and ended once, by whoever is first', async () => {
  const { instances } = world.rooms;
  const running = await seen();
  await world.clock.advance(60_000);
  const outage = { sinceMs: world.clock.now() - 30_000, evidence: 'probes' };
  const confirm: Verdict = (tx, row) => instances.confirmOutage(tx, row, outage);
  expect([await carryOut(running, confirm), await carryOut(running, confirm)]).toEqual([true, false]);
  const unreachable = await seen();
  const end: Verdict = (tx, row) => instances.endOutage(tx, row, world.clock.now());
  expect([await carryOut(unreachable, end), await carryOut(unreachable, end)]).toEqual([true, false]);
  expect((await world.journal(id)).slice(-2)).toEqual(['instance.unreachable', 'instance.recovered']);
});

test('an instance that its customer has deleted is not given up any more', async () => {
  const running = await seen();
  await world.end(who, id);
  const giveUp: Verdict = (tx, row) => world.rooms.instances.giveUp(tx, row, 'too late');
  expect(await carryOut(running, giveUp)).toBe(false);
  expect(await seen()).toMatchObject({ status: 'terminated', status_reason: null });
  expect((await world.journal(id)).filter((type) => type === 'instance.failed')).toEqual([]);
});

test('what an instance showed while it ran is no reason for its end, and what a host showed is none for the next host', async () => {
  const exited = { host_key: 'ssh-ed25519 AAAA', main_exit: { code: 1, signal: null } };
  await world.observe(id, { phase: 'running', ...exited });
  expect(await seen()).toMatchObject({ status: 'running', status_reason: 'main process exited with code 1' });
  await world.remove(who, id);
  expect(await seen()).toMatchObject({ status: 'stopping', status_reason: null });
  await world.observe(id, { phase: 'removed' });
  await world.drive();
  expect(await seen()).toMatchObject({ status: 'terminated', status_reason: null });
  id = await world.launch(who);
  await world.machine();
  world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
  await world.observe(id, { phase: 'running', ...exited });
  await world.drive();
  await world.observe(id, { phase: 'missing', ...exited });
  await world.drive();
  expect(await seen()).toMatchObject({ status: 'allocating', status_reason: null });
});

test('a delete that is asked again is the same operation for its caller, and another one for others', async () => {
  const operations: string[] = [];
  const ask = (principalId: string): Promise<unknown> =>
    world.rooms.instances.remove({ ...who, principalId }, id, async (_tx, operation) => {
      operations.push(operation.id);
    });
  for (const principalId of [who.principalId, who.principalId, 'another', 'another']) await ask(principalId);
  const [own, again, other, otherAgain] = operations;
  expect([again, otherAgain]).toEqual([own, other]);
  expect(other).not.toBe(own);
});
