// People are mailed when their instances have an outage, and when these are back or have ended.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { gpusOf } from '../../../../control-plane/fleet/supply/store.ts';
import { GATHER_MS, SPAN_MS } from '../../../../control-plane/rental/notices/limits.ts';
import { QUIET_AFTER_START_MS } from '../../../../control-plane/rental/instances/quiet.ts';
import { findInstance } from '../../../../control-plane/rental/instances/store.ts';
import { GRACE_MS } from '../../../../shared/limits.ts';
import type { MadeMachine } from '../../../kit/machines.ts';
import { watchFor } from '../../../kit/watching.ts';
import type { KeyAccount } from '../../../kit/world.ts';
import { type Mailed, openMailed } from './mailed.ts';

const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let mailed: Mailed;
let who: KeyAccount;
let machine: MadeMachine;
beforeEach(async () => {
  mailed = await openMailed();
  who = await mailed.world.customer(10_000);
  machine = await mailed.world.machine({ gpus: 4, dollars: 3.6 });
});
afterEach(async () => {
  await mailed.world.verify();
  await mailed.world.close();
});

const watch = (ms: number): Promise<void> => watchFor(mailed.world, ms);

test('one mail tells of all instances that cannot be reached, and the next one that they are back', async () => {
  const { world, sent } = mailed;
  const [first, second] = [await world.run(who, { name: 'train' }), await world.run(who)];
  const owner = await mailed.person(who.orgId, 'owner');
  await mailed.person(who.orgId, 'billing');
  await watch(QUIET_AFTER_START_MS);
  for (const id of [first, second]) world.probeAnswers.set(id, DEAD);
  await watch(60_000);
  await mailed.gather();
  expect(sent.map(({ to, subject }) => ({ to, subject }))).toEqual([
    { to: owner.email, subject: 'An outage of your instances (api.example.com)' },
  ]);
  const text = sent[0]?.text ?? '';
  const sinceMs = (await world.sinceMs(first, 'instance.unreachable')) ?? 0;
  const since = new Date(sinceMs).toISOString().slice(0, 19).replace('T', ' ');
  expect(text).toContain(`${first} ("train") cannot be reached. It is not charged since ${since} UTC.`);
  expect(text).toContain(`${second} cannot be reached.`);
  expect(text).toContain('https://api.example.com/console/instances');
  for (const id of [first, second]) world.probeAnswers.delete(id);
  await watch(12_000);
  await world.clock.advance(GATHER_MS);
  await mailed.run();
  expect(sent).toHaveLength(1);
  await world.clock.advance(SPAN_MS);
  await mailed.run();
  expect(sent.map(({ subject }) => subject).slice(1)).toEqual(['Your instances work again (api.example.com)']);
  expect(sent[1]?.text).toContain(`${first} ("train") can be reached again. It is charged again since`);
});

test('an instance that does not come back is told to have failed', async () => {
  const { world, sent } = mailed;
  const id = await world.run(who);
  await mailed.person(who.orgId, 'member');
  await watch(QUIET_AFTER_START_MS);
  world.probeAnswers.set(id, DEAD);
  await watch(GRACE_MS + 60_000);
  await mailed.gather();
  expect(sent).toHaveLength(1);
  expect(sent[0]?.text).toMatch(new RegExp(`${id} cannot be reached[^]*${id} has failed. It is not charged any more.`));
});

test('an instance that its host ends, and one with a broken GPU, are told', async () => {
  const { world, sent } = mailed;
  const [stopped, broken] = [await world.run(who), await world.run(who)];
  await mailed.person(who.orgId, 'member');
  await world.observe(stopped, { phase: 'removed' });
  await world.drive();
  const { workload_id: heldBy } = (await findInstance(world.db.read, broken)) ?? {};
  const gpu = (await gpusOf(world.db.read, machine.machineId)).find((each) => each.held_by === heldBy);
  const fault = { uuid: gpu?.gpu_uuid ?? '', severity: 'broken', detail: 'Xid 79\nCharged: $0' } as const;
  await world.rooms.supply.reportInventory(machine.machineId, { ...machine.inventory, gpu_faults: [fault] });
  await mailed.gather();
  expect(sent).toHaveLength(1);
  expect(sent[0]?.text).toContain(`${stopped} was ended by its host. It is not charged any more.`);
  const words = `A GPU of ${broken} is broken. It is not charged until the GPU works again. Reason: "${fault.uuid}: Xid 79 Charged: $0"\n`;
  expect(sent[0]?.text).toContain(words);
});

test('a credit that waits for the operator is told', async () => {
  const { sent } = mailed;
  await mailed.person(who.orgId, 'owner');
  const event = { type: 'instance.credit_held', subjectId: 'i-1', orgId: who.orgId, data: { reason: null } } as const;
  await mailed.append(event);
  await mailed.gather();
  expect(sent[0]?.text).toContain('A credit for i-1 waits for the operator.\n');
});

test('neither a launch that fails nor an end that the customer asks for is mailed', async () => {
  const { world, asked } = mailed;
  await mailed.person(who.orgId, 'owner');
  const id = await world.launch(who);
  await world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no' });
  await world.drive();
  await world.end(who, await world.run(who));
  expect(await world.journal(id)).toContain('instance.failed');
  await mailed.gather();
  expect(asked).toEqual([]);
});
