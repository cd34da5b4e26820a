// The operator's answers about suppliers, machines, payouts, disputes and credits: the status, and every field of every row.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { clearing, payable } from '../../../control-plane/money/ledger/accounts.ts';
import { isoTime } from '../../../shared/clock.ts';
import { openOperator } from '../../kit/operator.ts';
import type { MadeMachine } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DOLLAR = 100_000_000n;

let world: World;
let http: Http;
let made: MadeMachine;
beforeEach(async () => {
  const lossBounds = { orgCreditsUcents: 0n, supplierCreditsUcents: DOLLAR, supplierPaymentsUcents: 0n };
  world = await openWorld(1, { settings: { lossBounds, earningsDelayMs: HOUR_MS } });
  ({ http } = openOperator(world));
  made = await world.machine({ gpus: 2, dollars: 1.5, region: 'eu-north' });
});
afterEach(async () => {
  await http.close();
  await world.close();
});

type Answer = { status: number; body: Record<string, unknown> & { data?: Record<string, unknown>[] } };

async function ask(method: 'GET' | 'POST', url: string, payload?: object): Promise<Answer> {
  const reply = await http.inject({ method, url, ...(payload === undefined ? {} : { payload }) });
  return { status: reply.status, body: JSON.parse(reply.body) as Answer['body'] };
}
const now = (): string => isoTime(world.clock.now());
const DOLLARS_EARNED = { accrued_cents: 100, unpaid_cents: 100, payable_cents: 100 };

/** A dollar that is payable now. */
async function earn(): Promise<void> {
  const legs = { debit: clearing, credit: payable(made.supplierId), amountUcents: DOLLAR };
  const about = { id: 'earned', kind: 'test', subjectId: 'i-1', effectiveMs: 0 };
  await world.db.tx('earn', (tx) => world.rooms.ledger.post(tx, 'earned', [{ ...legs, ...about }]));
  await world.clock.advance(HOUR_MS);
}

/** A rental of an hour for a dollar. */
async function rent(subjectId: string, orgId: string): Promise<void> {
  const where = { supplierId: made.supplierId, machineId: made.machineId, gpuType: 'H100_SXM', gpuCount: 1 };
  const rate = { rateUcentsPerHour: DOLLAR, supplierBps: 8_000, startedMs: world.clock.now() };
  await world.db.tx('rent', (tx) => world.rooms.metering.openSegment(tx, { ...where, ...rate, subjectId, orgId }));
  await world.clock.advance(HOUR_MS);
}

