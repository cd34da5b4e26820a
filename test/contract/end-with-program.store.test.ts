// auto_terminate_on_exit: an instance that ends when its program ends, whenever the host reports that.
import { beforeEach, describe, expect, test } from 'vitest';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/instances/quiet.ts';
import { STARTING_MS_MAX } from '../../shared/limits.ts';
import type { MainExit, ObservedWorkload } from '../../shared/protocol/workload.ts';
import { LOG_ARRIVES_MS } from '../../control-plane/rental/instances/plan.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { findWorkload, type WorkloadRow } from '../../control-plane/fleet/workloads/store.ts';
import { gpusOf } from '../../control-plane/fleet/supply/store.ts';
import type { MadeMachine } from '../kit/machines.ts';
import { watchFor } from '../kit/watching.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;
const JOB = { ...LAUNCH, auto_terminate_on_exit: true };
const exited = (code: number): MainExit => ({ code, signal: null });

openApiForEachTest();

let machine: MadeMachine;
beforeEach(async () => {
  machine = await api.world.machine({ gpus: 2 });
});

async function launch(body: object = JOB): Promise<string> {
  expect((await postLaunch(api, owner, body)).status).toBe(202);
  return String((await newestInstance(api, owner))['id']);
}
async function run(body: object = JOB): Promise<string> {
  const id = await launch(body);
  await api.world.start(id);
  return id;
}
const read = async (id: string): Promise<Answer['json']> =>
  (await api.call('GET', `/v1/instances/${id}`, { key: owner.key })).json;
const report = (id: string, exit: MainExit | null, phase: ObservedWorkload['phase'] = 'running'): Promise<void> =>
  api.world.observe(id, { phase, host_key: 'ssh-ed25519 AAAA', main_exit: exit });
async function pass(ms: number): Promise<void> {
  await api.world.clock.advance(ms);
  await api.world.drive();
}
async function exits(id: string, exit: MainExit): Promise<void> {
  await report(id, exit);
  await api.world.drive();
  await pass(LOG_ARRIVES_MS);
}
async function containerStops(id: string): Promise<void> {
  await report(id, { code: 143, signal: null }, 'stopped');
  await api.world.drive();
}
const gpuSeconds = async (): Promise<number> => {
  const { json } = await api.call('GET', '/v1/usage?bucket=month', { key: owner.key });
  return Number(json.data?.[0]?.['gpu_seconds'] ?? 0);
};
const workloadOf = async (id: string): Promise<WorkloadRow | undefined> =>
  findWorkload(api.world.db.read, (await findInstance(api.world.db.read, id))?.workload_id ?? '');
const operationOf = async (id: string): Promise<Answer['json']> => {
  const operation = (await findInstance(api.world.db.read, id))?.create_operation_id ?? '';
  return (await api.call('GET', `/v1/operations/${operation}`, { key: owner.key })).json;
};

test.each([
  [exited(0), 'The main process exited with code 0.'],
  [exited(3), 'The main process exited with code 3.'],
  [{ code: null, signal: 'SIGKILL' }, 'The main process was ended by signal SIGKILL.'],
])('an instance whose program ends with %j is terminated, says so, and is charged until then', async (exit, reason) => {
  const id = await run();
  expect(await read(id)).toMatchObject({ status: 'running', auto_terminate_on_exit: true });
  await pass(60_000);
  await exits(id, exit);
  expect(await read(id)).toMatchObject({ status: 'stopping', status_reason: reason, main_exit: exit });
  await pass(20_000);
  await containerStops(id);
  expect(await read(id)).toMatchObject({
    status: 'terminated',
    status_reason: reason,
    main_exit: exit,
    auto_terminate_on_exit: true,
  });
  expect(await gpuSeconds()).toBe(60);
  const events = await api.world.journal(id);
  expect(events.slice(-3)).toEqual(['instance.running', 'instance.stopping', 'instance.terminated']);
  expect(await operationOf(id)).toMatchObject({ state: 'succeeded' });
});

test('the host is told to remove the container of an instance that ends', async () => {
  const id = await run();
  await exits(id, exited(0));
  expect(await workloadOf(id)).toMatchObject({ state: 'removing' });
});

test('an instance has the last moment of its log before it is stopped', async () => {
  const id = await run();
  await report(id, exited(0));
  await api.world.drive();
  await pass(LOG_ARRIVES_MS - 1);
  expect(await read(id)).toMatchObject({ status: 'running', main_exit: exited(0) });
  await pass(1);
  expect(await read(id)).toMatchObject({ status: 'stopping' });
});

test.each([[{}], [{ auto_terminate_on_exit: false }]])(
  'an instance that was launched with %j runs on, and does not show the field',
  async (body) => {
    const id = await run({ ...LAUNCH, ...body });
    await exits(id, exited(0));
    const shown = await read(id);
    expect(shown).toMatchObject({ status: 'running', main_exit: exited(0) });
    expect(shown).not.toHaveProperty('auto_terminate_on_exit');
  },
);

test('a value that is neither true nor false is refused with the field and the rule', async () => {
  const refused = await postLaunch(api, owner, { ...JOB, auto_terminate_on_exit: 'yes' });
  expect(refused).toMatchObject({ status: 422, json: { code: 'validation_failed' } });
  expect(refused.json.errors).toEqual([{ field: 'auto_terminate_on_exit', rule: 'must be true or false' }]);
});

