// GET /v1/instance-costs: what each instance of a page has cost, to the microcent, in a constant number of queries.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { InstanceBill, InstanceCost } from '../../shared/api/instance-bill.ts';
import { SPANS_MAX } from '../../shared/api/instance-bill.ts';
import { isoTime } from '../../shared/clock.ts';
import { PAGE_MAX } from '../../shared/limits.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { instanceCosts } from '../../control-plane/money/bill/instance-costs.ts';
import { rentalsOf } from '../../control-plane/rental/instances/store.ts';
import { countingDb } from '../kit/counting-db.ts';
import { heldOf } from '../../control-plane/money/credits/store.ts';
import { openOperator } from '../kit/operator.ts';
import { watchFor } from '../kit/watching.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let api: Api;
let owner: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  owner = await api.account();
  await api.world.machine({ dollars: 1.29, gpus: 4 });
});
afterEach(async () => {
  await api.world.verify();
  await api.close();
});

async function costs(query = '', key = owner.key): Promise<InstanceCost[]> {
  const { status, json } = await api.call('GET', `/v1/instance-costs${query}`, { key });
  expect(status).toBe(200);
  return json['data'] as unknown as InstanceCost[];
}

async function costOf(id: string): Promise<InstanceCost> {
  const [found] = await costs(`?instance_ids=${id}`);
  if (found === undefined) throw new Error(`${id} is not in the answer`);
  return found;
}

async function billOf(id: string): Promise<InstanceBill> {
  return (await api.call('GET', `/v1/instances/${id}/bill`, { key: owner.key })).json as unknown as InstanceBill;
}

const tick = () => api.world.rooms.metering.tick(new AbortController().signal);

const watch = (ms: number): Promise<void> => watchFor(api.world, ms);

test('equals each bill to the microcent, newest first: running, posted in part, refunded, credited, never placed', async () => {
  const old = await api.world.run(owner);
  await api.world.clock.advance(2 * HOUR_MS + 1_234);
  await tick();
  const refunded = await api.world.run(owner);
  await api.world.clock.advance(777_777);
  await api.world.end(owner, refunded);
  const refund = { subject_id: refunded, amount: '0.00000007', reference: 'r1', reason: 'slow disk' };
  await openOperator(api.world).ask('POST', '/admin/corrections/refunds', refund);
  const credited = await api.world.run(owner);
  await watch(MINUTE_MS);
  api.world.probeAnswers.set(credited, DEAD);
  await watch(5 * MINUTE_MS);
  const waiting = await api.world.launch(owner);
  const found = await costs();
  expect(found.map(({ instance_id: id }) => id)).toEqual([waiting, credited, refunded, old]);
  for (const { instance_id: id, cost, posted } of found) {
    const { totals } = await billOf(id);
    expect([id, cost, posted]).toEqual([id, totals.cost, totals.posted]);
  }
  expect(found.map(({ cost }) => cost === '0.00')).toEqual([true, false, false, false]);
});

