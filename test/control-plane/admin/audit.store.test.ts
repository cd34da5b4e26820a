// The audit journal: every action of an operator writes one entry, committed together with its effect.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { pageOfOrgs } from '../../../control-plane/base/accounts/orgs.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { pageOfHeld } from '../../../control-plane/money/credits/store.ts';
import { insertReplica, setState, wakePool } from '../../../control-plane/models/replicas/store.ts';
import { clearing, payable, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import type { Route } from '../../../control-plane/base/http/route.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { isoTime } from '../../../shared/clock.ts';
import { type EvmChain, startEvmChain } from '../../kit/evm-chain.ts';
import { loseHost } from '../../kit/machines.ts';
import { openOperator } from '../../kit/operator.ts';
import { fleetModels } from '../../kit/models.ts';
import { addPerson } from '../../kit/people.ts';
import { openWorld, type World } from '../../kit/world.ts';
import { depositsIn, settingsFor } from '../money/deposits/deposit-world.ts';

let chain: EvmChain;
beforeAll(async () => {
  chain = await startEvmChain(Date.UTC(2025, 11, 31));
});
afterAll(() => chain.close());

let world: World;
let routes: Route[];
let http: Http;
beforeEach(async () => {
  await chain.reset();
  world = await openWorld(1, { settings: { models: fleetModels(), deposits: settingsFor(chain, { oracle: null }) } });
  const operator = openOperator(world);
  http = operator.http;
  routes = operator.routes.filter((each) => each.method !== 'GET');
});
afterEach(async () => {
  await http.close();
  await world.close();
});

const entries = () => world.audit.list(world.db.read, {}, { count: 100 });

async function call(route: Route, id: string, body?: object): Promise<{ status: number; code?: string; id?: string }> {
  const reply = await http.inject({
    method: route.method,
    url: route.path.replace('{id}', id).replace('{workload_id}', 'w-lost'),
    headers: { 'svc-operator': 'alice', 'x-request-id': `req-${route.operationId}` },
    ...(body === undefined ? {} : { payload: body }),
  });
  const isJson = reply.headers['content-type']?.includes('json') === true;
  const answer = (isJson ? JSON.parse(reply.body) : {}) as { code?: string; id?: string; reservation_id?: string };
  const made = answer.id ?? answer.reservation_id;
  return { ...answer, ...(made === undefined ? {} : { id: made }), status: reply.status };
}

const byName = (name: string): Route => routes.find((each) => each.operationId === name) as Route;

/** The request to each route. A new route has no line here yet and fails the test below. */
async function requests(): Promise<Record<string, { id?: string; body?: object }>> {
  const { machineId } = await world.machine({ gpus: 8 });
  const other = await world.machine();
  await world.rooms.workloads.observe(other.machineId, {
    type: 'observed',
    held: null,
    workloads: [],
    unknown_workload_ids: ['w-lost'],
  });
  await earn(other.supplierId);
  const rented = await world.launch(await world.customer(100_000));
  const { orgId } = await world.customer(1);
  const key = await world.rooms.accounts.createKey({ orgId, name: 'a', scopes: ['full_access'], expiresMs: null });
  const term = (days: number): string => isoTime(world.clock.now() + days * 86_400_000);
  const reservation = {
    org_id: orgId,
    title: 'training',
    starts_at: term(0),
    ends_at: term(30),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: 1, region: 'eu-west' }],
  };
  const made = await call(byName('adminCreateReservation'), '', reservation);
  const contract = { id: made.id ?? '' };
  const person = await addPerson(world, undefined);
  const disputed = await dispute();
  const waiting = await holdCredits(orgId);
  const flying = await exportPayouts();
  const deposited = await deposits();
  await world.rooms.supply.setCopied(machineId, true);
  const gone = await world.machine();
  await loseHost(world, gone.machineId);
  await world.db.tx('test.clear', (tx) => tx.run(sql`delete from audit_entries`));
  return {
    adminCreateOrg: { body: { name: 'Acme' } },
    adminSuspendOrg: { id: orgId, body: { reason: 'fraud' } },
    adminResumeOrg: { id: orgId },
    adminAddUser: { body: { email: 'ada@example.com', name: 'Ada' } },
    adminResetUser: { id: (await addPerson(world, undefined)).userId },
    adminPromoteUser: { id: person.userId, body: { reason: 'hired' } },
    adminDemoteUser: { id: person.userId, body: { reason: 'another task' } },
    adminAddMember: { id: orgId, body: { user: person.userId, role: 'billing' } },
    adminBlockUser: { id: person.userId, body: { reason: 'left' } },
    adminUnblockUser: { id: person.userId, body: { reason: 'is back' } },
    adminCreateKey: { body: { org_id: orgId, name: 'ci', scopes: ['full_access'] } },
    adminRevokeKey: { id: key.id },
    adminAddBalance: { id: orgId, body: { cents: 5, reference: 'r' } },
    adminWarnBalance: { id: orgId, body: { below_hours: [48, 2] } },
    adminRefund: { body: { subject_id: await paid(), reason: 'r', reference: 'r' } },
    adminGrantCredit: { body: { org_id: orgId, amount: '1', reason: 'r', reference: 'r' } },
    adminAdjustBalance: { body: { org_id: orgId, direction: 'up', amount: '1', reason: 'r', reference: 'r' } },
    adminSuspendMachine: { id: machineId },
    adminApproveMachine: { id: machineId },
    adminUnifyMachine: { id: machineId },
    adminTrustMachine: { id: machineId },
    adminDistrustMachine: { id: machineId },
    adminRemoveUnknownWorkload: { id: other.machineId },
    adminLoseMachine: { id: gone.machineId, body: { reason: 'its disk died' } },
    adminSuspendSupplier: { id: other.supplierId },
    adminResumeSupplier: { id: other.supplierId },
    adminExportPayouts: { body: { batch: 'b' } },
    adminPayoutSent: { id: flying.first, body: { reference: '0x1' } },
    adminPayoutFailed: { id: flying.second, body: { reason: 'no gas' } },
    adminCreatePayout: { id: other.supplierId, body: { reference: 'r' } },
    adminOpenDispute: { body: { instance_id: disputed.next, reason: 'no GPU' } },
    adminResolveDispute: { id: disputed.id, body: { refund: true, note: 'seen' } },
    adminEndInstance: { id: rented, body: { reason: 'abuse' } },
    adminReleaseCredit: { id: waiting.first, body: { note: 'seen' } },
    adminRefuseCredit: { id: waiting.second, body: { note: 'seen' } },
    adminTrustTenant: { id: orgId, body: { note: 'seen' } },
    adminCreateReservation: { body: reservation },
    adminExtendReservation: { id: contract.id, body: { ends_at: term(60) } },
    adminSuspendReservation: contract,
    adminResumeReservation: contract,
    adminReassignReservation: contract,
    adminCancelReservation: contract,
    adminScaleModel: { body: { model: 'acme/tiny:economy', min_replicas: 1, max_replicas: null } },
    adminDrainReplica: { id: await readyReplica() },
    adminCreditDeposit: { id: deposited.held, body: { reason: 'asked' } },
    adminRejectDeposit: { id: deposited.open, body: { reason: 'asked' } },
    adminReturnedDeposit: { id: deposited.wrong, body: { tx_hash: deposited.wrongHash, reason: 'sent back' } },
    adminRescanDeposit: { id: deposited.held, body: { tx_hash: deposited.hash, reason: 'asked' } },
    adminRewindDepositChain: { id: 'ethereum', body: { block: 1, reason: 'asked' } },
    adminImportDepositAddresses: { body: { addresses: ['EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v'] } },
    adminRetireDepositAddresses: { body: { reason: 'restored' } },
    adminImportSanctioned: { body: { source: 'x', addresses: [chain.sanctioned] } },
    adminReplayWebhookEndpoint: { id: await endpoint(orgId), body: { since: term(-30), reason: 'asked' } },
    adminPause: { id: 'launches', body: { reason: 'an attack' } },
    adminResume: { id: 'launches' },
    adminVerifyLedger: {},
    adminRotateUrlKey: { body: { revoke: true } },
    adminReload: {},
  };
}

