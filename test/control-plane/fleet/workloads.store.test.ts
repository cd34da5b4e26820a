// Desired and observed workloads: revisions grow, removals are tombstones, and a restored database starts above what hosts hold.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { findWorkload } from '../../../control-plane/fleet/workloads/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { overTheWire } from '../../kit/machines.ts';
import { WORKLOADS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import { NOTHING_OBSERVED, openWorld, type World, type WorldAccount } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

async function placed(): Promise<{
  id: string;
  machineId: string;
  workloadId: string;
  who: WorldAccount;
}> {
  const { machineId } = await world.machine();
  const who = await world.customer(10_000);
  const id = await world.launch(who);
  const instance = await findInstance(world.db.read, id);
  return { id, machineId, workloadId: instance?.workload_id ?? '', who };
}

test('the desired state is complete, fits the protocol, and gets a higher revision with every change', async () => {
  const { id, machineId, workloadId, who } = await placed();
  const first = overTheWire(await world.rooms.workloads.desired(machineId));
  expect(first).toMatchObject({ epoch: 1, revision: world.clock.now(), complete: true });
  expect(first.workloads).toMatchObject([
    { workload_id: workloadId, instance_id: id, desired: 'running', image: expect.stringMatching(/^busybox@sha256:/) },
  ]);
  await world.remove(who, id);
  const second = await world.rooms.workloads.desired(machineId);
  expect(second.revision).toBeGreaterThan(first.revision);
  expect(second.workloads).toMatchObject([{ workload_id: workloadId, desired: 'removed' }]);
});

test('a tombstone stays until the host reports that nothing is left', async () => {
  const { id, machineId, who } = await placed();
  await world.remove(who, id);
  await world.observe(id, { phase: 'stopped' });
  expect((await world.rooms.workloads.desired(machineId)).workloads).toHaveLength(1);
  await world.observe(id, { phase: 'removed' });
  expect((await world.rooms.workloads.desired(machineId)).workloads).toEqual([]);
});

test('a workload that is removed keeps neither its command nor its variables, which may be large and secret', async () => {
  const { machineId } = await world.machine();
  const who = await world.customer(10_000);
  const id = await world.launch(who, { cmd: ['sleep', 'long'], env: { TOKEN: 'secret' } });
  const workloadId = (await findInstance(world.db.read, id))?.workload_id ?? '';
  const specOf = async () => (await findWorkload(world.db.read, workloadId))?.spec;
  expect(await specOf()).toMatchObject({ command: { cmd: ['sleep', 'long'] }, sealed_env: expect.any(String) });
  await world.remove(who, id);
  expect(await specOf()).toMatchObject({
    command: { entrypoint: null, cmd: null },
    sealed_env: null,
    gpu_uuids: [expect.any(String)],
  });
  const { workloads } = overTheWire(await world.rooms.workloads.desired(machineId));
  expect(workloads).toMatchObject([{ desired: 'removed', command: { cmd: null }, env: {} }]);
});

test('a host can report only its own workloads', async () => {
  const { id, workloadId } = await placed();
  const other = await world.machine();
  await world.rooms.workloads.observe(other.machineId, {
    type: 'observed',
    held: null,
    unknown_workload_ids: [],
    workloads: [
      {
        workload_id: workloadId,
        phase: 'running',
        pull: null,
        image_digest: null,
        host_key: 'ssh-ed25519 EVIL',
        main_exit: null,
        failure_code: null,
        detail: null,
      },
    ],
  });
  await world.drive();
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'allocating' });
});

test('a host that holds a higher revision than this database ever sent starts a new epoch above it', async () => {
  const { machineId } = await placed();
  const revision = world.clock.now();
  await world.db.tx('test.meet', (tx) => world.rooms.workloads.meet(tx, machineId, { epoch: 1, revision }));
  expect(await world.rooms.workloads.desired(machineId)).toMatchObject({ epoch: 1, revision });
  await world.db.tx('test.meet', (tx) =>
    world.rooms.workloads.meet(tx, machineId, { epoch: 1, revision: revision + 1 }),
  );
  expect(await world.rooms.workloads.desired(machineId)).toMatchObject({ epoch: 2, revision: 0 });
});

test('a decision of a restored database is newer for the host than the decisions that were lost', async () => {
  const { id, machineId, who } = await placed();
  const { epoch, revision } = await world.rooms.workloads.desired(machineId);
  // Since the backup the host got another list. After the restore it gets a new list before it has reported the old one.
  const forgotten = { epoch, revision: revision + 1 };
  await world.clock.advance(60_000);
  await world.remove(who, id);
  await world.db.tx('test.meet', (tx) => world.rooms.workloads.meet(tx, machineId, forgotten));
  const desired = await world.rooms.workloads.desired(machineId);
  expect(desired).toMatchObject({ epoch, workloads: [{ desired: 'removed' }] });
  expect(desired.revision).toBeGreaterThan(forgotten.revision);
});

/** Reports of the host with further containers, with and without a record. */
async function report(machineId: string, withoutRecord: string[], running: string[] = []): Promise<void> {
  await world.rooms.workloads.observe(machineId, {
    type: 'observed',
    held: null,
    unknown_workload_ids: withoutRecord,
    workloads: running.map((id) => ({ ...NOTHING_OBSERVED, workload_id: id, phase: 'running' })),
  });
}

