// Several control planes on one database: the sweep closes the requests of the dead ones, and leaves those of the living ones alone.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import type { Balance } from '../../../control-plane/money/ledger/ledger.ts';
import { openReceipt } from '../../../control-plane/models/gateway/states.ts';
import { findReceipt, pageOfReceipts, type Receipt } from '../../../control-plane/models/gateway/store.ts';
import { type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { someModels } from '../../kit/models.ts';
import { newReceipt } from '../../kit/payers.ts';
import { type KeyAccount, openWorld, type World } from '../../kit/world.ts';

const FUNDS = 100_000_000n;
const HELD = 1_000n;
const forever = new AbortController().signal;

let upstream: FakeUpstream;
/** The member `member-1`. */
let world: World;
/** The member `member-2`, which sweeps. */
let primary: World;
let who: KeyAccount;
let living: Set<string>;
/** The sweep waits for it before it knows who lives. */
let whileAsked: () => Promise<unknown>;
beforeEach(async () => {
  living = new Set();
  whileAsked = async () => undefined;
  upstream = await openFakeUpstream();
  const otherMembers = async (): Promise<ReadonlySet<string>> => {
    const seen = new Set(living);
    await whileAsked();
    return seen;
  };
  world = await openWorld(1, { settings: { models: someModels(upstream.baseUrl) }, otherMembers });
  who = await world.customer(100);
  primary = await world.restart();
});
afterEach(async () => {
  await primary.rooms.gateway.close();
  await world.verify();
  await world.close();
  await upstream.close();
});

/** Opens the receipt of a request that no process of this test serves. */
async function leaveOpen(id: string, member: string): Promise<void> {
  const receipt = newReceipt(who, { id, held_ucents: HELD, opened_ms: world.clock.now() });
  expect(await world.db.hot(openReceipt({ ...receipt, member }))).toBe('open');
}
function ask(on: World): Promise<Reply> {
  return on.rooms.gateway.completeChat({
    caller: { orgId: who.orgId, principalId: who.principalId, scopes: [] },
    requestId: 'req_test',
    gone: forever,
    body: { model: 'small', messages: [{ role: 'user', content: 'hi' }] },
  });
}
const sweep = (): Promise<number> => primary.rooms.gateway.sweep(forever);
const balance = (): Promise<Balance> => world.rooms.ledger.balance(world.db.read, wallet(who.orgId));
const receipts = (): Promise<Receipt[]> => pageOfReceipts(world.db.read, { orgId: who.orgId }, undefined, 10);

test('a request names the control plane that serves it', async () => {
  await ask(world);
  await ask(primary);
  expect((await receipts()).map(({ member }) => member).toSorted()).toEqual(['member-1', 'member-2']);
});

test('a request of another living control plane is left alone, and is charged by that one', async () => {
  living.add('member-1');
  const gate = Promise.withResolvers<void>();
  upstream.next({ after: gate.promise });
  const asking = ask(world);
  await upstream.came(1);
  expect(await sweep()).toBe(0);
  expect(await receipts()).toMatchObject([{ state: 'open' }]);
  gate.resolve();
  await asking;
  expect(await receipts()).toMatchObject([{ state: 'settled', ending: 'completed' }]);
});

test('a request of a control plane that dies between two sweeps is closed by the second one, free of charge', async () => {
  living.add('member-1').add('member-3');
  await leaveOpen('rcp_a', 'member-1');
  await leaveOpen('rcp_b', 'member-3');
  expect(await sweep()).toBe(0);
  expect(await balance()).toMatchObject({ heldUcents: 2n * HELD });
  living.delete('member-3');
  expect(await sweep()).toBe(1);
  expect(await findReceipt(world.db.read, 'rcp_a')).toMatchObject({ state: 'open' });
  const closed = { state: 'released', ending: 'process_ended', charged_ucents: 0n };
  expect(await findReceipt(world.db.read, 'rcp_b')).toMatchObject(closed);
  expect(await balance()).toMatchObject({ heldUcents: HELD, postedUcents: FUNDS });
  living.clear();
  expect(await sweep()).toBe(1);
  expect(await balance()).toMatchObject({ heldUcents: 0n, postedUcents: FUNDS });
});

test('a request that this control plane does not serve any more is closed free of charge, and those that it serves stay', async () => {
  await leaveOpen('rcp_lost', 'member-2');
  const gate = Promise.withResolvers<void>();
  upstream.next({ after: gate.promise });
  const asking = ask(primary);
  await upstream.came(1);
  expect(await sweep()).toBe(1);
  expect(await findReceipt(world.db.read, 'rcp_lost')).toMatchObject({ state: 'released', ending: 'process_ended' });
  gate.resolve();
  await asking;
  expect((await receipts()).map(({ state }) => state).toSorted()).toEqual(['released', 'settled']);
});

test('a request from before requests named their control plane is closed', async () => {
  await leaveOpen('rcp_old', '');
  living.add('member-1');
  expect(await sweep()).toBe(1);
  expect(await balance()).toMatchObject({ heldUcents: 0n, postedUcents: FUNDS });
});

test('a request of a control plane that starts during the sweep is left alone', async () => {
  await leaveOpen('rcp_dead', 'member-0');
  whileAsked = () => leaveOpen('rcp_new', 'member-3');
  expect(await sweep()).toBe(1);
  expect(await findReceipt(world.db.read, 'rcp_new')).toMatchObject({ state: 'open' });
  whileAsked = async () => undefined;
  expect(await sweep()).toBe(1);
});

test('a request that its own control plane ends during the sweep is not counted, and is charged as it ended', async () => {
  const gate = Promise.withResolvers<void>();
  upstream.next({ after: gate.promise });
  const asking = ask(world);
  await upstream.came(1);
  whileAsked = () => {
    gate.resolve();
    return asking;
  };
  expect(await sweep()).toBe(0);
  expect(await receipts()).toMatchObject([{ state: 'settled', ending: 'completed' }]);
});