/** A webhook endpoint. */
async function endpoint(orgId: string): Promise<string> {
  const request = { url: 'https://example.com/hook', event_types: ['instance.running' as const] };
  return (await world.db.tx('test.endpoint', (tx) => world.rooms.webhooks.create(tx, orgId, request))).id;
}

/** A replica that answers. */
async function readyReplica(): Promise<string> {
  const id = 'rep_ready';
  const [deployment] = world.rooms.catalog.models.map(({ economy }) => economy?.deployment);
  if (deployment === undefined) throw new Error('the world has a model on the fleet');
  const nowMs = world.clock.now();
  await world.db.tx('test.pool', (tx) => wakePool(tx, 'acme/tiny:economy', nowMs));
  await world.db.tx('test.replica', (tx) => insertReplica(tx, { id, poolId: 'acme/tiny:economy', deployment, nowMs }));
  await world.db.tx('test.ready', (tx) => setState(tx, { id, state: 'starting' }, { state: 'ready', nowMs }));
  return id;
}

/** Two payouts that are in flight. */
async function exportPayouts(): Promise<{ first: string; second: string }> {
  const [first, second] = ['flying-1', 'flying-2'];
  for (const id of [first, second]) {
    await world.db.tx('test.payout', (tx) =>
      tx.run(
        sql`insert into payouts (id, supplier_id, state, amount_ucents, created_ms, in_flight_ms) values (${id}, 's', 'in_flight', 1, 0, 0)`,
      ),
    );
  }
  return { first, second };
}

