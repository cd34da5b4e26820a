// Reads and changes of instance rows: each takes the rows that it is about, and leaves the row beside it.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { readFileSync } from 'node:fs';
import { type Db, raw, sql } from '../../../control-plane/base/db/db.ts';
import { portable } from '../../../control-plane/base/db/migrate.ts';
import { machinesOfAll } from '../../../control-plane/brings.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import { machinesOfJobs } from '../../../control-plane/models/finetuning/attempts.ts';
import { newInstance } from '../../../control-plane/rental/instances/create.ts';
import { standingOf } from '../../../control-plane/rental/instances/standing.ts';
import { gpuStatesOf, setGpuFault } from '../../../control-plane/rental/instances/gpu-store.ts';
import { countByStatus, dueForMs } from '../../../control-plane/rental/instances/overview.ts';
import { findInstances, type InstanceFilter, instancesOfOrg } from '../../../control-plane/rental/instances/search.ts';
import * as store from '../../../control-plane/rental/instances/store.ts';
import type { InstanceState } from '../../../shared/states.ts';
import { openTestDb } from '../../kit/databases.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { LAUNCH } from '../../kit/world.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA, virtualClock());
});
afterEach(() => db.close());

const STATES: InstanceState[] = [
  'allocating',
  'starting',
  'running',
  'stopping',
  'stopped',
  'terminated',
  'unreachable',
  'error',
];
const LAUNCHED = {
  image: 'app',
  own_image: true,
  registry_credential_id: null,
  entrypoint: null,
  cmd: null,
  sealed_env: null,
  ports: [],
  min_vram_gb: 0,
  trusted_only: false,
  avoided_machine_ids: [],
};

async function add(id: string, patch: Partial<store.InstanceRow> = {}): Promise<store.InstanceRow> {
  const what = { request: LAUNCH, gpuType: 'H100_SXM', launch: LAUNCHED };
  const row = newInstance(id, { orgId: 'org', principalId: 'key' }, what, { operationId: `op-${id}`, nowMs: 10 });
  await db.tx('add', (tx) => store.insertInstance(tx, { ...row, ...patch }));
  return found(id);
}
async function found(id: string): Promise<store.InstanceRow> {
  const row = await store.findInstance(db.read, id);
  if (row === undefined) throw new Error(`there is no ${id}`);
  return row;
}
/** One instance in each status, named after it. */
async function addAll(patch: Partial<store.InstanceRow> = {}): Promise<void> {
  for (const status of STATES) await add(status, { status, ...patch });
}
const idsOf = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);
const all = { count: 100 };

