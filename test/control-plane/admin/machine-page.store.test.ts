// One machine for operators: its checks, its GPUs and who has them, what runs on it, its outages, events and figures.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MachineMetrics } from '../../../shared/api/metrics.ts';
import { OperatorMachine } from '../../../shared/api/operator-machine.ts';
import { openOperator, type Operator } from '../../kit/operator.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let operator: Operator;
beforeEach(async () => {
  world = await openWorld();
  operator = openOperator(world);
});
afterEach(async () => {
  await operator.http.close();
  await world.close();
});

const read = async (id: string): Promise<OperatorMachine> =>
  OperatorMachine.parse(await operator.ask('GET', `/admin/machines/${id}`));

test('shows what decides about it, its GPUs and what runs on it', async () => {
  const { machineId } = await world.machine({ gpus: 2, dollars: 2 });
  await world.machine({ dollars: 9 });
  const who = await world.customer(1_000_000);
  const id = await world.run(who);
  const shown = await read(machineId);
  expect(shown).toMatchObject({ on_offer: true, machine: { machine_id: machineId, status: 'listed' }, outages: [] });
  expect(shown.checks.length).toBeGreaterThan(5);
  expect(shown.gpus.map(({ index, usable, fault }) => [index, usable, fault])).toEqual([
    [0, true, null],
    [1, true, null],
  ]);
  expect(new Set(shown.gpus.map(({ used_by: by }) => by))).toEqual(new Set([id, null]));
  expect(shown.rentals).toMatchObject([
    { instance_id: id, org_id: who.orgId, status: 'running', gpus: '1 H100_SXM', price_per_hour: 2 },
  ]);
  expect(shown.events.map(({ type }) => type)).toContain('machine.listed');
});

test('shows why it is off the market, and the outages of its rentals alone', async () => {
  const { machineId } = await world.machine({ dollars: 2 });
  await world.machine({ dollars: 9 });
  const who = await world.customer(1_000_000);
  for (const id of [await world.run(who), await world.run(who)]) {
    await world.db.tx('test.stop', (tx) => world.rooms.metering.closeSegment(tx, id, world.clock.now(), `of ${id}`));
  }
  await world.rooms.supply.suspend(machineId);
  const shown = await read(machineId);
  expect(shown.on_offer).toBe(false);
  expect(shown.checks.find(({ name }) => name === 'listing')).toMatchObject({
    state: 'failed',
    evidence: 'The operator has suspended it.',
  });
  expect(shown.outages).toMatchObject([{ machine_id: machineId, rentals: 1 }]);
});

test('shows a fault of a GPU where the GPU is', async () => {
  const { machineId, inventory } = await world.machine({ gpus: 2 });
  const [broken] = inventory.gpus;
  const fault = { uuid: broken?.uuid ?? '', severity: 'broken' as const, detail: 'XID 79: fell off the bus' };
  await world.rooms.supply.reportInventory(machineId, { ...inventory, gpu_faults: [fault] });
  expect((await read(machineId)).gpus.map(({ fault: words }) => words)).toEqual(['XID 79: fell off the bus', null]);
});

test('has figures, and is refused if there is no such machine', async () => {
  const { machineId } = await world.machine();
  const path = `/admin/machines/${machineId}/metrics`;
  expect(MachineMetrics.parse(await operator.ask('GET', path))).toMatchObject({ machine_id: machineId, latest: null });
  for (const wrong of ['/admin/machines/none', '/admin/machines/none/metrics'])
    await expect(operator.ask('GET', wrong)).rejects.toMatchObject({ code: 'not_found' });
});

test('the commands print its parts, and the newest figures', async () => {
  const { machineId } = await world.machine();
  const text = await runCommand(world, ['admin', 'machine', 'show', machineId]);
  for (const part of ['checks\n', 'gpus\n', 'rentals\nnone', 'machine.listed', 'on_offer'])
    expect(text).toContain(part);
  expect(await runCommand(world, ['admin', 'machine', 'metrics', machineId])).toBe('none\n');
  const json = await runCommand(world, ['admin', 'machine', 'show', machineId, '--json']);
  expect(OperatorMachine.parse(JSON.parse(json)).machine['machine_id']).toBe(machineId);
});