/** A deposit whose sender nobody can check, with its transaction, one that waits, and one with another token in suspense. */
async function deposits(): Promise<{ held: string; hash: string; open: string; wrong: string; wrongHash: string }> {
  const { settle, create } = depositsIn(world, await world.customer(0));
  await chain.finalize(world.clock.now() + 1_000);
  await settle();
  const [held, open, wrong] = [await create(), await create(), await create()];
  const hash = await chain.pay(held.address, 25_000_000n, world.clock.now() + 60_000);
  const wrongHash = await chain.pay(wrong.address, 25_000_000n, world.clock.now() + 60_000, {
    token: chain.tokens.usdt,
  });
  await chain.finalize(world.clock.now() + 61_000);
  await settle();
  return { held: held.id, hash, open: open.id, wrong: wrong.id, wrongHash };
}

/** Two held credits, and a flag on the organisation. */
async function holdCredits(orgId: string): Promise<{ first: string; second: string }> {
  const { credits } = world.rooms;
  const time = { orgId, supplierId: 's', machineId: 'm', cause: 'outage' as const, evidence: 'x', fromMs: 0 };
  await world.db.tx('test.flag', (tx) =>
    tx.run(sql`insert into credit_flags (org_id, flagged_ms, detail) values (${orgId}, 1, 'x')`),
  );
  for (const subjectId of ['i-free-1', 'i-free-2']) {
    await world.db.tx('test.free', async (tx) => {
      const rate = { rateUcentsPerHour: 100_000_000n, supplierBps: 8_000, countedMs: 3_600_000 };
      await credits.begin(tx, { ...time, ...rate, subjectId });
      await credits.end(tx, subjectId, world.clock.now());
    });
  }
  const [first, second] = await pageOfHeld(world.db.read, { count: 2 });
  return { first: first?.id ?? '', second: second?.id ?? '' };
}

/** An open dispute, and the rental of the next one. */
async function dispute(): Promise<{ id: string; next: string }> {
  const { metering, payouts } = world.rooms;
  const { orgId } = await world.customer(1_000);
  const rate = {
    rateUcentsPerHour: 100_000_000n,
    supplierBps: 8_000,
    gpuType: 'H100_SXM',
    gpuCount: 1,
    machineId: 'm',
  };
  for (const subjectId of ['i-disputed', 'i-next']) {
    await world.db.tx('test.rent', (tx) =>
      metering.openSegment(tx, { ...rate, subjectId, orgId, supplierId: 's', startedMs: world.clock.now() - 1_000 }),
    );
  }
  const { id } = await payouts.disputes.open({ instanceId: 'i-disputed', sinceMs: null, reason: 'x' });
  return { id, next: 'i-next' };
}

