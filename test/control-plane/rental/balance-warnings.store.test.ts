// Customers are warned before their balance ends: once for each crossing, over restarts and with several control planes.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { funding, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { WebhookEventType } from '../../../shared/api/webhook.ts';
import { openOperator } from '../../kit/operator.ts';
import { type KeyAccount, openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DOLLAR = 100_000_000n;
const LOW = 'instance.balance_low';

let world: World;
let who: KeyAccount;
beforeEach(async () => {
  world = await openWorld();
  who = await world.customer(3_000);
  await world.machine({ gpus: 4, dollars: 1 });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function look(at: World = world): Promise<void> {
  const loop = at.brings().flatMap(({ loops = [] }) => loops.filter(({ name }) => name === 'balance-warnings'))[0];
  await loop?.run(new AbortController().signal);
}
async function passes(hours: number): Promise<void> {
  await world.clock.advance(hours * HOUR_MS);
  await world.rooms.metering.tick(new AbortController().signal);
  await look();
}
const reason = async (id: string): Promise<string | undefined> => {
  const { instances } = world.rooms;
  return instances.show(await instances.get(who.orgId, id)).status_reason;
};
const warned = async (id: string): Promise<unknown[]> => {
  const events = await world.rooms.events.ofSubject(world.db.read, id, { count: 100 });
  return events.filter(({ type }) => type === LOW).map(({ data }) => data['below_hours']);
};
const fund = (dollars: bigint): Promise<void> =>
  world.db.tx('test.fund', (tx) => {
    const id = `more:${dollars}`;
    const transfer = { id, debit: funding, credit: wallet(who.orgId), amountUcents: dollars * DOLLAR };
    const about = { kind: 'funding.manual', subjectId: who.orgId, effectiveMs: 1 };
    return world.rooms.ledger.post(tx, id, [{ ...transfer, ...about }]);
  });
const text = (hours: number): string =>
  `The balance ends in less than ${hours} h at the present rate. Add funds, or the instance is stopped when it ends.`;

test('each crossing is warned once in the events and in status_reason, until the balance is enough again', async () => {
  const id = await world.run(who);
  await look();
  expect([await reason(id), await warned(id)]).toEqual([undefined, []]);
  await passes(7);
  expect([await reason(id), await warned(id)]).toEqual([text(24), [24]]);
  await passes(1);
  expect(await warned(id)).toEqual([24]);
  await passes(17);
  expect([await reason(id), await warned(id)]).toEqual([text(6), [6, 24]]);
  await passes(4.5);
  expect([await reason(id), await warned(id)]).toEqual([text(1), [1, 6, 24]]);
  await fund(10n);
  await look();
  expect([await reason(id), await warned(id)]).toEqual([text(24), [1, 6, 24]]);
  await fund(100n);
  await look();
  expect([await reason(id), await warned(id)]).toEqual([undefined, [1, 6, 24]]);
  await passes(90);
  expect(await warned(id)).toEqual([24, 1, 6, 24]);
});

test('a second control plane and a restart warn of nothing that was warned', async () => {
  const id = await world.run(who);
  await world.clock.advance(7 * HOUR_MS);
  await Promise.all([look(), look(), look()]);
  expect(await warned(id)).toEqual([24]);
  world = await world.restart();
  await look();
  expect(await warned(id)).toEqual([24]);
});

test('an instance that begins to run with too little is warned, and one more instance shortens the time of all', async () => {
  const first = await world.run(who);
  await passes(1);
  expect(await warned(first)).toEqual([]);
  const second = await world.run(who);
  await look();
  expect([await warned(first), await warned(second)]).toEqual([[24], [24]]);
});

test('an organisation whose settings cannot be read is named, and keeps no other one from its warning', async () => {
  const other = await world.customer(3_000);
  const rentals = [
    { id: await world.run(who), orgId: who.orgId },
    { id: await world.run(other), orgId: other.orgId },
  ].toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const [broken, whole] = rentals;
  await world.clock.advance(7 * HOUR_MS);
  await world.db.tx('test.break', (tx) =>
    tx.run(sql`insert into balance_warnings (org_id, below_hours) values (${broken?.orgId}, 'none')`),
  );
  await expect(look()).rejects.toThrow(`the organisation ${broken?.orgId}`);
  expect([await warned(broken?.id ?? ''), await warned(whole?.id ?? '')]).toEqual([[], [24]]);
});

test('the operator changes the hours of an organisation, and "never" ends its warnings', async () => {
  const operator = openOperator(world);
  const url = `/admin/balances/${who.orgId}/warnings`;
  expect(await operator.ask('POST', url, { below_hours: [48, 2] })).toMatchObject({ warn_below_hours: '48, 2' });
  const id = await world.run(who);
  await look();
  expect(await warned(id)).toEqual([48]);
  await operator.ask('POST', url, { below_hours: [] });
  await look();
  expect([await reason(id), await warned(id)]).toEqual([undefined, [48]]);
  for (const hours of [[0], [1.5], [721], [1, 2, 3, 4, 5, 6]]) {
    await expect(operator.ask('POST', url, { below_hours: hours })).rejects.toMatchObject({
      code: 'validation_failed',
    });
  }
});

test('a warning is none of the events of webhooks', () => {
  expect(WebhookEventType.options).not.toContain(LOW);
});

test('an instance under a contract, which does not stop when the balance ends, is not warned about', async () => {
  const id = await world.run(who);
  await world.db.tx('test.reserve', (tx) =>
    tx.run(sql`update instances set price_ucents_per_hour = 0 where id = ${id}`),
  );
  await passes(7);
  expect([await reason(id), await warned(id)]).toEqual([undefined, []]);
});