describe('equals the bill', () => {
  const same = async (id: string): Promise<InstanceBill['totals']> => {
    const { totals } = await billOf(id);
    expect(await costOf(id)).toMatchObject({ cost: totals.cost, posted: totals.posted });
    return totals;
  };

  test('of an instance whose balance was used up', async () => {
    owner = await api.world.customer(100);
    const id = await api.world.run(owner);
    await api.world.clock.advance(3 * HOUR_MS);
    await api.world.end(owner, id);
    expect(await same(id)).toMatchObject({ cost: '1.00', posted: '1.00' });
  });

  test.each(['release', 'refuse'] as const)('of a credit that waits, before and after a decision: %s', async (verb) => {
    await api.close();
    const lossBounds = { orgCreditsUcents: 1_000n, supplierCreditsUcents: 1_000n, supplierPaymentsUcents: 0n };
    api = await openApi({ settings: { lossBounds } });
    owner = await api.account();
    await api.world.machine({ dollars: 1.29 });
    const id = await api.world.run(owner);
    await watch(MINUTE_MS);
    api.world.probeAnswers.set(id, DEAD);
    await watch(5 * MINUTE_MS);
    api.world.probeAnswers.delete(id);
    await watch(MINUTE_MS);
    await api.world.end(owner, id);
    expect((await same(id)).held_credits).not.toBe('0.00');
    const [waiting] = await heldOf(api.world.db.read, id);
    await api.world.rooms.credits[verb](waiting?.id ?? '', 'seen');
    await same(id);
  });

  test('of a rental whose time was disputed and given back', async () => {
    const id = await api.world.run(owner);
    const startMs = api.world.clock.now();
    await api.world.clock.advance(3 * HOUR_MS);
    await tick();
    const { disputes } = api.world.rooms.payouts;
    const dispute = await disputes.open({ instanceId: id, sinceMs: startMs + HOUR_MS, reason: 'wrong GPU' });
    await disputes.resolve(dispute.id, { refund: true, note: 'agreed' });
    await same(id);
    await api.world.clock.advance(HOUR_MS);
    await tick();
    await same(id);
  });
});

test('says when an instance started, was charged, and was not charged, within the last 24 hours', async () => {
  const launchedMs = api.world.clock.now();
  const id = await api.world.launch(owner);
  await api.world.clock.advance(90_000);
  expect((await costOf(id)).last_24_hours).toEqual([{ kind: 'starting', from: isoTime(launchedMs), until: null }]);
  await api.world.start(id);
  await watch(MINUTE_MS);
  api.world.probeAnswers.set(id, DEAD);
  await watch(5 * MINUTE_MS);
  expect((await costOf(id)).last_24_hours.map(({ kind, until }) => [kind, until === null])).toEqual([
    ['starting', false],
    ['charged', false],
    ['not_charged', true],
  ]);
  api.world.probeAnswers.delete(id);
  await watch(MINUTE_MS);
  const { segments, credits } = await billOf(id);
  expect((await costOf(id)).last_24_hours).toEqual([
    { kind: 'starting', from: isoTime(launchedMs), until: segments[0]?.from },
    { kind: 'charged', from: segments[0]?.from, until: segments[0]?.until },
    { kind: 'not_charged', from: credits[0]?.from, until: credits[0]?.until },
    { kind: 'charged', from: segments[1]?.from, until: null },
  ]);
  await api.world.clock.advance(24 * HOUR_MS - 30_000);
  expect((await costOf(id)).last_24_hours.map(({ kind }) => kind)).toEqual(['charged']);
});

test('says what a dispute took back, and ends the start of an instance that was given up', async () => {
  const id = await api.world.run(owner);
  const startMs = api.world.clock.now();
  await api.world.clock.advance(3 * HOUR_MS);
  await api.world.end(owner, id);
  const endMs = api.world.clock.now();
  const { disputes } = api.world.rooms.payouts;
  const dispute = await disputes.open({ instanceId: id, sinceMs: startMs + HOUR_MS, reason: 'wrong GPU' });
  await disputes.resolve(dispute.id, { refund: true, note: 'agreed' });
  expect((await costOf(id)).last_24_hours.slice(-1)).toEqual([
    { kind: 'not_charged', from: isoTime(startMs + HOUR_MS), until: isoTime(endMs) },
  ]);
  const givenUp = await api.world.launch(owner);
  await api.world.clock.advance(MINUTE_MS);
  await api.call('DELETE', `/v1/instances/${givenUp}`, { key: owner.key });
  await api.world.clock.advance(HOUR_MS);
  expect((await costOf(givenUp)).last_24_hours).toEqual([
    { kind: 'starting', from: isoTime(endMs), until: isoTime(endMs + MINUTE_MS) },
  ]);
});

