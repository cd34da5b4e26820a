// People are mailed before the balance of their organisation ends, and when instances were stopped because it has.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { funding, wallet } from '../../../../control-plane/money/ledger/accounts.ts';
import { brought } from '../../../../control-plane/brings.ts';
import { GATHER_MS, SPAN_MS } from '../../../../control-plane/rental/notices/limits.ts';
import type { KeyAccount } from '../../../kit/world.ts';
import { type Mailed, openMailed } from './mailed.ts';

const HOUR_MS = 3_600_000;
const DOLLAR = 100_000_000n;

let mailed: Mailed;
let who: KeyAccount;
beforeEach(async () => {
  mailed = await openMailed();
  who = await mailed.world.customer(3_000);
  await mailed.world.machine({ gpus: 4, dollars: 1 });
});
afterEach(async () => {
  await mailed.world.verify();
  await mailed.world.close();
});

/** Charges, stops and warns after this time, as the loops of money do. */
async function passes(hours: number): Promise<void> {
  const { world } = mailed;
  const { signal } = new AbortController();
  await world.clock.advance(hours * HOUR_MS);
  for (const id of await world.rooms.metering.tick(signal)) await world.rooms.instances.stopUnpaid(id);
  const loop = brought(world.brings(), 'loops').find(({ name }) => name === 'balance-warnings');
  await loop?.run(signal);
}

async function fund(dollars: bigint): Promise<void> {
  const transfer = { id: `more:${dollars}`, debit: funding, credit: wallet(who.orgId), amountUcents: dollars * DOLLAR };
  const about = { kind: 'funding.manual', subjectId: who.orgId, effectiveMs: mailed.world.clock.now() };
  await mailed.world.db.tx('test.fund', (tx) =>
    mailed.world.rooms.ledger.post(tx, transfer.id, [{ ...transfer, ...about }]),
  );
}

test('one mail names all instances that end with the balance, to each member who can add funds', async () => {
  const { world, sent } = mailed;
  const [first, second] = [await world.run(who, { name: 'train' }), await world.run(who)];
  const owner = await mailed.person(who.orgId, 'owner');
  const others = [await mailed.person(who.orgId, 'billing'), await mailed.person(who.orgId, 'member')];
  await mailed.person(who.orgId, 'read-only');
  await mailed.person((await world.customer(0)).orgId, 'owner');
  await passes(7);
  await mailed.gather();
  expect(sent.map(({ to }) => to).toSorted()).toEqual([owner, ...others].map(({ email }) => email).toSorted());
  expect(new Set(sent.map(({ subject }) => subject))).toEqual(
    new Set(['The balance ends in less than 24 h (api.example.com)']),
  );
  const text = sent[0]?.text ?? '';
  expect(text).toContain(`- ${first} ("train")\n- ${second}\n`);
  expect(text).toContain('the balance of the organisation "customer" ends in less than 24 h at the present rate.');
  expect(text).toMatch(/The balance is \$15\.9\d+\. Running instances cost \$2\.00 an hour\./);
  expect(text).toContain('https://api.example.com/console/usage');
  expect(text).toContain('https://api.example.com/console/security');
  await mailed.gather();
  expect(sent).toHaveLength(3);
});

test('a warning is mailed after a minute, and not if money has come in that minute', async () => {
  const { world, sent } = mailed;
  await world.run(who);
  await mailed.person(who.orgId, 'owner');
  await passes(7);
  await world.clock.advance(GATHER_MS - 1);
  await mailed.run();
  expect(sent).toEqual([]);
  await fund(100n);
  await mailed.gather();
  expect(sent).toEqual([]);
});

test('the next threshold of the same balance is mailed too, but not sooner than the span after the last mail', async () => {
  const { world, sent } = mailed;
  await world.run(who);
  await mailed.person(who.orgId, 'owner');
  await passes(7);
  await mailed.gather();
  await passes(18.6);
  await mailed.gather();
  expect(sent.map(({ subject }) => subject)).toEqual([
    'The balance ends in less than 24 h (api.example.com)',
    'The balance ends in less than 6 h (api.example.com)',
  ]);
  await world.run(who);
  await world.run(who);
  await world.run(who);
  await passes(0.1);
  await world.clock.advance(SPAN_MS - HOUR_MS / 10 - 1);
  await mailed.run();
  expect(sent).toHaveLength(2);
  await world.clock.advance(1);
  await mailed.run();
  expect(sent[2]?.subject).toBe('The balance ends in less than 1 h (api.example.com)');
});

test('instances that were stopped because the balance has ended are mailed, and those that their owner ends are not', async () => {
  const { world, sent } = mailed;
  const [first, second] = [await world.run(who, { name: 'train' }), await world.run(who)];
  const ended = await world.run(who);
  await mailed.person(who.orgId, 'billing');
  await world.remove(who, ended);
  await passes(7);
  await mailed.gather();
  sent.length = 0;
  await passes(9);
  await passes(0.25);
  await mailed.gather();
  const stopped = sent.find(({ subject }) =>
    subject.startsWith('Instances were stopped, because the balance has ended'),
  );
  expect(stopped?.text).toContain('The balance of the organisation "customer" has ended.');
  expect(stopped?.text).toMatch(new RegExp(`- 2026-01-01 16:\\d\\d:\\d\\d UTC: ${first} \\("train"\\)`));
  expect(stopped?.text).toContain(second);
  expect(stopped?.text).not.toContain(ended);
  expect(stopped?.text).toContain('https://api.example.com/console/launch');
});

test('without a mail server nothing is noted', async () => {
  await mailed.world.close();
  mailed = await openMailed({ mail: { isConfigured: false, send: async () => false } });
  await mailed.world.machine({ gpus: 4, dollars: 1 });
  who = await mailed.world.customer(3_000);
  await mailed.world.run(who);
  await mailed.person(who.orgId, 'owner');
  await passes(7);
  expect(brought(mailed.world.brings(), 'loops').map(({ name }) => name)).not.toContain('notices');
  expect(await mailed.world.rooms.notices.run(new AbortController().signal)).toBe(false);
  const noted = await mailed.world.db.read.one(countRow, sql`select count(*) as count from notices`);
  expect([mailed.asked, noted?.count]).toEqual([[], 0]);
});