const offered = async (): Promise<number> => (await listedOfferings(world.db.read, { count: 10 })).length;
const unknownOf = async (machineId: string): Promise<string[] | null | undefined> =>
  (await findMachine(world.db.read, machineId))?.unknown_workloads;

test('after a restore nothing new goes to a host before it has reported, or while it runs unknown containers', async () => {
  const { machineId } = await world.machine();
  expect([await offered(), await unknownOf(machineId)]).toEqual([1, []]);
  await world.db.tx('test.meet', (tx) => world.rooms.workloads.meet(tx, machineId, { epoch: 1, revision: 9 }));
  expect([await offered(), await unknownOf(machineId)]).toEqual([0, null]);
  await report(machineId, ['w-lost'], ['w-other']);
  expect([await offered(), await unknownOf(machineId)]).toEqual([0, ['w-lost', 'w-other']]);
  expect((await world.rooms.workloads.desired(machineId)).workloads).toEqual([]);
  await report(machineId, []);
  expect([await offered(), await unknownOf(machineId)]).toEqual([1, []]);
});

test.each([
  ['starting', true],
  ['running', true],
  ['failed', true],
  ['finishing', true],
  ['finished', true],
  ['stopped', false],
  ['removed', false],
  ['missing', false],
] as const)(
  'a host that reports an unknown workload as %s keeps it until an operator decides: %s',
  async (phase, isKept) => {
    const { machineId } = await world.machine();
    await world.rooms.workloads.observe(machineId, {
      type: 'observed',
      held: null,
      unknown_workload_ids: [],
      workloads: [{ ...NOTHING_OBSERVED, workload_id: 'w-lost', phase }],
    });
    expect(await unknownOf(machineId)).toEqual(isKept ? ['w-lost'] : []);
  },
);

test('an unknown workload is removed only if the operator orders it, by a normal tombstone', async () => {
  const { id, machineId, workloadId } = await placed();
  const remove = (name: string): Promise<void> => world.rooms.workloads.removeUnknown(machineId, name);
  await report(machineId, ['w-lost'], [workloadId]);
  await expect(remove(workloadId)).rejects.toMatchObject({ code: 'not_found' });
  await expect(remove('w-nobody')).rejects.toMatchObject({ code: 'not_found' });
  await remove('w-lost');
  // The host has not reported yet, so a second order of the operator is refused.
  await remove('w-lost');
  const { workloads } = overTheWire(await world.rooms.workloads.desired(machineId));
  expect(workloads.find((one) => one.workload_id === 'w-lost')).toMatchObject({ desired: 'removed' });
  await report(machineId, [], ['w-lost']);
  expect(await unknownOf(machineId)).toEqual([]);
  await world.observe(id, { phase: 'removed', workload_id: 'w-lost' });
  expect((await world.rooms.workloads.desired(machineId)).workloads.map((one) => one.workload_id)).toEqual([
    workloadId,
  ]);
});

test.each([
  ['with its record', (machineId: string, ids: string[]) => report(machineId, [], ids)],
  ['without a record', (machineId: string, ids: string[]) => report(machineId, ids)],
])('what a host removed and reports again, %s, is removed again without the operator', async (_, tell) => {
  const { id, machineId, workloadId, who } = await placed();
  await world.remove(who, id);
  await world.observe(id, { phase: 'removed' });
  const before = await world.rooms.workloads.desired(machineId);
  // A power cut has taken the host's records back to older ones.
  await tell(machineId, [workloadId]);
  expect(await unknownOf(machineId)).toEqual([]);
  const again = overTheWire(await world.rooms.workloads.desired(machineId));
  expect(again.workloads).toMatchObject([{ workload_id: workloadId, desired: 'removed' }]);
  expect(again.revision).toBeGreaterThan(before.revision);
  await world.observe(id, { phase: 'removed' });
  expect((await world.rooms.workloads.desired(machineId)).workloads).toEqual([]);
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'terminated' });
});

test('what a host reports again stays unknown until the list of its desired workloads has room', async () => {
  const { id, machineId, workloadId, who } = await placed();
  await world.remove(who, id);
  await world.observe(id, { phase: 'removed' });
  const others = Array.from({ length: WORKLOADS_PER_MACHINE_MAX }, (_, i) => `w-${i}`);
  await report(machineId, others);
  for (const other of others) await world.rooms.workloads.removeUnknown(machineId, other);
  await report(machineId, [workloadId]);
  expect(await unknownOf(machineId)).toEqual([workloadId]);
  await world.observe(id, { phase: 'removed', workload_id: 'w-0' });
  await report(machineId, [workloadId]);
  expect(await unknownOf(machineId)).toEqual([]);
  const { workloads } = overTheWire(await world.rooms.workloads.desired(machineId));
  expect(workloads).toHaveLength(WORKLOADS_PER_MACHINE_MAX);
});

test('a workload of another machine is unknown on this one, and cannot be removed through it', async () => {
  const { workloadId } = await placed();
  const other = await world.machine();
  await report(other.machineId, [], [workloadId]);
  expect(await unknownOf(other.machineId)).toEqual([workloadId]);
  await expect(world.rooms.workloads.removeUnknown(other.machineId, workloadId)).rejects.toMatchObject({
    code: 'conflict',
  });
});