/** A charge. */
async function paid(): Promise<string> {
  const { orgId } = await world.customer(1);
  const transfer = { id: 'paid', debit: wallet(orgId), credit: revenue, amountUcents: 1n, kind: 'inference.charge' };
  const about = { subjectId: 'rcp_paid', effectiveMs: 0 };
  await world.db.tx('test.paid', (tx) => world.rooms.ledger.post(tx, 'paid', [{ ...transfer, ...about }]));
  return 'rcp_paid';
}

/** A dollar from nowhere. */
async function earn(supplierId: string): Promise<void> {
  const transfer = { id: 'earned', debit: clearing, credit: payable(supplierId), amountUcents: 100_000_000n };
  const about = { kind: 'test', subjectId: 'i-1', effectiveMs: 0 };
  await world.db.tx('test.earn', (tx) => world.rooms.ledger.post(tx, 'earned', [{ ...transfer, ...about }]));
}

describe('every route that changes something', () => {
  test('writes one entry with its outcome, also for a refused request', async () => {
    const known = await requests();
    expect(Object.keys(known).toSorted()).toEqual(routes.map((each) => each.operationId).toSorted());
    for (const [name, { id, body }] of Object.entries(known)) {
      const before = (await entries()).length;
      const answer = await call(byName(name), id ?? '', body);
      const now = await entries();
      expect({ name, status: answer.status, made: now.length - before, entry: now[0] }).toMatchObject({
        name,
        status: expect.toSatisfy((status: number) => status < 300),
        made: 1,
        entry: {
          actor: 'alice',
          operation: name,
          outcome: 'ok',
          request_id: `req-${name}`,
          subject_id: id ?? answer.id ?? null,
          parameters: body ?? {},
        },
      });
      if (id === undefined) continue;
      const refused = await call(byName(name), 'nobody', body);
      expect({ name, status: refused.status }).toEqual({ name, status: 404 });
      expect((await entries())[0]).toMatchObject({ operation: name, outcome: 'not_found', subject_id: 'nobody' });
    }
  });

  test('has no effect if it cannot be recorded', async () => {
    await world.db.tx('test.break', (tx) => tx.run(sql`drop table audit_entries`));
    const before = await pageOfOrgs(world.db.read, { count: 10 });
    expect(await call(byName('adminCreateOrg'), '', { name: 'Acme' })).toMatchObject({ status: 500 });
    expect(await pageOfOrgs(world.db.read, { count: 10 })).toEqual(before);
  });
});

const QUERIES = [
  '',
  '?chain=ethereum',
  '?limit=5',
  '?model=acme/tiny:economy',
  '?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z',
];
const takes = ({ query }: Route, text: string): boolean =>
  query?.safeParse(Object.fromEntries(new URLSearchParams(text))).success !== false;

test('every route of the operator declares one status for success, and answers with it', async () => {
  const known = await requests();
  const lists = openOperator(world).routes.filter(({ method, path }) => method === 'GET' && !path.includes('{'));
  const asked = [
    ...Object.entries(known).map(([name, { id, body }]) => ({ route: byName(name), id: id ?? '', body })),
    ...lists.map((route) => ({ route, id: '', body: undefined })),
  ];
  for (const { route, id, body } of asked) {
    const query = QUERIES.find((each) => takes(route, each)) ?? '';
    const { status } = await call({ ...route, path: `${route.path}${query}` }, id, body);
    const { operationId: name } = route;
    expect({ name, declared: Object.keys(route.responses) }).toEqual({ name, declared: [String(status)] });
  }
});