describe('a program that ends before its instance runs', () => {
  test('ends with its exit code as soon as the instance has run, and its launch has succeeded', async () => {
    const id = await launch();
    await exits(id, exited(7));
    expect(await read(id)).toMatchObject({ status: 'stopping', main_exit: exited(7) });
    await containerStops(id);
    const ended = await read(id);
    expect(ended).toMatchObject({ status: 'terminated', status_reason: 'The main process exited with code 7.' });
    expect(ended['ready_at']).not.toBeNull();
    expect(await operationOf(id)).toMatchObject({ state: 'succeeded' });
    expect(await api.world.journal(id)).not.toContain('instance.failed');
  });

  test('is not run a second time on another host if nobody can log in until the start is given up, and costs nothing', async () => {
    await api.world.machine();
    const id = await launch();
    api.world.probeAnswers.set(id, DEAD);
    await exits(id, exited(0));
    await pass(STARTING_MS_MAX - LOG_ARRIVES_MS - 1);
    expect(await read(id)).toMatchObject({ status: 'starting', main_exit: exited(0) });
    // A start is looked at each second.
    await pass(1_000);
    expect(await read(id)).toMatchObject({
      status: 'terminated',
      status_reason: 'The main process exited with code 0.',
      main_exit: exited(0),
    });
    expect(await gpuSeconds()).toBe(0);
  });

  test('counts on the host that runs it after an earlier host has failed', async () => {
    await api.world.machine();
    const id = await launch();
    await api.world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await api.world.drive();
    expect(await read(id)).toMatchObject({ status: 'allocating', auto_terminate_on_exit: true });
    await exits(id, exited(0));
    expect(await read(id)).toMatchObject({ status: 'stopping', main_exit: exited(0) });
  });
});

test('an instance that is out of reach ends too, and is charged until the outage only', async () => {
  const id = await run();
  await watchFor(api.world, QUIET_AFTER_START_MS);
  api.world.probeAnswers.set(id, DEAD);
  await watchFor(api.world, 60_000);
  expect(await read(id)).toMatchObject({ status: 'unreachable' });
  const before = await gpuSeconds();
  await exits(id, exited(1));
  expect(await read(id)).toMatchObject({
    status: 'terminated',
    status_reason: 'The main process exited with code 1.',
    main_exit: exited(1),
  });
  expect(await gpuSeconds()).toBe(before);
});

test('an instance whose program runs again within that moment runs on', async () => {
  const id = await run();
  await report(id, exited(1));
  await api.world.drive();
  await report(id, null);
  await api.world.drive();
  await pass(LOG_ARRIVES_MS);
  const shown = await read(id);
  expect(shown).toMatchObject({ status: 'running' });
  expect(shown).not.toHaveProperty('main_exit');
});

test('an instance whose host stops its container is stopped by its host, whatever that did to its program', async () => {
  const id = await run();
  await report(id, { code: 143, signal: null }, 'stopped');
  await api.world.drive();
  expect(await read(id)).toMatchObject({
    status: 'stopped',
    status_reason: 'the container was stopped on the host',
  });
});

test('an instance that ends with its program while the clock is set back ends without waiting for the clock', async () => {
  const id = await run();
  await pass(1);
  await report(id, exited(0));
  await api.world.drive();
  api.world.clock.step(-3_600_000);
  await pass(LOG_ARRIVES_MS);
  expect(await read(id)).toMatchObject({ status: 'stopping' });
  expect(await api.world.sinceMs(id, 'instance.stopping')).toBe(api.world.clock.now());
});

test('an instance whose GPU broke before its program ended says both', async () => {
  const id = await run();
  const [gpu] = (await gpusOf(api.world.db.read, machine.machineId)).filter(({ held_by: by }) => by !== null);
  const fault = { uuid: gpu?.gpu_uuid ?? '', severity: 'broken' as const, detail: 'Xid 79' };
  await pass(60_000);
  await api.world.rooms.supply.reportInventory(machine.machineId, { ...machine.inventory, gpu_faults: [fault] });
  await api.world.drive();
  await pass(60_000);
  await exits(id, exited(1));
  const reason = `The main process exited with code 1. The host had found a GPU of this instance broken before (${fault.uuid}: Xid 79). That time was not charged.`;
  expect(await read(id)).toMatchObject({ status: 'stopping', status_reason: reason, main_exit: exited(1) });
  expect(await gpuSeconds()).toBe(60);
});

test('the lists and the events of an instance show what it shows itself', async () => {
  const id = await run();
  await exits(id, exited(0));
  expect(await newestInstance(api, owner)).toEqual(await read(id));
  const { json } = await api.call('GET', `/v1/instances/${id}/events`, { key: owner.key });
  expect(json.data?.[0]).toMatchObject({ status: 'stopping', reason: 'The main process exited with code 0.' });
});

describe('the container of a batch job that dies', () => {
  test('ends the instance with a clear reason, is charged until then, and its program runs on no other host', async () => {
    await api.world.machine();
    const id = await run();
    await pass(60_000);
    await api.world.observe(id, { phase: 'failed', failure_code: 'out_of_memory', detail: 'it ran out of memory' });
    await api.world.drive();
    const ended = await read(id);
    expect(ended).toMatchObject({
      status: 'error',
      status_reason:
        'The container was killed, because it needed more memory than the host gives it. The program was not started again.',
    });
    expect(ended).not.toHaveProperty('main_exit');
    expect(await gpuSeconds()).toBe(60);
  });

  test.each([
    [JOB, true],
    [LAUNCH, undefined],
  ])('is not started again by its host, which every other one is: %j', async (body, runsOnce) => {
    const id = await launch(body);
    expect((await workloadOf(id))?.spec?.runs_once).toBe(runsOnce);
  });
});