describe('suppliers', () => {
  const row = (patch: object): object => ({
    supplier_id: made.supplierId,
    org_id: made.orgId,
    status: 'active',
    accrued_cents: 0,
    unpaid_cents: 0,
    payable_cents: 0,
    created_at: '2026-01-01T00:00:00Z',
    ...patch,
  });

  test('are listed with what they are owed, suspended and resumed', async () => {
    const created_at = now();
    await earn();
    const standing = { ...DOLLARS_EARNED, created_at };
    expect(await ask('GET', '/admin/suppliers')).toEqual({
      status: 200,
      body: { data: [row(standing)], next_cursor: null },
    });
    const suspend = `/admin/suppliers/${made.supplierId}/suspend`;
    expect(await ask('POST', suspend)).toEqual({ status: 200, body: row({ ...standing, status: 'suspended' }) });
    expect(await ask('POST', suspend)).toMatchObject({ status: 409, body: { code: 'conflict' } });
    const resume = `/admin/suppliers/${made.supplierId}/resume`;
    expect(await ask('POST', resume)).toEqual({ status: 200, body: row(standing) });
    expect(await ask('POST', resume)).toMatchObject({ status: 409, body: { code: 'conflict' } });
  });

  test('are paid, and their payouts are listed', async () => {
    await earn();
    const path = `/admin/suppliers/${made.supplierId}/payouts`;
    const part = { supplier_id: made.supplierId, amount_cents: 40, reference: 'a', paid_at: now() };
    const first = await ask('POST', path, { cents: 40, reference: 'a' });
    expect(first).toEqual({
      status: 201,
      body: {
        ...part,
        ...DOLLARS_EARNED,
        unpaid_cents: 60,
        payable_cents: 60,
        payout_id: expect.any(String) as string,
        status: 'paid',
        created_at: now(),
        in_flight_at: now(),
        failed_at: null,
        reason: null,
        batch: null,
        chain: null,
        address: null,
      },
    });
    await world.clock.advance(1_000);
    const rest = { supplier_id: made.supplierId, amount_cents: 60, reference: 'b', paid_at: now() };
    expect(await ask('POST', path, { reference: 'b' })).toMatchObject({ status: 201, body: rest });
    const all = { status: 200, body: { data: [rest, { ...part, payout_id: first.body['payout_id'] }] } };
    expect(await ask('GET', '/admin/payouts')).toMatchObject(all);
    expect(await ask('GET', `/admin/payouts?supplier_id=${made.supplierId}`)).toMatchObject(all);
    expect(await ask('GET', '/admin/payouts?supplier_id=other')).toEqual({
      status: 200,
      body: { data: [], next_cursor: null },
    });
  });

  test.each<[string, object, number]>([
    ['more than is owed', { cents: 101, reference: 'r' }, 409],
    ['no cents', { cents: 0, reference: 'r' }, 422],
    ['a reference of no characters', { reference: '' }, 422],
    ['a reference of 256 characters', { reference: 'r'.repeat(256) }, 422],
    ['an unknown member', { reference: 'r', dollars: 1 }, 422],
  ])('are not paid %s', async (_what, body, status) => {
    await earn();
    expect((await ask('POST', `/admin/suppliers/${made.supplierId}/payouts`, body)).status).toBe(status);
    expect((await ask('GET', '/admin/payouts')).body.data).toEqual([]);
  });
});

describe('machines', () => {
  const row = (patch: object = {}): object => ({
    machine_id: made.machineId,
    name: null,
    hostname: 'host',
    supplier_id: made.supplierId,
    status: 'listed',
    approved: true,
    trusted: false,
    off_market_because: null,
    verification_status: 'unverified',
    verification_detail: null,
    online: true,
    gpus: 2,
    gpu_name: 'NVIDIA H100 80GB HBM3',
    gpu_error: '',
    gpu_faults: '',
    engine: '20.10.24',
    network_fence: 'nftables',
    fence_error: '',
    region: 'eu-north',
    price_per_hour: 1.5,
    unknown_workloads: '',
    copied_since: null,
    last_heartbeat_at: now(),
    ...patch,
  });
  const judge = (verb: string): Promise<Answer> => ask('POST', `/admin/machines/${made.machineId}/${verb}`);

  test('are listed with what keeps them off the market, suspended and approved', async () => {
    expect(await ask('GET', '/admin/machines')).toEqual({ status: 200, body: { data: [row()], next_cursor: null } });
    const suspended = { status: 'suspended', approved: false, off_market_because: 'The operator has suspended it.' };
    expect(await judge('suspend')).toEqual({ status: 200, body: row(suspended) });
    expect((await judge('suspend')).status).toBe(409);
    expect(await judge('approve')).toEqual({ status: 200, body: row() });
    expect((await judge('approve')).status).toBe(409);
  });

  test('show a copied identity until the operator confirms the host, and what the host reports', async () => {
    await world.rooms.supply.setCopied(made.machineId, true);
    const copied = (await ask('GET', '/admin/machines')).body.data?.[0];
    expect(copied).toEqual(
      row({ copied_since: now(), off_market_because: expect.stringContaining('Two hosts') as string }),
    );
    expect(await judge('unify')).toEqual({ status: 200, body: row() });
    expect((await judge('unify')).status).toBe(409);
    const uuid = made.inventory.gpus[0]?.uuid ?? '';
    const gpu_faults = [{ uuid, severity: 'broken' as const, detail: 'Xid 79' }];
    await world.rooms.supply.reportInventory(made.machineId, { ...made.inventory, gpu_faults });
    await world.db.tx('unknown', (tx) => world.rooms.supply.setUnknownWorkloads(tx, made.machineId, ['w-1', 'w-2']));
    expect((await ask('GET', '/admin/machines')).body.data).toMatchObject([
      { gpu_faults: `${uuid} is broken: Xid 79`, unknown_workloads: 'w-1, w-2' },
    ]);
    await world.rooms.supply.setAllOffline();
    expect((await ask('GET', '/admin/machines')).body.data).toMatchObject([
      { online: false, unknown_workloads: 'not reported yet' },
    ]);
  });

  test('that have not enrolled have nothing to show', async () => {
    const { machine } = await world.db.tx('register', (tx) =>
      world.rooms.supply.registerMachine(tx, made.orgId, {
        gpuCount: null,
        gpuType: null,
        vramPerGpuGb: null,
        region: 'eu',
        priceUcentsPerHour: 1n,
        tier: 'on_demand',
      }),
    );
    const nothing = { gpus: null, gpu_name: null, gpu_error: null, gpu_faults: '', engine: null, network_fence: null };
    const rows = (await ask('GET', '/admin/machines')).body.data ?? [];
    expect(rows.find((each) => each['machine_id'] === machine.id)).toMatchObject({
      ...nothing,
      fence_error: null,
      last_heartbeat_at: null,
      approved: false,
      trusted: false,
    });
  });
});

