// What a supplier reads of its money (specification 2.17): a rental earns, a dead host's time is taken back, a payout settles it.
import { expect, test } from 'vitest';
import { CommunityEarnings } from '../../shared/api/community.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/instances/quiet.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { watchFor } from '../kit/watching.ts';
import { bringMachine } from './suppliers.ts';

const HOUR_MS = 3_600_000;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

openApiForEachTest();

const tick = (): Promise<unknown> => api.world.rooms.metering.tick(new AbortController().signal);
const watch = (ms: number): Promise<void> => watchFor(api.world, ms);
async function earnings({ key } = owner): Promise<CommunityEarnings> {
  const answer = await api.call('GET', '/v1/community/earnings?limit=200', { key });
  expect(answer.status).toBe(200);
  return CommunityEarnings.parse(answer.json);
}
async function pagedEntries(limit: number): Promise<CommunityEarnings['entries']> {
  const entries: CommunityEarnings['entries'] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const from: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { json } = await api.call('GET', `/v1/community/earnings?limit=${limit}${from}`, { key: owner.key });
    const page = CommunityEarnings.parse(json);
    entries.push(...page.entries);
    cursor = page.next_cursor;
  }
  return entries;
}
const supplierId = async (): Promise<string> =>
  String((await api.call('GET', '/v1/community/supplier', { key: owner.key })).json['supplier_id']);
const sumOf = ({ entries }: CommunityEarnings): number => entries.reduce((sum, each) => sum + each.amount_cents, 0);

test('a supplier without earnings and an organisation that is no supplier read zeros', async () => {
  const none = { accrued_cents: 0, unpaid_cents: 0, payable_cents: 0 };
  const nothing = { ...none, of_machine: null, entries: [], next_cursor: null };
  expect(await earnings()).toEqual(nothing);
  await bringMachine(api, owner);
  expect(await earnings()).toEqual(nothing);
  const payouts = await api.call('GET', '/v1/community/payouts', { key: owner.key });
  expect(payouts.json).toEqual({ data: [], next_cursor: null });
});

// Specification 2.17: Earnings entry: ledger_id, machine_id, instance_id, amount_cents, accrued_at, paid.
test('a rental earns by the hour; the time of a dead host is taken back with its evidence; a payout settles all', async () => {
  const machineId = await bringMachine(api, owner, { price_per_hour: 3.6 });
  const id = await api.world.run(await api.world.customer(10_000));
  await watch(QUIET_AFTER_START_MS);
  // Eighty percent of a cent a second. The host reports its holder dead shortly before the hour end, and we are too busy to look until the
  // hour is posted.
  await api.world.clock.advance(HOUR_MS - QUIET_AFTER_START_MS - 1_000);
  api.world.probeAnswers.set(id, DEAD);
  const workloadId = (await findInstance(api.world.db.read, id))?.workload_id ?? '';
  const report = { type: 'holder', workload_id: workloadId, state: 'silent', detail: 'no banner' } as const;
  await api.world.rooms.watch.onHolder(machineId, report);
  await api.world.clock.advance(HOUR_MS / 2 + 1_000);
  await tick();
  const posted = await earnings();
  expect(posted.entries).toHaveLength(1);
  expect(posted.entries[0]).toMatchObject({ machine_id: machineId, instance_id: id, reason: null, paid: false });
  expect([posted.accrued_cents, posted.unpaid_cents]).toEqual([sumOf(posted), sumOf(posted)]);
  await watch(40_000);
  const after = await earnings();
  expect(after.entries).toHaveLength(2);
  const [reversal, first] = after.entries;
  expect(first).toEqual(posted.entries[0]);
  expect(reversal?.amount_cents).toBeLessThan(0);
  expect(reversal?.reason).toMatch(/failed SSH probes since/);
  expect(reversal).toMatchObject({ machine_id: machineId, instance_id: id, paid: false });
  expect([after.accrued_cents, after.unpaid_cents]).toEqual([sumOf(after), sumOf(after)]);
  expect(after.payable_cents).toBe(after.unpaid_cents);
  expect(after.entries.map((entry) => entry.payable_at)).toEqual(after.entries.map((entry) => entry.accrued_at));
  const { disputes } = api.world.rooms.payouts;
  const dispute = await disputes.open({ instanceId: id, sinceMs: null, reason: 'no GPU inside' });
  const disputed = await earnings();
  expect(disputed).toMatchObject({ unpaid_cents: after.unpaid_cents, payable_cents: 0 });
  expect(disputed.entries.map((entry) => entry.payable_at)).toEqual([null, null]);
  await disputes.resolve(dispute.id, { refund: false, note: 'it was there' });
  const payout = { supplierId: await supplierId(), cents: null, reference: 'wire 1' };
  await api.world.rooms.payouts.pay(payout);
  const settled = await earnings();
  expect(settled).toMatchObject({ accrued_cents: after.accrued_cents, unpaid_cents: 0 });
  expect(settled.entries.map(({ paid }) => paid)).toEqual([true, true]);
  // The first was paid by what was left after the reversal, which stands on the page before it.
  expect(await pagedEntries(1)).toEqual(settled.entries);
  const { json } = await api.call('GET', '/v1/community/payouts', { key: owner.key });
  expect(json.data).toMatchObject([{ amount_cents: after.accrued_cents, reference: 'wire 1' }]);
});

