// What an operator reads about a rental: its bill, the evidence for it, and how it ended.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql, type Tx } from '../../../control-plane/base/db/db.ts';
import type { Fields } from '../../../control-plane/base/http/operator.ts';
import { type InstanceEvidence, openInstanceEvidence } from '../../../control-plane/admin/instance-evidence.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { MadeMachine } from '../../kit/machines.ts';
import { findRental, type RentalRow } from '../../../control-plane/rental/instances/store.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DOLLAR = 100_000_000n;

let world: World;
let made: MadeMachine;
let who: WorldAccount;
beforeEach(async () => {
  const lossBounds = { orgCreditsUcents: DOLLAR, supplierCreditsUcents: DOLLAR, supplierPaymentsUcents: DOLLAR };
  world = await openWorld(1, { settings: { lossBounds } });
  made = await world.machine({ gpus: 4, dollars: 2 });
  who = await world.customer(1_000_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const evidence = (): InstanceEvidence => openInstanceEvidence({ ...world.core, events: world.rooms.events });
const end = (id: string, reason: string): Promise<Fields> =>
  world.rooms.instances.end(id, reason).then((row) => evidence().bill(row));
const list = async (filter: Partial<Parameters<InstanceEvidence['list']>[0]> = {}, count = 100): Promise<Fields[]> =>
  (await evidence().list({ orgId: null, machineId: null, status: null, ...filter }, { count })).map(
    ({ fields }) => fields,
  );
const ids = (rows: Fields[]): unknown[] => rows.map((row) => row['instance_id']);

const operationOf = async (id: string): Promise<unknown> => {
  const row = await findInstance(world.db.read, id);
  return (await world.rooms.operations.find(world.db.read, row?.create_operation_id ?? '', who.principalId))?.state;
};

describe('the list', () => {
  test('shows the charge of each rental, posted or not, and can be filtered by organisation, machine and status', async () => {
    const first = await world.run(who);
    await world.clock.advance(HOUR_MS / 2);
    const waiting = await world.launch(await world.customer(10_000));
    expect(ids(await list())).toEqual([waiting, first]);
    const [row] = await list({ orgId: who.orgId });
    expect(row).toMatchObject({
      instance_id: first,
      status: 'running',
      gpus: '1 H100_SXM',
      billed_seconds: 1_800,
      cost: '1.00',
    });
    expect(ids(await list({ machineId: made.machineId }, 1))).toEqual([waiting]);
    expect(await list({ machineId: 'none' })).toEqual([]);
    expect(ids(await list({ status: 'running' }))).toEqual([first]);
    await world.end(who, first);
    expect(ids(await list())).toEqual([waiting]);
    expect(ids(await list({ status: 'any', orgId: who.orgId }))).toEqual([first]);
  });
});

describe('why', () => {
  test('lists events, charged time, uncharged time and held credits, disputes and postings, ordered by time', async () => {
    const id = await world.run(who);
    await world.clock.advance(2.5 * HOUR_MS);
    await world.rooms.metering.tick(new AbortController().signal);
    const sinceMs = world.clock.now() - 1.5 * HOUR_MS;
    await world.db.tx('outage', (tx) => world.rooms.metering.closeSegment(tx, id, sinceMs, '3 failed probes: banner'));
    await world.clock.advance(HOUR_MS);
    await end(id, 'the host is gone');
    await world.observe(id, { phase: 'removed' });
    await world.drive();
    await world.rooms.payouts.disputes.open({ instanceId: id, sinceMs: null, reason: 'it was slow' });
    const rows = await evidence().why(id);
    const times = rows.map((row) => Date.parse(String(row['at'])));
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    const of = (what: string): Fields => rows.find((row) => row['what'] === what) ?? {};
    expect(of('instance.running')).toMatchObject({ detail: `machine ${made.machineId}` });
    expect(of('charged')).toMatchObject({ dollars: '2.00', detail: `$2.00 an hour, machine ${made.machineId}` });
    expect(of('not charged: outage')).toMatchObject({
      dollars: '1.00',
      detail: '3 failed probes: banner; $4.00 more is held',
    });
    expect(of('credit held: org_bound')).toMatchObject({ dollars: '4.00' });
    expect(of('posted rental.refund_charge')).toMatchObject({ dollars: '2.00', detail: '3 failed probes: banner' });
    expect(of('dispute open')).toMatchObject({ detail: 'it was slow' });
    expect(of('probes now')['detail']).toContain('failures 0');
    expect(of('instance.stopping')).toMatchObject({ detail: 'Ended by the operator: the host is gone' });
  });

  test('ends uncharged time where the charge goes on, as the bill does', async () => {
    const id = await world.run(who);
    await world.clock.advance(HOUR_MS);
    const { instances } = world.rooms;
    const inVerdict = (body: (tx: Tx, row: RentalRow) => Promise<boolean>): Promise<boolean> =>
      world.db.tx('test.verdict', async (tx) => {
        const row = await findRental(tx, id);
        return row !== undefined && body(tx, row);
      });
    const sinceMs = world.clock.now();
    await inVerdict((tx, row) => instances.confirmOutage(tx, row, { sinceMs, evidence: 'dead' }));
    await world.clock.advance(HOUR_MS / 2);
    const goodMs = world.clock.now() - 5_000;
    await inVerdict((tx, row) => instances.endOutage(tx, row, goodMs));
    const rows = await evidence().why(id);
    const outage = rows.find((row) => row['what'] === 'not charged: outage');
    const charges = rows.filter((row) => row['what'] === 'charged');
    expect(outage?.['until']).toBe(new Date(goodMs).toISOString());
    expect(charges.at(-1)?.['at']).toBe(outage?.['until']);
  });

  test('lists the newest thousand charged times of a rental that had more', async () => {
    const id = await world.run(who);
    await world.db.tx('test.segments', async (tx) => {
      for (let ms = 1; ms <= 1_000; ms += 1)
        await tx.run(
          sql`insert into meter_segments (id, subject_id, org_id, supplier_id, gpu_type, gpu_count, rate_ucents_per_hour, supplier_bps, started_ms,
                posted_through_ms, ended_ms, machine_id)
              values (${`seg-${ms}`}, ${id}, ${who.orgId}, ${made.supplierId}, 'H100', 1, 0, 0, ${ms}, ${ms}, ${ms}, ${made.machineId})`,
        );
    });
    const charged = (await evidence().why(id)).filter((row) => row['what'] === 'charged');
    expect(charged).toHaveLength(1_000);
    expect(Date.parse(String(charged[0]?.['at']))).toBe(2);
    expect(charged.at(-1)).toMatchObject({ until: null });
  });

  test('and show answer not_found for an unknown instance', async () => {
    await expect(evidence().why('i-none')).rejects.toMatchObject({ code: 'not_found' });
    await expect(evidence().show('i-none')).rejects.toMatchObject({ code: 'not_found' });
    await expect(end('i-none', 'x')).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('an end that the operator orders', () => {
  test('stops a running rental, which is charged until then and shows the reason; a second order is a conflict', async () => {
    const id = await world.run(who);
    await world.clock.advance(HOUR_MS);
    expect(await end(id, 'mining')).toMatchObject({
      status: 'stopping',
      billed_seconds: 3_600,
      cost: '2.00',
    });
    await expect(end(id, 'mining')).rejects.toMatchObject({ code: 'conflict' });
    expect((await world.rooms.workloads.desired(made.machineId)).workloads).toMatchObject([{ desired: 'removed' }]);
    await world.observe(id, { phase: 'removed' });
    await world.drive();
    const shown = await evidence().show(id);
    expect(shown).toMatchObject({ status: 'terminated', status_reason: 'Ended by the operator: mining', cost: '2.00' });
    expect(await world.journal(id)).toContain('instance.terminated');
    expect((await gpusOf(world.db.read, made.machineId)).filter((gpu) => gpu.held_by !== null)).toEqual([]);
  });

  test('cancels a launch without a bill', async () => {
    const id = await world.launch(who);
    await world.observe(id, { phase: 'pulling' });
    await world.drive();
    expect(await end(id, 'abuse')).toMatchObject({ status: 'terminated', billed_seconds: 0, cost: '0.00' });
    expect(await operationOf(id)).toBe('cancelled');
  });
});
