// What a supplier reads of one machine's money: its earnings among those of all machines, what was rented of it, and the outages that it did not
// earn by.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { ucents } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { brought } from '../../control-plane/brings.ts';
import { clearing, payable } from '../../control-plane/money/ledger/accounts.ts';
import { CommunityEarnings, MachineOutage, MachineProbes, MachineRental } from '../../shared/api/community.ts';
import { isoTime } from '../../shared/clock.ts';
import { dollarText } from '../../shared/money.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';
import { watchFor } from '../kit/watching.ts';
import { bringMachine } from './suppliers.ts';

const HOUR_MS = 3_600_000;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let api: Api;
let owner: ApiAccount;
let customer: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  owner = await api.account();
  customer = await api.account();
});
afterEach(() => api.close());

async function earnings(query = '', key = owner.key): Promise<CommunityEarnings> {
  const { status, json } = await api.call('GET', `/v1/community/earnings${query}`, { key });
  expect(status).toBe(200);
  return CommunityEarnings.parse(json);
}

/** Every page of a machine's earnings. */
async function pagesOf(machineId: string, limit: number): Promise<CommunityEarnings[]> {
  const pages: CommunityEarnings[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const from: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page = await earnings(`?machine_id=${machineId}&limit=${limit}${from}`);
    pages.push(page);
    cursor = page.next_cursor;
  }
  return pages;
}

async function outagesOf(machineId: string, query = ''): Promise<MachineOutage[]> {
  const path = `/v1/community/machines/${machineId}/outages${query}`;
  const { status, json } = await api.call('GET', path, { key: owner.key });
  expect(status).toBe(200);
  return MachineOutage.array().parse(json['data']);
}

const tick = () => api.world.rooms.metering.tick(new AbortController().signal);

const watch = (ms: number): Promise<void> => watchFor(api.world, ms);

async function machineOf(instanceId: string): Promise<string> {
  const row = await api.world.db.read.one(
    z.object({ id: z.string() }),
    sql`select machine_id as id from instances where id = ${instanceId}`,
  );
  return row?.id ?? '';
}

/** What the ledger has for this rental in all accounts of suppliers. */
async function inLedger(instanceId: string): Promise<string> {
  const isTo = sql`substr(credit_account_id, 1, 17) = 'supplier_payable:'`;
  const isFrom = sql`substr(debit_account_id, 1, 17) = 'supplier_payable:'`;
  const row = await api.world.db.read.one(
    z.object({ sum: ucents }),
    sql`select cast(coalesce(sum(case when ${isTo} then amount_ucents when ${isFrom} then -amount_ucents else 0 end), 0) as bigint) as sum
        from transfers where subject_id = ${instanceId}`,
  );
  return dollarText(row?.sum ?? 0n);
}

const microcents = (dollars: string): bigint => {
  const [, sign = '', whole = '', fraction = ''] = /^(-?)(\d+)\.(\d+)$/.exec(dollars) ?? [];
  return BigInt(`${sign}${whole}${fraction.padEnd(8, '0')}`);
};

test('each machine earned what the ledger has for its rentals, in pages of any size', async () => {
  const machines = [await bringMachine(api, owner, { price_per_hour: 1.29 }), await bringMachine(api, owner)];
  const rentals = [await api.world.run(customer), await api.world.run(customer)];
  for (let hours = 0; hours < 3; hours += 1) {
    await api.world.clock.advance(HOUR_MS);
    await tick();
  }
  const first = rentals[0] ?? '';
  await watch(60_000);
  api.world.probeAnswers.set(first, DEAD);
  await watch(120_000);
  for (const id of rentals) await api.world.end(customer, id);
  const all = await earnings('?limit=200');
  expect(all.of_machine).toBeNull();
  const sums: bigint[] = [];
  for (const id of rentals) {
    const machineId = await machineOf(id);
    const whole = await earnings(`?machine_id=${machineId}&limit=200`);
    expect(whole.of_machine).toEqual({ machine_id: machineId, accrued: await inLedger(id) });
    const sum = whole.entries.reduce((total, { amount }) => total + microcents(amount), 0n);
    expect(dollarText(sum)).toBe(whole.of_machine?.accrued);
    expect(whole.entries).toEqual(all.entries.filter((entry) => entry.machine_id === machineId));
    for (const limit of [1, 2])
      expect((await pagesOf(machineId, limit)).flatMap(({ entries }) => entries)).toEqual(whole.entries);
    sums.push(sum);
  }
  expect(new Set(await Promise.all(rentals.map(machineOf)))).toEqual(new Set(machines));
  expect(sums.reduce((a, b) => a + b, 0n) / 1_000_000n).toBe(BigInt(all.accrued_cents));
  await api.world.verify();
});