test('the pages add up to the total of the first page, also if more is earned between them', async () => {
  await bringMachine(api, owner, { price_per_hour: 0.37 });
  const id = await api.world.run(await api.world.customer(10_000));
  for (let hours = 0; hours < 9; hours += 1) {
    await api.world.clock.advance(HOUR_MS);
    await tick();
  }
  const whole = await earnings();
  let cents = 0;
  const seen: unknown[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const from: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { json } = await api.call('GET', `/v1/community/earnings?limit=2${from}`, { key: owner.key });
    const page = CommunityEarnings.parse(json);
    cents += sumOf(page);
    seen.push(...page.entries);
    cursor = page.next_cursor;
    await api.world.clock.advance(HOUR_MS);
    await tick();
  }
  expect(cents).toBe(whole.accrued_cents);
  expect(seen).toEqual(whole.entries);
  expect(whole.entries.every((entry) => entry.instance_id === id)).toBe(true);
});

// Specification 2.17: CommunityEarnings: unpaid_cents is what is owed.
test('a payout covers the oldest entries first, up to its amount', async () => {
  await bringMachine(api, owner, { price_per_hour: 1 });
  const customer = await api.world.customer(10_000);
  const rented = await api.world.run(customer);
  await api.world.clock.advance(1.5 * HOUR_MS);
  await tick();
  await api.world.clock.advance(HOUR_MS / 2);
  await api.world.end(customer, rented);
  const before = await earnings();
  const oldest = before.entries.at(-1)?.amount_cents ?? 0;
  const id = await supplierId();
  await api.world.rooms.payouts.pay({ supplierId: id, cents: oldest - 1, reference: 'part' });
  expect((await earnings()).entries.map(({ paid }) => paid)).not.toContain(true);
  await api.world.rooms.payouts.pay({ supplierId: id, cents: 1, reference: 'the rest of it' });
  const after = await earnings();
  expect(after.entries.at(-1)?.paid).toBe(true);
  expect(after.entries.at(0)?.paid).toBe(false);
  expect(after.unpaid_cents).toBe(before.accrued_cents - oldest);
});

test('a supplier sees its own earnings and payouts and no others', async () => {
  await bringMachine(api, owner);
  const customer = await api.world.customer(10_000);
  const rented = await api.world.run(customer);
  await api.world.clock.advance(HOUR_MS);
  await api.world.end(customer, rented);
  await api.world.rooms.payouts.pay({ supplierId: await supplierId(), cents: 1, reference: 'r' });
  const mine = await earnings();
  expect(mine.accrued_cents).toBeGreaterThan(0);
  const other = await api.account();
  await bringMachine(api, other);
  expect(await earnings(other)).toMatchObject({ accrued_cents: 0, entries: [] });
  expect((await api.call('GET', '/v1/community/payouts', { key: other.key })).json.data).toEqual([]);
});