describe('instances are found', () => {
  test('by their last machine, without those that have none', async () => {
    await add('i-2', { machine_id: 'm-1' });
    await add('i-1', { machine_id: 'm-1' });
    await add('i-3', { machine_id: 'm-2' });
    await add('i-4');
    expect(await store.subjectsOf(db.read, ['m-1'])).toEqual(['i-1', 'i-2']);
    expect(await store.machinesOf(db.read, ['i-1', 'i-3', 'i-4'])).toEqual(
      new Map([
        ['i-1', 'm-1'],
        ['i-3', 'm-2'],
      ]),
    );
    expect(await store.machinesOf(db.read, [])).toEqual(new Map());
  });

  test('with their machines, also if there are more than a statement can have parameters', async () => {
    await add('i-1', { machine_id: 'm-1' });
    await add('i-70000', { machine_id: 'm-2' });
    const ids = Array.from({ length: 70_000 }, (_, n) => `i-${n + 1}`);
    const machines = machinesOfAll({ fineTuning: { machinesOf: machinesOfJobs } });
    expect(await machines(db.read, ids)).toEqual(
      new Map([
        ['i-1', 'm-1'],
        ['i-70000', 'm-2'],
      ]),
    );
  });

  test('with their machine by their own organisation alone, and while they have GPUs they are live', async () => {
    await addAll({ machine_id: 'm' });
    const live = [];
    for (const status of STATES) if ((await store.measuredInstance(db.read, 'org', status)).isLive) live.push(status);
    expect(live).toEqual(['allocating', 'starting', 'running', 'unreachable']);
    expect(await store.measuredInstance(db.read, 'org', 'running')).toMatchObject({ id: 'running', machineId: 'm' });
    for (const [orgId, id] of [
      ['other', 'running'],
      ['org', 'nobody'],
    ] as const)
      await expect(store.measuredInstance(db.read, orgId, id)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('to connect to: the first ids of an organisation with a machine, each under its name', async () => {
    await addAll({ machine_id: 'm' });
    await add('away', { status: 'running' });
    await add('foreign', { status: 'running', machine_id: 'm', org_id: 'other' });
    await add('z', { status: 'running', machine_id: 'm', name: 'mine' });
    const hosts = async (limit: number): Promise<string[]> =>
      (await store.runningInstances(db.read, 'org', limit)).map(({ id, hostname }) => `${id} ${hostname}`);
    expect(await hosts(9)).toEqual(['running running', 'unreachable unreachable', 'z mine']);
    expect(await hosts(1)).toEqual(['running running']);
  });

  test('for the API without their request and their launch, which may be large', async () => {
    await add('i-1');
    const [row] = await instancesOfOrg(db.read, 'org', all);
    expect(row).toMatchObject({ shown: { image: 'app', ports: [], auto_terminate_hours: null } });
    expect(row).not.toHaveProperty('request');
    expect(row).not.toHaveProperty('launch');
  });

  test('for the API as an older version has stored them', async () => {
    const ports = [{ port: 80, protocol: 'http' as const, primary: true }];
    await add('i-1', { request: { ...LAUNCH, auto_terminate_hours: 3 }, launch: { ...LAUNCHED, ports } });
    await add('i-2', { launch: { ...LAUNCHED, own_image: false } });
    const file = new URL('../../../control-plane/rental/instances/migrations/0011-shown.sql', import.meta.url);
    const update = portable(readFileSync(file, 'utf8'), db.dialect).match(/^update [^;]*/m)?.[0] ?? '';
    await db.tx('migrate', async (tx) => {
      await tx.run(sql`update instances set shown = '{}'`);
      await tx.run(raw(update));
    });
    const rows = await store.instancesByIds(db.read, 'org', ['i-1', 'i-2']);
    expect(rows.map(({ shown }) => shown)).toEqual([
      { image: 'app', ports, auto_terminate_hours: 3 },
      { image: null, ports: [], auto_terminate_hours: null },
    ]);
  });

  test('for the API by their own organisation alone', async () => {
    await add('i-1');
    await add('i-2', { org_id: 'other' });
    expect((await store.findShown(db.read, 'org', 'i-1'))?.id).toBe('i-1');
    expect(await store.findShown(db.read, 'org', 'i-2')).toBeUndefined();
    expect(idsOf(await store.instancesByIds(db.read, 'org', ['i-1', 'i-2']))).toEqual(['i-1']);
    expect(idsOf(await instancesOfOrg(db.read, 'org', all))).toEqual(['i-1']);
    expect(idsOf(await gpuStatesOf(db.read, ['i-2', 'i-1']))).toEqual(['i-1', 'i-2']);
    expect(await gpuStatesOf(db.read, [])).toEqual([]);
  });

  test('after an id, in order', async () => {
    for (const id of ['i-3', 'i-1', 'i-2', 'i-4']) await add(id);
    expect(await store.instancesAfter(db.read, 'i-1', 2)).toEqual(['i-2', 'i-3']);
    expect(await store.instancesAfter(db.read, '', 9)).toHaveLength(4);
  });

  test('for a page of costs with the time at which they ran, were given up, or ended', async () => {
    await add('ran');
    await add('given up');
    await add('foreign', { org_id: 'other' });
    await add('waits', { created_ms: 11 });
    await db.tx('run', async (tx) => {
      await store.setStatus(tx, 'ran', { from: 'allocating', to: 'starting', nowMs: 20, patch: {} });
      await store.setStatus(tx, 'ran', { from: 'starting', to: 'running', nowMs: 21, patch: { ready_ms: 21 } });
      await store.setStatus(tx, 'ran', { from: 'running', to: 'stopped', nowMs: 22, patch: { terminated_ms: 22 } });
      await store.setStatus(tx, 'given up', {
        from: 'allocating',
        to: 'terminated',
        nowMs: 30,
        patch: { terminated_ms: 31 },
      });
    });
    const rentals = (ids?: string[]) => store.rentalsOf(db.read, 'org', { ...all, ids });
    expect(await rentals()).toEqual([
      { id: 'waits', createdMs: 11, startedMs: null },
      { id: 'ran', createdMs: 10, startedMs: 21 },
      { id: 'given up', createdMs: 10, startedMs: 30 },
    ]);
    expect(idsOf(await rentals(['ran', 'foreign']))).toEqual(['ran']);
  });

  test('by the operator, without those that have ended unless they are asked for', async () => {
    await addAll({ machine_id: 'm-1' });
    await add('other', { status: 'running', machine_id: 'm-2', org_id: 'other' });
    const search = async (patch: Partial<InstanceFilter>): Promise<string[]> =>
      idsOf(await findInstances(db.read, { orgId: null, machineId: null, status: null, ...patch }, all)).toSorted();
    const current = ['allocating', 'error', 'running', 'starting', 'stopping', 'unreachable'];
    expect(await search({ orgId: 'org' })).toEqual(current);
    expect(await search({})).toEqual([...current, 'other'].toSorted());
    expect(await search({ machineId: 'm-2' })).toEqual(['other']);
    expect(await search({ status: 'any', orgId: 'org' })).toEqual(STATES.toSorted());
    expect(await search({ status: 'running' })).toEqual(['other', 'running']);
    expect(await search({ status: 'terminated' })).toEqual(['terminated']);
    // In pages, newest first, and of equal ones the larger id first.
    const any = { orgId: null, machineId: null, status: null };
    const [first, second] = await findInstances(db.read, any, { count: 2 });
    expect([first?.id, second?.id]).toEqual(['unreachable', 'stopping']);
    const from = { createdMs: second?.created_ms ?? 0, id: 'stopping' };
    expect(idsOf(await findInstances(db.read, any, { from, count: 2 }))).toEqual(['starting', 'running']);
  });

  test('of contracts, oldest first, until they have ended', async () => {
    await addAll({ reservation_id: 'r-1', created_ms: 10 });
    await add('a first', { reservation_id: 'r-2', created_ms: 9 });
    await add('of none');
    await add('foreign', { reservation_id: 'r-3' });
    const live = idsOf(await store.liveOfReservations(db.read, ['r-1', 'r-2']));
    const same = ['allocating', 'error', 'running', 'starting', 'stopping', 'unreachable'];
    expect(live).toEqual(['a first', ...same]);
    expect(await store.liveOfReservations(db.read, [])).toEqual([]);
  });

  test('when they are due, the oldest first', async () => {
    await add('at five', { due_ms: 5 });
    await add('at four', { due_ms: 4 });
    await add('later', { due_ms: 6 });
    await add('never', { due_ms: null });
    expect(await store.dueInstances(db.read, 5, 9)).toEqual(['at four', 'at five']);
    expect(await store.dueInstances(db.read, 5, 1)).toEqual(['at four']);
    expect([await dueForMs(db.read, 9), await dueForMs(db.read, 3)]).toEqual([5, 0]);
  });
});

test('nothing that is due has waited for no time', async () => {
  await add('never', { due_ms: null });
  expect(await dueForMs(db.read, 9)).toBe(0);
});

test('launches are open until they run, each organisation for itself, and instances are counted until they are terminated', async () => {
  await addAll();
  await add('foreign', { org_id: 'other' });
  expect(await standingOf(db.read, { orgId: 'org', principalId: 'apk' }, 1)).toMatchObject({ openLaunches: 2 });
  const counts = new Map((await countByStatus(db.read)).map(({ status, count }) => [status, count]));
  expect(counts).toEqual(
    new Map(
      STATES.filter((status) => status !== 'terminated').map((status) => [status, status === 'allocating' ? 2 : 1]),
    ),
  );
});

describe('a change', () => {
  const changed = async (
    change: (tx: Parameters<Parameters<Db['tx']>[1]>[0]) => Promise<unknown>,
  ): Promise<string[]> => {
    const before = await Promise.all(STATES.map(found));
    await db.tx('change', change);
    const after = await Promise.all(STATES.map(found));
    return STATES.filter((_, i) => JSON.stringify(before[i], bigints) !== JSON.stringify(after[i], bigints));
  };
  const bigints = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
  beforeEach(() => addAll({ due_ms: null }));

  test('of the status happens once, from the status that was read, and begins a new time', async () => {
    const step = { from: 'running', to: 'stopping', nowMs: 50, patch: { status_reason: 'x' } } as const;
    const results: boolean[] = [];
    expect(
      await changed(async (tx) => {
        results.push(await store.setStatus(tx, 'running', step), await store.setStatus(tx, 'running', step));
        results.push(await store.setStatus(tx, 'error', step));
      }),
    ).toEqual(['running']);
    expect(results).toEqual([true, false, false]);
    const row = await found('running');
    expect(row).toMatchObject({
      status: 'stopping',
      status_reason: 'x',
      entered_ms: 50,
      facts_version: 1,
      due_ms: null,
    });
  });

  test('of facts happens if neither status nor facts have changed since they were read', async () => {
    const seen = await found('running');
    const patch = { due_ms: 70, last_reachable_ms: 60 };
    const results: boolean[] = [];
    expect(
      await changed(async (tx) => {
        results.push(await store.patchInstance(tx, { ...seen, status: 'starting' }, patch));
        results.push(await store.patchInstance(tx, { ...seen, facts_version: 1 }, patch));
        results.push(await store.patchInstance(tx, seen, patch), await store.patchInstance(tx, seen, patch));
      }),
    ).toEqual(['running']);
    expect(results).toEqual([false, false, true, false]);
    expect(await found('running')).toMatchObject({ ...patch, facts_version: 1, status: 'running' });
    const failed = await found('error');
    await db.tx('nothing', (tx) => store.patchInstance(tx, failed, {}));
    expect((await found('error')).facts_version).toBe(1);
  });

  test.each<[string, (tx: never, id: string) => Promise<unknown>, InstanceState[]]>([
    ['a reason is noted', (tx, id) => store.noteReason(tx, id, 'why'), ['allocating', 'starting', 'running']],
    [
      'a good probe is stored',
      (tx, id) => store.setReachable(tx, [{ id, goodMs: 9 }]),
      ['starting', 'running', 'unreachable'],
    ],
    [
      'a new fact makes it due',
      (tx, id) => store.makeDue(tx, id, 9),
      ['allocating', 'starting', 'running', 'stopping', 'unreachable'],
    ],
    [
      'the end of its main process is noted',
      (tx, id) => store.noteExit(tx, id, { code: 1, signal: null }, 9),
      ['allocating', 'starting', 'running', 'unreachable'],
    ],
    ['a name is set', (tx, id) => store.setName(tx, id, 'mine'), STATES],
  ])(
    'by which %s concerns instances in some statuses, and only the one that is named',
    async (_what, change, statuses) => {
      const touched = [];
      for (const status of STATES) touched.push(...(await changed((tx) => change(tx as never, status))));
      expect(touched.toSorted()).toEqual(statuses.toSorted());
    },
  );

  test('of a fault of the GPUs has its time, and ends with a new placement, as the end of the main process does', async () => {
    const fault = async () => {
      const { gpu_fault: what, gpu_fault_since_ms: sinceMs } = await found('running');
      return [what, sinceMs];
    };
    const set = (what: string | null, nowMs: number) =>
      changed((tx) => setGpuFault(tx, 'running', { fault: what, nowMs }));
    expect(await set('Xid 79', 5)).toEqual(['running']);
    expect(await fault()).toEqual(['Xid 79', 5]);
    await set(null, 6);
    expect(await fault()).toEqual([null, null]);
    await set('Xid 79', 7);
    const exit = { code: 1, signal: null };
    await changed((tx) => store.noteExit(tx, 'running', exit, 9));
    expect(await found('running')).toMatchObject({ main_exit: exit, main_exit_ms: 9 });
    const placement = {
      machineId: 'm',
      supplierId: 's',
      workloadId: 'w',
      region: 'us',
      priceUcentsPerHour: 5n,
      placed: { offering_id: 'off', vram_gb: 80, cpu_cores: 12, ram_gb: null },
      diskGb: 50,
      triedMachineIds: ['m-0', 'm'],
    };
    expect(await changed((tx) => store.setPlacement(tx, 'running', placement))).toEqual(['running']);
    expect(await found('running')).toMatchObject({
      machine_id: 'm',
      placed: placement.placed,
      supplier_id: 's',
      workload_id: 'w',
      region: 'us',
      price_ucents_per_hour: 5n,
      disk_gb: 50,
      tried_machine_ids: ['m-0', 'm'],
      gpu_fault: null,
      gpu_fault_since_ms: null,
      main_exit: null,
      main_exit_ms: null,
    });
  });
});