test('a page that finds nothing of the machine in 5,000 entries ends there, and the next one goes on', async () => {
  const machineId = await bringMachine(api, owner);
  const id = await api.world.run(customer);
  await api.world.clock.advance(HOUR_MS);
  await api.world.end(customer, id);
  await api.world.clock.advance(1_000);
  const supplier = await api.call('GET', '/v1/community/supplier', { key: owner.key });
  const account = payable(String(supplier.json['supplier_id']));
  const entry = { debit: clearing, credit: account, kind: 'test', subjectId: 'i-elsewhere', amountUcents: 1n };
  const transfers = Array.from({ length: 5_001 }, (_, n) => ({ ...entry, id: `t-${n}`, effectiveMs: 0 }));
  await api.world.db.tx('test.post', (tx) => api.world.rooms.ledger.post(tx, 'b', transfers));
  const pages = await pagesOf(machineId, 10);
  expect(pages.map(({ entries }) => entries.length)).toEqual([0, 1]);
  expect(pages[1]?.entries[0]).toMatchObject({ instance_id: id, paid: false });
});

test('a machine of another supplier has earned nothing that the caller sees', async () => {
  const machineId = await bringMachine(api, owner);
  const id = await api.world.run(customer);
  await api.world.clock.advance(HOUR_MS);
  await api.world.end(customer, id);
  const other = await api.account();
  await bringMachine(api, other);
  const seen = await earnings(`?machine_id=${machineId}`, other.key);
  expect(seen).toMatchObject({ entries: [], of_machine: { accrued: '0.00' } });
});

test('an outage says when, why and how much was not earned, and neither who rented nor which rental', async () => {
  const machineId = await bringMachine(api, owner, { price_per_hour: 3.6 }, 2);
  expect(await outagesOf(machineId)).toEqual([]);
  const ids = [await api.world.run(customer), await api.world.run(customer)];
  await watch(180_000);
  for (const id of ids) api.world.probeAnswers.set(id, DEAD);
  await watch(120_000);
  const [open] = await outagesOf(machineId);
  expect(open).toMatchObject({ cause: 'outage', until: null, rentals: 2 });
  const openMs = api.world.clock.now() - Date.parse(open?.from ?? '');
  // $3.60 an hour are 0.1 cents a second, of which the supplier gets 85 %, for each of two rentals. The last proof of life of one is later.
  const most = (openMs / 1_000) * 0.001 * 0.85 * 2;
  expect(Number(open?.not_earned)).toBeLessThanOrEqual(most);
  expect(Number(open?.not_earned)).toBeGreaterThan(most * 0.8);
  api.world.probeAnswers.clear();
  await watch(30_000);
  await api.world.clock.advance(HOUR_MS);
  const [over] = await outagesOf(machineId);
  expect(over).toMatchObject({ outage_id: open?.outage_id, from: open?.from, rentals: 2 });
  expect(Date.parse(over?.until ?? '')).toBeGreaterThan(Date.parse(over?.from ?? '') + 100_000);
  expect(over?.reason).toContain('failed SSH probes since');
  const words = JSON.stringify(over);
  for (const secret of [...ids, customer.orgId, customer.key]) expect(words).not.toContain(secret);
  for (const id of ids) await api.world.end(customer, id);
  await api.world.verify();
});