describe('disputes', () => {
  test('are opened, listed newest first, and resolved either way', async () => {
    const { orgId } = await world.customer(100_000);
    const sinceMs = world.clock.now() + HOUR_MS / 2;
    await rent('i-1', orgId);
    await rent('i-2', orgId);
    const open = { dispute_id: expect.any(String) as string, state: 'open', refunded: '0.00', note: null };
    const firstRow = { ...open, instance_id: 'i-1', reason: 'slow', since: isoTime(sinceMs), opened_at: now() };
    const first = await ask('POST', '/admin/disputes', { instance_id: 'i-1', since: isoTime(sinceMs), reason: 'slow' });
    expect(first).toEqual({ status: 201, body: { ...firstRow, resolved_at: null } });
    await world.clock.advance(1_000);
    const second = await ask('POST', '/admin/disputes', { instance_id: 'i-2', reason: 'dead' });
    const secondRow = { ...open, instance_id: 'i-2', reason: 'dead', since: null, opened_at: now() };
    expect(second).toEqual({ status: 201, body: { ...secondRow, resolved_at: null } });
    expect(await ask('GET', '/admin/disputes')).toEqual({
      status: 200,
      body: { data: [second.body, first.body], next_cursor: null },
    });
    expect((await ask('POST', '/admin/disputes', { instance_id: 'i-2', reason: 'dead' })).status).toBe(409);
    const resolve = (id: unknown, refund: boolean): Promise<Answer> =>
      ask('POST', `/admin/disputes/${String(id)}/resolve`, { refund, note: 'seen' });
    // Posts two hours, of which an hour and a half is disputed. Each hour is posted half an hour after its end at the latest.
    await world.clock.advance(HOUR_MS / 2);
    const resolved = { note: 'seen', resolved_at: now() };
    await world.rooms.metering.tick(new AbortController().signal);
    expect(await resolve(first.body['dispute_id'], true)).toEqual({
      status: 200,
      body: { ...first.body, ...resolved, state: 'refunded', refunded: '1.50' },
    });
    expect(await resolve(second.body['dispute_id'], false)).toEqual({
      status: 200,
      body: { ...second.body, ...resolved, state: 'released' },
    });
    expect((await resolve(second.body['dispute_id'], true)).status).toBe(409);
  });

  test.each<[string, object]>([
    ['without a reason', { instance_id: 'i-1', reason: '' }],
    ['with a reason of 1001 characters', { instance_id: 'i-1', reason: 'x'.repeat(1_001) }],
    ['since a time without a zone', { instance_id: 'i-1', reason: 'x', since: '2026-01-01T00:00:00' }],
    ['with an unknown member', { instance_id: 'i-1', reason: 'x', refund: true }],
  ])('are refused %s', async (_what, body) => {
    expect((await ask('POST', '/admin/disputes', body)).status).toBe(422);
  });
});

