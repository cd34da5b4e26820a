// A row of one rental cannot be read any more: its host and the other rentals there go on, and its container stays.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { openInstanceEvidence } from '../../../control-plane/admin/instance-evidence.ts';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openArrival } from '../../../control-plane/fleet/link/arrival.ts';
import { openCloneTokens } from '../../../control-plane/fleet/link/clone-tokens.ts';
import { openLinkRecords } from '../../../control-plane/fleet/link/presence.ts';
import { findMachine, gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { findWorkload } from '../../../control-plane/fleet/workloads/store.ts';
import { segmentsOf } from '../../../control-plane/money/metering/store.ts';
import { endpointAccess } from '../../../control-plane/rental/edge/access.ts';
import { QUIET_AFTER_START_MS } from '../../../control-plane/rental/instances/quiet.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { GRACE_MS } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { helloOf, type MadeMachine } from '../../kit/machines.ts';
import { watchFor } from '../../kit/watching.ts';
import { LAUNCH, NOTHING_OBSERVED, openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const PUBLIC_KEY = 'k'.repeat(43);

interface Rental {
  id: string;
  workloadId: string;
}

let world: World;
let lines: string[];
let made: MadeMachine;
let who: WorldAccount;
let bad: Rental;
let good: Rental;
beforeEach(async () => {
  lines = [];
  const log = createLog('test', 'error', { write: (line) => void lines.push(line) });
  world = await openWorld(1, { log });
  made = await world.machine({ gpus: 3, publicKey: PUBLIC_KEY });
  who = await world.customer(10_000);
  bad = await rent();
  good = await rent();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function rent(): Promise<Rental> {
  const id = await world.run(who);
  return { id, workloadId: (await findInstance(world.db.read, id))?.workload_id ?? '' };
}

const spoilSpec = (): Promise<unknown> =>
  world.db.tx('test.spoil', (tx) => tx.run(sql`update workloads set spec = '{' where id = ${bad.workloadId}`));
const spoilLaunch = (): Promise<unknown> =>
  world.db.tx('test.spoil', (tx) =>
    tx.run(sql`update instances set launch = '{}', request = '{' where id = ${bad.id}`),
  );
/** Every test mends the row, because the world proves its books at the end. */
async function repair<T>(table: 'spec' | 'launch', whileSpoilt: () => Promise<T>): Promise<T> {
  const { spec } = (await findWorkload(world.db.read, bad.workloadId)) ?? {};
  const { launch, request } = (await findInstance(world.db.read, bad.id)) ?? {};
  await (table === 'spec' ? spoilSpec() : spoilLaunch());
  const result = await whileSpoilt();
  await world.db.tx('test.repair', async (tx) => {
    const { state } = (await findWorkload(tx, bad.workloadId)) ?? {};
    if (state === 'wanted')
      await tx.run(sql`update workloads set spec = ${JSON.stringify(spec)} where id = ${bad.workloadId}`);
    const documents = sql`launch = ${JSON.stringify(launch)}, request = ${JSON.stringify(request)}`;
    await tx.run(sql`update instances set ${documents} where id = ${bad.id}`);
  });
  return result;
}

const desired = () => world.rooms.workloads.desired(made.machineId);
const report = (phase: 'running' | 'removed', detail: string | null = null): Promise<boolean> =>
  world.rooms.workloads.observe(made.machineId, {
    type: 'observed',
    held: null,
    unknown_workload_ids: [],
    workloads: [bad, good].map(({ workloadId }) => ({ ...NOTHING_OBSERVED, workload_id: workloadId, phase, detail })),
  });

/** What the host says of all its GPUs. */
async function brokenGpus(): Promise<Inventory> {
  const gpus = await gpusOf(world.db.read, made.machineId);
  const faults = gpus.map(({ gpu_uuid: uuid }) => ({ uuid, severity: 'broken' as const, detail: 'Xid 79' }));
  return { ...made.inventory, gpu_faults: faults };
}

test('a workload that cannot be read is named in the log, and the list goes out with the others', async () => {
  await repair('spec', async () => {
    expect((await desired()).workloads.map((one) => one.workload_id)).toEqual([good.workloadId]);
    expect(lines.filter((line) => line.includes(bad.workloadId))).toHaveLength(1);
  });
});

test('the report about a workload that cannot be read counts, and the list that names it again has a higher revision', async () => {
  await repair('spec', async () => {
    const { revision } = await desired();
    expect(await report('running', 'slow')).toBe(true);
    expect((await findWorkload(world.db.read, bad.workloadId))?.observed?.detail).toBe('slow');
    expect((await desired()).revision).toBeGreaterThan(revision);
    expect((await findMachine(world.db.read, made.machineId))?.unknown_workloads).toEqual([]);
  });
});

test('a rental whose workload cannot be read ends as others do', async () => {
  await repair('spec', async () => {
    await world.remove(who, bad.id);
    const listed = (await desired()).workloads.find((one) => one.workload_id === bad.workloadId);
    expect(listed).toMatchObject({ desired: 'removed', instance_id: bad.id });
    await report('removed');
    await world.drive();
    expect((await findWorkload(world.db.read, bad.workloadId))?.state).toBe('gone');
    expect(await findInstance(world.db.read, bad.id)).toMatchObject({ status: 'terminated' });
  });
});

test('a report of the host that can no longer be read is replaced by its next one', async () => {
  const spoilt = sql`update workloads set observed = '{}' where id = ${bad.workloadId}`;
  await world.db.tx('test.spoil', (tx) => tx.run(spoilt));
  await report('running');
  expect((await findWorkload(world.db.read, bad.workloadId))?.observed?.phase).toBe('running');
});

test('an instance that cannot be read at all keeps no report of its host from the others, and its host is asked to repeat it', async () => {
  const tier = (value: string): Promise<unknown> =>
    world.db.tx('test.spoil', (tx) => tx.run(sql`update instances set tier = ${value} where id = ${bad.id}`));
  await tier('unknown');
  try {
    expect(await report('running', 'slow')).toBe(true);
    expect((await findWorkload(world.db.read, good.workloadId))?.observed?.detail).toBe('slow');
    expect(await world.rooms.supply.reportInventory(made.machineId, await brokenGpus())).toBe(false);
    expect((await findInstance(world.db.read, good.id))?.gpu_fault).toContain('Xid 79');
    expect(lines.filter((line) => line.includes(bad.id))).toHaveLength(1);
  } finally {
    await tier('on_demand');
  }
  expect(await world.rooms.supply.reportInventory(made.machineId, await brokenGpus())).toBe(true);
  expect((await findInstance(world.db.read, bad.id))?.gpu_fault).toContain('Xid 79');
});

test('the hello of a host is taken although an instance there cannot be read', async () => {
  const { core, rooms } = world;
  const arrive = openArrival({
    db: core.db,
    cloneTokens: openCloneTokens(core),
    records: openLinkRecords(core),
    supply: rooms.supply,
    meet: rooms.workloads.meet,
  });
  await repair('launch', async () => {
    const hello = helloOf(made, { inventory: await brokenGpus() });
    await arrive(made.machineId, hello, { clientIp: '192.0.2.1', publicKey: PUBLIC_KEY });
  });
  expect((await findInstance(world.db.read, good.id))?.gpu_fault).toContain('Xid 79');
});

const StatusRow = z.object({ status: text, status_reason: text.nullable() });
const statusOf = (id: string) =>
  world.db.read.one(StatusRow, sql`select status, status_reason from instances where id = ${id}`);

describe('a launch that needs another host', () => {
  test.each<[string, ReturnType<typeof sql>]>([
    ['whose launch cannot be read', sql`launch = '{}'`],
    ['whose request cannot be read', sql`request = '{'`],
    ['of whose request only the keys can be read', sql`request = '{"ssh_key_ids":[]}'`],
  ])('%s fails, says why, and is named in the log', async (_what, spoilt) => {
    await world.machine();
    const id = await world.launch(who);
    const row = await findInstance(world.db.read, id);
    await world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await world.db.tx('test.spoil', (tx) => tx.run(sql`update instances set ${spoilt} where id = ${id}`));
    await world.drive();
    const lost = 'What was launched cannot be read any more, so no other host can run it. Launch again.';
    expect(await statusOf(id)).toMatchObject({
      status: 'error',
      status_reason: expect.stringMatching(new RegExp(`^On the chosen host, .+\\. ${lost}$`)),
    });
    expect(lines.filter((line) => line.includes(id) && line.includes('cannot be read'))).toHaveLength(1);
    const operationId = row?.create_operation_id ?? '';
    const operation = await world.rooms.operations.find(world.db.read, operationId, who.principalId);
    expect(operation).toMatchObject({ state: 'failed', error_code: 'operation_failed' });
    expect((await findWorkload(world.db.read, row?.workload_id ?? ''))?.state).toBe('removing');
    const documents = sql`launch = ${JSON.stringify(row?.launch)}, request = ${JSON.stringify(row?.request)}`;
    await world.db.tx('test.repair', (tx) => tx.run(sql`update instances set ${documents} where id = ${id}`));
  });
});

describe('an instance whose request and launch cannot be read', () => {
  test('is probed as before: it is not charged while it is out of reach, and charged again from its recovery on', async () => {
    await watchFor(world, QUIET_AFTER_START_MS);
    await repair('launch', async () => {
      world.probeAnswers.set(bad.id, { ok: false, leg: 'banner', detail: 'banner: closed' });
      await watchFor(world, 60_000);
      expect(await statusOf(bad.id)).toMatchObject({ status: 'unreachable' });
      expect((await segmentsOf(world.db.read, [bad.id])).at(-1)?.ended_ms).not.toBeNull();
      world.probeAnswers.delete(bad.id);
      await watchFor(world, 12_000);
      expect(await statusOf(bad.id)).toMatchObject({ status: 'running' });
      expect((await segmentsOf(world.db.read, [bad.id])).at(-1)?.ended_ms).toBeNull();
    });
  });

  test('is not charged while its GPU is broken, and ends after the grace', async () => {
    await repair('launch', async () => {
      expect(await world.rooms.supply.reportInventory(made.machineId, await brokenGpus())).toBe(true);
      await world.drive();
      expect((await statusOf(bad.id))?.status_reason).toContain('Xid 79');
      expect((await segmentsOf(world.db.read, [bad.id])).at(-1)?.ended_ms).not.toBeNull();
      await world.clock.advance(GRACE_MS);
      await world.drive();
      expect(await statusOf(bad.id)).toMatchObject({ status: 'error' });
    });
  });

  test('ends by its owner', async () => {
    await repair('launch', async () => {
      await world.remove(who, bad.id);
      expect(await statusOf(bad.id)).toMatchObject({ status: 'stopping' });
      await report('removed');
      await world.drive();
      expect(await statusOf(bad.id)).toMatchObject({ status: 'terminated' });
    });
  });

  test('is listed and shown to the operator, who can end it', async () => {
    const { list, show, why } = openInstanceEvidence({ ...world.core, events: world.rooms.events });
    await repair('launch', async () => {
      const listed = await list({ orgId: null, machineId: null, status: null }, { count: 9 });
      expect(listed.map(({ row }) => row.id).toSorted()).toEqual([bad.id, good.id].toSorted());
      expect(await show(bad.id)).toMatchObject({ instance_id: bad.id, status: 'running', image: null });
      expect((await why(bad.id)).length).toBeGreaterThan(0);
      await world.rooms.instances.end(bad.id, 'its row cannot be read');
      expect(await statusOf(bad.id)).toMatchObject({ status: 'stopping' });
    });
  });

  test('ends at its runtime limit', async () => {
    const id = await world.run(who, { auto_terminate_hours: 1 });
    bad = { id, workloadId: (await findInstance(world.db.read, id))?.workload_id ?? '' };
    await repair('launch', async () => {
      await world.clock.advance(HOUR_MS);
      await world.drive();
      expect(await statusOf(id)).toMatchObject({
        status: 'stopping',
        status_reason: 'The runtime limit of 1 hour was reached.',
      });
    });
  });

  test('takes logins if the keys that its request names can be read', async () => {
    const access = () =>
      endpointAccess(bad.id, { db: world.db, endpoints: world.rooms.endpoints, keysOf: async () => ['key'] });
    await repair('launch', async () => {
      expect(await access()).toBeUndefined();
      await world.db.tx('test.half', (tx) =>
        tx.run(sql`update instances set request = ${JSON.stringify({ ...LAUNCH, gpu_count: 0 })} where id = ${bad.id}`),
      );
      expect(await access()).toMatchObject({ workloadId: bad.workloadId, authorizedKeys: ['key'] });
    });
  });
});