test('outages come newest first in pages, and only to the owner of the machine', async () => {
  const machineId = await bringMachine(api, owner);
  const row = (n: number) => sql`(${`o-${n}`}, 'gpu_fault', ${machineId}, ${`fault ${n}`}, ${n * 1_000})`;
  await api.world.db.tx('test.outages', async (tx) => {
    for (let n = 1; n <= 3; n += 1)
      await tx.run(sql`insert into outages (id, cause, machine_id, evidence, opened_ms) values ${row(n)}`);
  });
  const path = `/v1/community/machines/${machineId}/outages`;
  const { json } = await api.call('GET', `${path}?limit=2`, { key: owner.key });
  expect(json['data']).toMatchObject([{ reason: 'fault 3', confirmed_at: isoTime(3_000) }, { reason: 'fault 2' }]);
  const rest = await outagesOf(machineId, `?limit=2&cursor=${String(json['next_cursor'])}`);
  expect(rest).toMatchObject([{ reason: 'fault 1' }]);
  const other = await api.account();
  await bringMachine(api, other);
  expect((await api.call('GET', path, { key: other.key })).status).toBe(404);
});

async function rentalsOf(machineId: string): Promise<MachineRental[]> {
  const { status, json } = await api.call('GET', `/v1/community/machines/${machineId}/rentals`, { key: owner.key });
  expect(status).toBe(200);
  return MachineRental.array().parse(json['data']);
}

test('a rental has its GPUs, its time on the machine and what of it was charged, without an outage', async () => {
  const machineId = await bringMachine(api, owner, {}, 2);
  expect(await rentalsOf(machineId)).toEqual([]);
  const placedMs = api.world.clock.now();
  const id = await api.world.run(customer);
  const [starting] = await rentalsOf(machineId);
  expect(starting).toMatchObject({ instance_id: id, from: isoTime(placedMs), until: null });
  expect(starting?.gpu_uuids).toHaveLength(1);
  await watch(180_000);
  api.world.probeAnswers.set(id, DEAD);
  await watch(120_000);
  api.world.probeAnswers.clear();
  await watch(30_000);
  const [outage] = await outagesOf(machineId);
  const [running] = await rentalsOf(machineId);
  expect(running?.charged).toHaveLength(2);
  expect(running?.charged[0]?.until).toBe(outage?.from);
  expect(running?.charged[1]?.until).toBeNull();
  const goneMs = Date.parse(running?.charged[1]?.from ?? '') - Date.parse(outage?.from ?? '');
  expect(goneMs).toBeGreaterThan(100_000);
  await api.world.end(customer, id);
  const endedMs = api.world.clock.now();
  const other = await api.world.run(customer);
  const [newer, over] = await rentalsOf(machineId);
  expect(newer?.instance_id).toBe(other);
  expect(over).toMatchObject({ instance_id: id, until: isoTime(endedMs) });
  expect(Date.parse(over?.charged[1]?.until ?? '')).toBeLessThanOrEqual(endedMs);
  expect(JSON.stringify(over)).not.toContain(customer.orgId);
});

test('an instance that comes back to a machine has the charges of each time for itself', async () => {
  const machineId = await bringMachine(api, owner);
  const id = await api.world.run(customer);
  await api.world.clock.advance(HOUR_MS);
  await api.world.end(customer, id);
  const laterMs = api.world.clock.now() + HOUR_MS;
  await api.world.db.tx('test.again', async (tx) => {
    await tx.run(sql`insert into workloads (id, machine_id, instance_id, state, spec, created_ms, changed_ms)
      select 'w-again', machine_id, instance_id, state, spec, ${laterMs}, ${laterMs + HOUR_MS} from workloads where instance_id = ${id}`);
    await tx.run(sql`insert into meter_segments (id, subject_id, org_id, supplier_id, machine_id, gpu_type, gpu_count, rate_ucents_per_hour,
        supplier_bps, started_ms, posted_through_ms, ended_ms)
      select 's-again', subject_id, org_id, supplier_id, machine_id, gpu_type, gpu_count, rate_ucents_per_hour, supplier_bps, ${laterMs + 1},
        ${laterMs + 2}, ${laterMs + 2} from meter_segments where subject_id = ${id}`);
  });
  const rentals = await rentalsOf(machineId);
  expect(rentals.map(({ charged }) => charged.length)).toEqual([1, 1]);
  expect(rentals[0]?.charged[0]).toEqual({ from: isoTime(laterMs + 1), until: isoTime(laterMs + 2) });
});