describe('an entry', () => {
  test('of an effect that was rolled back has the reason, and exists once', async () => {
    const action = { actor: 'a', operation: 'o', subjectId: null, parameters: {}, requestId: 'r' };
    const work = async (): Promise<never> => {
      await world.audit.db.tx('first', async (tx) => {
        await tx.run(sql`insert into orgs (id, name, created_ms) values ('o-1', 'first', 0)`);
      });
      return world.audit.db.tx('second', async () => {
        throw new Error('broken');
      });
    };
    await expect(world.audit.run(action, work, () => null)).rejects.toThrow('broken');
    expect(await entries()).toMatchObject([{ outcome: 'internal_error' }]);
  });
  test('contains no secret, at any depth', async () => {
    const parameters = { name: 'x', password: 'hush', inner: [{ enrollment_token: 'hush', client_secret: 'hush' }] };
    const action = { actor: 'a', operation: 'o', subjectId: null, parameters, requestId: 'r' };
    await world.audit.run(
      action,
      async () => undefined,
      () => 'made',
    );
    const [entry] = await entries();
    expect(JSON.stringify(entry)).not.toContain('hush');
    expect(entry).toMatchObject({ subject_id: 'made', outcome: 'ok', parameters: { name: 'x' } });
  });
  test('has the beginning of a long list and its length, so that a page of entries stays readable', async () => {
    const addresses = Array.from({ length: 10_000 }, (_, i) => `0x${String(i).padStart(40, '0')}`);
    const action = { actor: 'a', operation: 'o', subjectId: null, parameters: { addresses }, requestId: 'r' };
    await world.audit.run(
      action,
      async () => undefined,
      () => null,
    );
    const [entry] = await entries();
    expect(entry?.parameters).toEqual({ addresses: [...addresses.slice(0, 20), 'and 9980 more'] });
  });
  test('is not written for work that a room does by itself', async () => {
    await world.customer(1);
    expect(await entries()).toEqual([]);
  });
  test('is found by its time, also at the exact moment', async () => {
    const route = byName('adminCreateOrg');
    await call(route, '', { name: 'one' });
    await world.clock.advance(1000);
    const sinceMs = world.clock.now();
    await call(route, '', { name: 'two' });
    const list = async (ms: number): Promise<unknown[]> =>
      (await world.audit.list(world.db.read, { sinceMs: ms }, { count: 100 })).map((entry) => entry.parameters);
    expect(await list(sinceMs)).toEqual([{ name: 'two' }]);
    expect(await list(sinceMs + 1)).toEqual([]);
    expect(await list(0)).toEqual([{ name: 'two' }, { name: 'one' }]);
    expect(await world.audit.list(world.db.read, {}, { count: 1 })).toHaveLength(1);
  });
  test('is found by who did what to which thing', async () => {
    const { id } = await call(byName('adminCreateOrg'), '', { name: 'one' });
    await call(byName('adminResumeOrg'), id ?? '');
    const found = async (which: object): Promise<string[]> =>
      (await world.audit.list(world.db.read, which, { count: 9 })).map(({ operation }) => operation);
    expect(await found({ actor: 'alice', subjectId: id })).toEqual(['adminResumeOrg', 'adminCreateOrg']);
    expect(await found({ subjectId: id, operation: 'adminResumeOrg' })).toEqual(['adminResumeOrg']);
    expect(await found({ actor: 'bob' })).toEqual([]);
  });
  test('of a command without an operator name has a placeholder', async () => {
    await http.inject({ method: 'POST', url: '/admin/orgs', payload: { name: 'x' } });
    await http.inject({
      method: 'POST',
      url: '/admin/orgs',
      payload: { name: 'x' },
      headers: { 'svc-operator': `r\u00e9\t${'x'.repeat(200)}` },
    });
    expect((await entries()).map((entry) => entry.actor)).toEqual([`r??${'x'.repeat(125)}`, 'unknown']);
  });
});

test('a reference of another amount is refused, and nothing is added', async () => {
  const { orgId } = await world.customer(1);
  const add = (cents: number) => call(byName('adminAddBalance'), orgId, { cents, reference: 'invoice 7' });
  expect(await add(500)).toMatchObject({ status: 200, balance_cents: 501 });
  expect(await add(500)).toMatchObject({ status: 200, balance_cents: 501 });
  expect(await add(700)).toMatchObject({ status: 409, code: 'conflict', detail: expect.stringContaining('invoice 7') });
  expect((await entries())[0]).toMatchObject({ operation: 'adminAddBalance', outcome: 'conflict' });
  expect(await add(500)).toMatchObject({ balance_cents: 501 });
});