test('shows the same times as the bill for an outage after whose end all was disputed', async () => {
  const id = await api.world.run(owner);
  const startMs = api.world.clock.now();
  await watch(10 * MINUTE_MS);
  api.world.probeAnswers.set(id, DEAD);
  await watch(5 * MINUTE_MS);
  api.world.probeAnswers.delete(id);
  await watch(HOUR_MS);
  await tick();
  const { disputes } = api.world.rooms.payouts;
  const dispute = await disputes.open({ instanceId: id, sinceMs: startMs + 5 * MINUTE_MS, reason: 'wrong GPU' });
  await disputes.resolve(dispute.id, { refund: true, note: 'agreed' });
  await api.world.clock.advance(HOUR_MS);
  const { credits } = await billOf(id);
  const lasted = credits.map(({ from, until }) => Date.parse(until ?? '') - Date.parse(from));
  expect(credits.map(({ cause }) => cause).toSorted()).toEqual(['dispute', 'dispute', 'outage']);
  expect(lasted).toEqual(credits.map(({ seconds }) => seconds * 1000));
  const uncharged = (await costOf(id)).last_24_hours.filter(({ kind }) => kind === 'not_charged');
  expect(uncharged.map(({ from, until }) => [from, until])).toEqual(credits.map(({ from, until }) => [from, until]));
});

test('keeps the newest spans of an instance that failed again and again', async () => {
  const id = await api.world.run(owner);
  const nowMs = api.world.clock.now();
  const columns = sql`subject_id, org_id, supplier_id, machine_id, cause, rate_ucents_per_hour, supplier_bps, counted_ms, counted_at_ms, granted_ucents,
    held_ucents, evidence, outage_id`;
  await api.world.db.tx('test.free_times', async (tx) => {
    for (let count = 0; count < SPANS_MAX; count += 1) {
      const fromMs = nowMs - (count + 1) * 10_000;
      await tx.run(sql`insert into free_times (id, from_ms, free_ms, ended_ms, ${columns})
        values (${`f${count}`}, ${fromMs}, 1000, ${fromMs + 1_000}, ${id}, ${owner.orgId}, 's', 'm', 'outage', 0, 0, 0, 0, 0, 0, 'e', 'o')`);
    }
  });
  const { last_24_hours: spans } = await costOf(id);
  expect(spans).toHaveLength(SPANS_MAX);
  expect(spans.at(-1)?.kind).toBe('charged');
  expect(spans[0]?.from).toBe(isoTime(nowMs - (SPANS_MAX - 1) * 10_000));
  await api.world.db.tx('test.clean', (tx) => tx.run(sql`delete from free_times`));
});

describe('instance_ids', () => {
  test(`takes ${PAGE_MAX}, and refuses one more, and an empty one`, async () => {
    const id = await api.world.launch(owner);
    const ids = (count: number): string => [id, ...Array.from({ length: count - 1 }, (_, n) => `i-${n}`)].join(',');
    expect(await costs(`?limit=${PAGE_MAX}&instance_ids=${ids(PAGE_MAX)}`)).toMatchObject([{ instance_id: id }]);
    for (const wrong of [ids(PAGE_MAX + 1), '', `${id},`]) {
      const { status, json } = await api.call('GET', `/v1/instance-costs?instance_ids=${wrong}`, { key: owner.key });
      expect([status, json['code']]).toEqual([422, 'validation_failed']);
    }
  });

  test('leaves out what is not the caller’s', async () => {
    const id = await api.world.run(owner);
    const other = await api.account();
    expect(await costs(`?instance_ids=${id}`, other.key)).toEqual([]);
    expect(await costs('', other.key)).toEqual([]);
  });
});

test('a page of many instances takes as many queries as one instance', async () => {
  const { db, counts } = countingDb(api.world.db);
  const asked = async (count: number): Promise<number> => {
    const before = counts.roundTrips;
    const rows = await instanceCosts(owner.orgId, { count, ids: undefined }, { db, clock: api.world.clock, rentalsOf });
    expect(rows).toHaveLength(count);
    return counts.roundTrips - before;
  };
  for (let count = 0; count < 3; count += 1) await api.world.run(owner);
  expect(await asked(3)).toBe(await asked(1));
});
