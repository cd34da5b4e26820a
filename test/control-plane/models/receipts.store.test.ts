// The proof that receipts and the ledger agree: each difference is found, and removed receipts still count.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { forgetReceipts } from '../../../control-plane/models/gateway/brings.ts';
import { freeOutcome, closeReceipt } from '../../../control-plane/models/gateway/states.ts';
import { findReceipt, pageOfReceipts } from '../../../control-plane/models/gateway/store.ts';
import { sumReceipts } from '../../../control-plane/models/gateway/totals.ts';
import { forgetOld } from '../../../control-plane/loops.ts';
import { type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { someModels } from '../../kit/models.ts';
import { openWorld, type World } from '../../kit/world.ts';

const DAY_MS = 86_400_000;
const KEEP = { events_days: 400, operations_days: 90, workloads_days: 30, receipts_days: 31 };
/** 6 tokens of prompt and 3 of answer. */
const CHARGE = 270n;

let upstream: FakeUpstream;
let world: World;
let orgId: string;
let principalId: string;
beforeEach(async () => {
  upstream = await openFakeUpstream();
  world = await openWorld(1, { settings: { models: someModels(upstream.baseUrl) } });
  ({ orgId, principalId } = await world.customer(100));
});
afterEach(async () => {
  await world.close();
  await upstream.close();
});

function ask(gone = new AbortController().signal): Promise<Reply> {
  const caller = { orgId, principalId, scopes: [] };
  const body = { model: 'small', messages: [{ role: 'user' as const, content: 'hi' }] };
  return world.rooms.gateway.completeChat({ caller, requestId: 'req_test', gone, body });
}
const idOf = (reply: Reply): string => reply.headers?.['x-receipt-id'] ?? '';
const isThere = async (id: string): Promise<boolean> => (await findReceipt(world.db.read, id)) !== undefined;
const faults = (): Promise<string[]> => world.books.verify();
const tamper = (query: ReturnType<typeof sql>): Promise<number> => world.db.tx('test.tamper', (tx) => tx.run(query));
/** Only receipts in the totals are forgotten. */
async function sumUp(): Promise<void> {
  await world.clock.advance(150_000);
  await sumReceipts(world, new AbortController().signal);
}
function forget(): Promise<void> {
  const forgets = brought(world.brings({ keep: KEEP }), 'forgets');
  return forgetOld(new AbortController().signal, forgets, world.core);
}

describe('a receipt', () => {
  test('is forgotten 31 days after it was closed, and not a millisecond before; the books stay whole', async () => {
    const charged = idOf(await ask());
    upstream.next({ status: 400, body: 'no' });
    await ask().catch(() => undefined);
    await world.clock.advance(31 * DAY_MS - 1);
    const later = idOf(await ask());
    await forget();
    expect(await isThere(charged)).toBe(true);
    await world.clock.advance(1);
    await forget();
    expect([await isThere(charged), await isThere(later)]).toEqual([false, true]);
    await world.verify();
    await world.clock.advance(31 * DAY_MS);
    await forget();
    expect(await isThere(later)).toBe(false);
    await world.verify();
  });

  test('that is open stays, however old it is, and is forgotten like others once it was closed', async () => {
    const gate = Promise.withResolvers<void>();
    upstream.next({ after: gate.promise });
    const asking = ask();
    await upstream.came(1);
    const farMs = world.clock.now() + 1_000 * DAY_MS;
    expect(await forgetReceipts(world.db, { untilMs: farMs, limit: 10 })).toBe(0);
    gate.resolve();
    const id = idOf(await asking);
    const closedMs = world.clock.now();
    await sumUp();
    expect(await forgetReceipts(world.db, { untilMs: closedMs - 1, limit: 10 })).toBe(0);
    expect(await forgetReceipts(world.db, { untilMs: closedMs, limit: 10 })).toBe(1);
    expect(await isThere(id)).toBe(false);
    await world.verify();
  });

  test('goes before those that were closed after it, no more than a piece at once', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 3; i += 1) {
      ids.push(idOf(await ask()));
      await world.clock.advance(1);
    }
    await sumUp();
    expect(await forgetReceipts(world.db, { untilMs: world.clock.now(), limit: 2 })).toBe(2);
    expect(await Promise.all(ids.map(isThere))).toEqual([false, false, true]);
    await world.verify();
  });
});