describe('credits', () => {
  /** An hour that is not charged, above the bound of nothing. */
  async function lose(subjectId: string, orgId: string): Promise<void> {
    await rent(subjectId, orgId);
    const fromMs = world.clock.now() - HOUR_MS;
    await world.db.tx('lose', async (tx) => {
      await world.rooms.metering.closeSegment(tx, subjectId, fromMs, 'no banner');
      await world.rooms.metering.releaseHold(tx, subjectId, orgId);
    });
  }

  test('that wait are listed first, and decided either way', async () => {
    const { orgId } = await world.customer(100_000);
    const from = now();
    await lose('i-1', orgId);
    const row = {
      credit_id: expect.any(String) as string,
      state: 'held',
      kind: 'credit',
      because: 'org_bound',
      dollars: '1.00',
      uncovered_dollars: '0.00',
      org_id: orgId,
      supplier_id: made.supplierId,
      instance_id: 'i-1',
      cause: 'outage',
      from,
      until: now(),
      evidence: 'no banner',
      note: null,
      decided_at: null,
    };
    expect(await ask('GET', '/admin/credits')).toEqual({ status: 200, body: { data: [row], next_cursor: null } });
    await lose('i-2', orgId);
    await lose('i-3', orgId);
    const ids = async (): Promise<unknown[]> =>
      ((await ask('GET', '/admin/credits')).body.data ?? []).map((each) => [each['instance_id'], each['state']]);
    const waiting = (await ask('GET', '/admin/credits')).body.data ?? [];
    const decide = (at: number, verb: string): Promise<Answer> =>
      ask('POST', `/admin/credits/${String(waiting[at]?.['credit_id'])}/${verb}`, { note: 'seen' });
    const decided = { note: 'seen', decided_at: now() };
    expect(await decide(0, 'release')).toEqual({ status: 200, body: { ...waiting[0], ...decided, state: 'released' } });
    expect(await decide(1, 'refuse')).toEqual({ status: 200, body: { ...waiting[1], ...decided, state: 'refused' } });
    expect((await decide(1, 'release')).status).toBe(409);
    expect(await ids()).toEqual([
      ['i-1', 'held'],
      ['i-3', 'released'],
      ['i-2', 'refused'],
    ]);
  });

  test('say what the balance of the customer does not cover', async () => {
    await lose('i-1', (await world.customer(40)).orgId);
    const { body } = await ask('GET', '/admin/credits');
    expect(body.data).toMatchObject([{ dollars: '1.00', uncovered_dollars: '0.60' }]);
  });

  test('of a flagged organisation wait until the operator trusts it', async () => {
    expect(await ask('GET', '/admin/credit-flags')).toEqual({ status: 200, body: { data: [], next_cursor: null } });
    await world.db.tx('flag', (tx) =>
      tx.run(
        sql`insert into credit_flags (org_id, flagged_ms, trusted_ms, detail) values ('o-1', 0, null, 'five'), ('o-2', null, 0, 'x')`,
      ),
    );
    const flag = { org_id: 'o-1', flagged_at: isoTime(0), trusted_at: null, detail: 'five' };
    expect(await ask('GET', '/admin/credit-flags')).toEqual({ status: 200, body: { data: [flag], next_cursor: null } });
    const trusted = { ...flag, flagged_at: null, trusted_at: now(), detail: 'lifted: seen' };
    expect(await ask('POST', '/admin/credit-flags/o-1/trust', { note: 'seen' })).toEqual({
      status: 200,
      body: trusted,
    });
    for (const id of ['o-1', 'o-2', 'nobody']) {
      expect((await ask('POST', `/admin/credit-flags/${id}/trust`, { note: 'seen' })).status).toBe(404);
    }
  });

  test.each(['', 'x'.repeat(1_001)])('are decided with a note of 1 to 1000 characters, not %j', async (note) => {
    expect((await ask('POST', '/admin/credits/crd_1/release', { note })).status).toBe(422);
    expect((await ask('POST', '/admin/credits/crd_1/release', { note: 'x'.repeat(1_000) })).status).toBe(404);
  });
});
