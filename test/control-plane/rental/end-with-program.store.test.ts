// An instance that ends with its program (auto_terminate_on_exit), over restarts of the control plane.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LOG_ARRIVES_MS } from '../../../control-plane/rental/instances/plan.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { MainExit } from '../../../shared/protocol/workload.ts';
import { linkHost, loseHost, type MadeMachine } from '../../kit/machines.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const JOB = { auto_terminate_on_exit: true };
const ENDED: MainExit = { code: 5, signal: null };

let world: World;
let made: MadeMachine;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld();
  made = await world.machine();
  who = await world.customer(100_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const instance = (id: string) => findInstance(world.db.read, id);
const report = (id: string): Promise<void> =>
  world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA', main_exit: ENDED });
async function pass(ms: number): Promise<void> {
  await world.clock.advance(ms);
  await world.drive();
}

test('ends when its host reports the end of a program that ended while no control plane ran', async () => {
  const id = await world.run(who, JOB);
  await world.clock.advance(1);
  world = await world.restart();
  await linkHost(world, made.machineId);
  await report(id);
  await world.drive();
  await pass(LOG_ARRIVES_MS);
  expect(await instance(id)).toMatchObject({ status: 'stopping', main_exit: ENDED });
});

test('goes on to its end after the control plane was killed that had heard of it', async () => {
  const id = await world.run(who, JOB);
  await report(id);
  world = await world.restart();
  await pass(LOG_ARRIVES_MS);
  expect(await instance(id)).toMatchObject({ status: 'stopping', main_exit: ENDED });
});

test('ends also if its launch had to wait for another host', async () => {
  const id = await world.launch(who, JOB);
  const other = await world.machine();
  await world.clock.advance(1);
  world = await world.restart();
  await loseHost(world, other.machineId);
  await world.observe(id, { phase: 'failed', failure_code: 'start_failed' });
  await world.drive();
  expect(await instance(id)).toMatchObject({ status: 'starting', machine_id: made.machineId });
  await linkHost(world, other.machineId);
  await pass(5_000);
  expect(await instance(id)).toMatchObject({ status: 'allocating', machine_id: other.machineId });
  await report(id);
  await world.drive();
  await pass(LOG_ARRIVES_MS);
  expect(await instance(id)).toMatchObject({ status: 'stopping', main_exit: ENDED });
});

test('is charged until the report of its host, however late the engine ends it', async () => {
  const id = await world.run(who, JOB);
  await world.clock.advance(60_000);
  await report(id);
  await pass(600_000);
  expect(await instance(id)).toMatchObject({ status: 'stopping', main_exit_ms: world.clock.now() - 600_000 });
  expect(await world.sinceMs(id, 'instance.stopping')).toBe(world.clock.now() - 600_000);
});