test.each([
  [400, 'refused'],
  [500, 'upstream_failed'],
  [503, 'upstream_failed'],
])('a request that its server answers with %d ends as %s', async (status, ending) => {
  upstream.next({ status, body: 'no' });
  await ask().catch(() => undefined);
  const [receipt] = await pageOfReceipts(world.db.read, { orgId }, undefined, 1);
  expect(receipt).toMatchObject({ state: 'released', ending, charged_ucents: 0n });
});

test.each(['client_left', 'process_ended'])('a request that waits for its answer ends as %s', async (ending) => {
  upstream.next({ ending: 'stall' });
  const leave = new AbortController();
  const asking = ask(leave.signal).catch(() => undefined);
  await upstream.came(1);
  if (ending === 'client_left') leave.abort();
  else await world.rooms.gateway.drain(0);
  await asking;
  expect(await pageOfReceipts(world.db.read, { orgId }, undefined, 1)).toMatchObject([{ ending, charged_ucents: 0n }]);
});

test('an end that waits for nobody leaves no timer, for which a command without a daemon would wait', async () => {
  const before = world.clock.waiting();
  await world.rooms.gateway.drain(5_000);
  expect(world.clock.waiting()).toBe(before);
});

test('a closed receipt is not closed again, whatever the second outcome is', async () => {
  const id = idOf(await ask());
  const before = await findReceipt(world.db.read, id);
  if (before === undefined) throw new Error('the receipt is gone');
  const again = closeReceipt(before, freeOutcome('client_left'), {
    nowMs: 1,
    attempts: [],
  });
  expect(await world.db.hot(again)).toBe(false);
  expect(await findReceipt(world.db.read, id)).toEqual(before);
});

describe('the proof finds', () => {
  test('nothing if all agree', async () => {
    await ask();
    expect(await faults()).toEqual([]);
  });

  test('a receipt with more, or less, than was charged', async () => {
    const id = idOf(await ask());
    await tamper(sql`update request_receipts set charged_ucents = charged_ucents + 1`);
    expect(await faults()).toEqual([`${id}: charged ${CHARGE + 1n}, the ledger says ${CHARGE}`]);
  });

  test('a receipt with a charge that was not made', async () => {
    upstream.next({ status: 400, body: 'no' });
    await ask().catch(() => undefined);
    await tamper(sql`update request_receipts set charged_ucents = 1`);
    expect(await faults()).toEqual([expect.stringMatching(/^rcp_\w+: charged 1, the ledger says 0$/)]);
  });

  test('a charge whose receipt says that it was free, and one whose receipt is gone', async () => {
    const [id, gone] = [idOf(await ask()), idOf(await ask())];
    await tamper(sql`update request_receipts set charged_ucents = 0 where id = ${id}`);
    const says = `${id}: charged 0, the ledger says ${CHARGE}`;
    expect(await faults()).toEqual([says]);
    await tamper(sql`delete from request_receipts where id = ${gone}`);
    const without = `the ledger has charged ${CHARGE} for what has no row, 0 of it was forgotten; among them ${gone}`;
    expect(await faults()).toEqual([says, without]);
  });

  test('a charge that goes missing among those that are forgotten', async () => {
    await ask();
    await sumUp();
    await forgetReceipts(world.db, { untilMs: world.clock.now(), limit: 10 });
    expect(await faults()).toEqual([]);
    await tamper(sql`update forgotten_receipts set charged_ucents = charged_ucents - 1`);
    expect(await faults()).toEqual([expect.stringContaining(`${CHARGE - 1n} of it was forgotten`)]);
  });

  test('an open receipt whose hold has another amount', async () => {
    upstream.next({ ending: 'stall' });
    const leave = new AbortController();
    const asking = ask(leave.signal).catch(() => undefined);
    await upstream.came(1);
    expect(await faults()).toEqual([]);
    await tamper(sql`update request_receipts set held_ucents = held_ucents + 1`);
    expect(await faults()).toEqual([expect.stringMatching(/^rcp_\w+: should hold 65551, the ledger holds 65550$/)]);
    leave.abort();
    await asking;
  });
});