test('what was rented of a machine is read by its owner only', async () => {
  const machineId = await bringMachine(api, owner);
  const other = await api.account();
  await bringMachine(api, other);
  const path = `/v1/community/machines/${machineId}/rentals`;
  expect((await api.call('GET', path, { key: other.key })).status).toBe(404);
});

async function probesOf(machineId: string): Promise<MachineProbes> {
  const { status, json } = await api.call('GET', `/v1/community/machines/${machineId}/probes`, { key: owner.key });
  expect(status).toBe(200);
  return MachineProbes.parse(json);
}

describe('the probes of a machine', () => {
  const WRITTEN_MS = 10 * 60_000;

  test('are counted by hour, good and failed ones, and written every ten minutes', async () => {
    const machineId = await bringMachine(api, owner);
    const id = await api.world.run(customer);
    expect(await probesOf(machineId)).toEqual({ machine_id: machineId, good: 0, failed: 0, hours: [] });
    await watch(WRITTEN_MS - 60_000);
    expect((await probesOf(machineId)).hours).toEqual([]);
    await watch(120_000);
    const [first, ...more] = (await probesOf(machineId)).hours;
    expect(more).toEqual([]);
    expect(first).toMatchObject({ hour: '2026-01-01T00:00:00.000Z', failed: 0 });
    // One about every 30 seconds.
    expect(first?.good).toBeGreaterThan(15);
    expect(first?.good).toBeLessThan(30);
    api.world.probeAnswers.set(id, DEAD);
    await watch(600_000);
    api.world.probeAnswers.clear();
    await watch(HOUR_MS);
    const { good, failed, hours } = await probesOf(machineId);
    expect(hours.map(({ hour }) => hour)).toEqual(['2026-01-01T00:00:00.000Z', '2026-01-01T01:00:00.000Z']);
    // While it fails, it is probed every two seconds, and one of these in twenty seconds counts.
    expect(hours[0]?.failed).toBeGreaterThan(25);
    expect(hours[0]?.failed).toBeLessThan(32);
    expect(hours[1]?.failed).toBe(0);
    expect([good, failed]).toEqual([(hours[0]?.good ?? 0) + (hours[1]?.good ?? 0), hours[0]?.failed]);
  });

  test('are written by a process that stops, added to those of the process before, and forgotten after eight days', async () => {
    const machineId = await bringMachine(api, owner);
    await api.world.run(customer);
    await watch(61_000);
    await api.world.rooms.watch.store();
    const { good } = await probesOf(machineId);
    expect(good).toBeGreaterThan(1);
    await watch(61_000);
    await api.world.rooms.watch.store();
    expect((await probesOf(machineId)).good).toBeGreaterThan(good);
    expect((await probesOf(machineId)).hours).toHaveLength(1);
    const forget = brought(api.world.brings(), 'forgets').find(({ what }) => what === 'probe_hours');
    await api.world.clock.advance(8 * 24 * HOUR_MS - 123_000);
    expect(await forget?.run(new AbortController().signal)).toBe(0);
    await api.world.clock.advance(HOUR_MS);
    expect(await forget?.run(new AbortController().signal)).toBe(1);
  });

  test('of another machine, or of more than a day ago, are not among them, and others do not read them', async () => {
    const machineId = await bringMachine(api, owner);
    const hours = (machine: string, ...starts: number[]) =>
      api.world.db.tx('test.hours', async (tx) => {
        for (const hourMs of starts)
          await tx.run(
            sql`insert into probe_hours (machine_id, hour_ms, good, failed) values (${machine}, ${hourMs}, 3, 1)`,
          );
      });
    const nowMs = Math.floor(api.world.clock.now() / HOUR_MS) * HOUR_MS;
    await hours(machineId, nowMs, nowMs - 24 * HOUR_MS, nowMs - 25 * HOUR_MS);
    await hours('another', nowMs);
    const shown = await probesOf(machineId);
    expect(shown).toMatchObject({ good: 6, failed: 2 });
    expect(shown.hours.map(({ hour }) => Date.parse(hour))).toEqual([nowMs - 24 * HOUR_MS, nowMs]);
    const other = await api.account();
    await bringMachine(api, other);
    const path = `/v1/community/machines/${machineId}/probes`;
    expect((await api.call('GET', path, { key: other.key })).status).toBe(404);
  });
});
