// A chain that is read account by account: what a tick asks the node for, where the next tick goes on, and that nothing is missed or found twice.
import { sha256 } from '@noble/hashes/sha2.js';
import { base58 } from '@scure/base';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { TOKEN_PROGRAM, tokenAccountOf } from '../../../../control-plane/money/deposits/chain-addresses.ts';
import { CHAINS } from '../../../../control-plane/money/deposits/chains.ts';
import { findChain } from '../../../../control-plane/money/deposits/chains-store.ts';
import { openDecisions } from '../../../../control-plane/money/deposits/decisions.ts';
import type { AccountReader } from '../../../../control-plane/money/deposits/reader.ts';
import { type Rpc, RpcError } from '../../../../control-plane/money/deposits/rpc.ts';
import { openSolanaReader } from '../../../../control-plane/money/deposits/solana.ts';
import { type Deposit, insertDeposit } from '../../../../control-plane/money/deposits/store.ts';
import { transfersOf } from '../../../../control-plane/money/deposits/transfers-store.ts';
import { openWatcher, type Watcher } from '../../../../control-plane/money/deposits/watch.ts';
import { openWatchLease } from '../../../../control-plane/money/deposits/watch-lease.ts';
import { offlineDeposits } from '../../../kit/deposits.ts';
import { openWorld, type World } from '../../../kit/world.ts';

const DEPOSITS = 300;
const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;
/** `getSlot` and `getBlockTime`. */
const TIP_CALLS = 2;
/** A process asks for the network and the two mints once. */
const START_CALLS = 3;
/** Two token accounts for each deposit, and a hundred in a call. */
const BALANCE_CALLS = 6;
const SUSPECTS = 20;
const { contracts } = CHAINS.solana;
const { usdc = '' } = contracts;

/** The state of the chain, and how its node behaves. */
interface Node {
  slot: number;
  /** The balance and the transactions of each token account that exists, the newest first. */
  accounts: Map<string, { units: bigint; sent: { signature: string; slot: number; change: bigint }[] }>;
  calls: string[];
  /** A call takes this long. */
  callMs: number;
  /** The node refuses all calls after this number of them. */
  callsMax: number;
}

let world: World;
let node: Node;
let rows: Deposit[];
/** The token account of each deposit. */
let keys: string[];
let watcher: Watcher;
let startMs: number;
beforeEach(async () => {
  world = await openWorld(1, { settings: { deposits: { ...offlineDeposits(['solana']), evmKey: null } } });
  startMs = world.clock.now();
  node = { slot: 100, accounts: new Map(), calls: [], callMs: 0, callsMax: Infinity };
  watcher = open();
  await settle();
  const { orgId } = await world.customer(0);
  rows = Array.from({ length: DEPOSITS }, (_, i) => rowOf(i, orgId));
  keys = rows.map(({ address }) => tokenAccountOf(address, usdc));
  await world.db.tx('test', async (tx) => {
    for (const row of rows) await insertDeposit(tx, row);
  });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

function rowOf(i: number, orgId: string): Deposit {
  const expiresMs = startMs + HOUR_MS;
  return {
    id: `dep_${String(i).padStart(4, '0')}`,
    org_id: orgId,
    status: 'created',
    chain: 'solana',
    asset: 'usdc',
    family: 'solana',
    amount_cents: 2_500,
    due_units: 25_000_000n,
    address: base58.encode(sha256(Uint8Array.of(i % 256, i >> 8))),
    position: i,
    tx_hash: null,
    credited_units: null,
    credited_cents: null,
    note: null,
    created_ms: startMs,
    expires_ms: expiresMs,
    watched_until_ms: expiresMs + 30 * 24 * HOUR_MS,
    due_ms: null,
  };
}

const secondsAt = (slot: number): number => startMs / SECOND_MS + (slot - 100);

function answer(method: string, params: readonly unknown[]): unknown {
  const [first, second] = params as [string, { before?: string } | undefined];
  switch (method) {
    case 'getGenesisHash':
      return '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';
    case 'getAccountInfo':
      return { value: { owner: TOKEN_PROGRAM, data: { parsed: { type: 'mint', info: { decimals: 6 } } } } };
    case 'getSlot':
      return node.slot;
    case 'getBlockTime':
      return secondsAt(Number(first));
    case 'getMultipleAccounts':
      return { context: { slot: node.slot }, value: (params[0] as string[]).map(dataOf) };
    case 'getSignaturesForAddress': {
      const all = node.accounts.get(first)?.sent ?? [];
      const from = second?.before === undefined ? 0 : all.findIndex((each) => each.signature === second.before) + 1;
      return all.slice(from).map(({ signature, slot }) => ({ signature, slot, err: null }));
    }
    default: {
      const i = Number(first.split('-')[0]);
      const [owner, key = ''] = [rows[i]?.address, keys[i]];
      const sent = node.accounts.get(key)?.sent.find((each) => each.signature === first);
      const balance = { accountIndex: 1, mint: usdc, owner, programId: TOKEN_PROGRAM };
      const amounts = [1_000_000_000n, 1_000_000_000n + (sent?.change ?? 0n)].map(String);
      const [pre, post] = amounts.map((amount) => [{ ...balance, uiTokenAmount: { amount } }]);
      const meta = { err: null, preTokenBalances: pre, postTokenBalances: post };
      const slot = sent?.slot ?? 0;
      return { slot, blockTime: secondsAt(slot), meta, transaction: { message: { accountKeys: ['payer', key] } } };
    }
  }
}

function dataOf(account: string): { data: [string, string] } | null {
  const found = node.accounts.get(account);
  if (found === undefined) return null;
  const data = Buffer.alloc(8);
  data.writeBigUInt64LE(found.units);
  return { data: [data.toString('base64'), 'base64'] };
}

function readerNow(): AccountReader {
  const rpc: Rpc = {
    call: async (method, params, result) => {
      if (node.calls.length >= node.callsMax) throw new RpcError(-1, 'too many requests');
      node.calls.push(method);
      await world.clock.advance(node.callMs);
      return result.parse(answer(method, params));
    },
    close: async () => undefined,
  };
  return openSolanaReader({ contracts }, rpc);
}

/** The watcher of another process, which has a lease of its own. */
function open(name = 'test'): Watcher {
  const lease = openWatchLease(name, world.core);
  const watched = {
    chain: 'solana',
    reader: readerNow(),
    lease,
    blocksPerQuery: Number.MAX_SAFE_INTEGER / 1_000,
  } as const;
  return openWatcher(watched, { ...world.core, nudge: () => undefined });
}

const settle = async (): Promise<void> => {
  while ((await watcher.tick()) === 'again');
};

/** Sends tokens, or takes some away, in a slot of their own. */
function send(i: number, change: bigint): void {
  node.slot += 1;
  const key = keys[i] ?? '';
  const { units, sent } = node.accounts.get(key) ?? { units: 0n, sent: [] };
  const signature = `${i}-${node.slot}`;
  node.accounts.set(key, { units: units + change, sent: [{ signature, slot: node.slot, change }, ...sent] });
}

const found = async (i: number): Promise<bigint[]> =>
  (await transfersOf(world.db.read, rows[i]?.id ?? '')).map(({ units }) => units);
const countFound = async (): Promise<number> =>
  (await world.db.read.one(countRow, sql`select count(*) as count from deposit_transfers`))?.count ?? 0;
const row = () => findChain(world.db.read, 'solana');

async function payAll(): Promise<void> {
  for (const i of rows.keys()) send(i, 5n);
  await settle();
  expect(await countFound()).toBe(DEPOSITS);
}

async function callsOfTick(): Promise<string[]> {
  node.calls = [];
  node.slot += 1;
  await settle();
  return node.calls;
}

describe('a tick with 300 watched deposits', () => {
  test('asks for all balances in a few calls while nothing is paid', async () => {
    expect((await callsOfTick()).length).toBe(TIP_CALLS + BALANCE_CALLS);
  });

  test('asks for what has changed, and for a few others, if all are paid', async () => {
    await payAll();
    expect((await callsOfTick()).length).toBe(TIP_CALLS + BALANCE_CALLS + SUSPECTS);
    send(299, 7n);
    const calls = await callsOfTick();
    expect(calls.filter((method) => method === 'getTransaction')).toHaveLength(1);
    expect(calls.length).toBe(TIP_CALLS + BALANCE_CALLS + SUSPECTS + 2);
    expect(await found(299)).toEqual([5n, 7n]);
  });

  test('finds tokens that came and went between two ticks as soon as the account has its turn', async () => {
    await payAll();
    await callsOfTick();
    send(0, 9n);
    send(0, -9n);
    for (let i = 0; i < DEPOSITS / SUSPECTS; i += 1) await callsOfTick();
    expect(await found(0)).toEqual([5n, 9n]);
    expect(await countFound()).toBe(DEPOSITS + 1);
  });
});

describe('a tick whose time is over', () => {
  test('stores what it has, and the next tick goes on there, also in another process', async () => {
    for (const i of rows.keys()) send(i, 5n);
    const to = node.slot;
    node.callMs = 25_000;
    const reached: string[] = [];
    const finals = new Set<unknown>();
    const took: number[] = [];
    for (let tick = 0; !finals.has(to); tick += 1) {
      const startedMs = world.clock.monotonicMs();
      await watcher.tick();
      took.push(world.clock.monotonicMs() - startedMs);
      const { pass_after: after, final_number: final } = (await row()) ?? {};
      reached.push(after ?? 'end');
      finals.add(final);
      if (tick % 5 === 0) {
        await watcher.close();
        watcher = open();
      }
      if (tick === 6) node.callMs = 1_000;
    }
    // The time begins after the tip was read. An account takes two more calls, after those for the balances.
    expect(Math.max(...took)).toBeLessThanOrEqual((START_CALLS + TIP_CALLS + 3) * 25_000 + 60_000);
    expect(reached.length).toBeGreaterThan(10);
    expect(reached).toEqual(reached.toSorted((a, b) => (a < b ? -1 : 1)));
    expect([...finals]).toEqual([100, to]);
    expect(await countFound()).toBe(DEPOSITS);
    expect(await row()).toMatchObject({ pass_number: null, pass_after: null, final_ms: secondsAt(to) * SECOND_MS });
  });

  test('keeps deposits from expiring before their accounts are read', async () => {
    send(299, 25n);
    node.slot += 7_200;
    node.callMs = 25_000;
    await watcher.tick();
    expect(await row()).toMatchObject({ final_number: 100, pass_number: node.slot });
    node.callMs = 0;
    send(0, 25n);
    await settle();
    expect([await found(0), await found(299)]).toEqual([[25n], [25n]]);
    expect(await row()).toMatchObject({ final_number: node.slot, pass_number: null });
  });
});

test('a node that refuses many calls at once is read in several ticks', async () => {
  for (const i of rows.keys()) send(i, 5n);
  const refusals = new Set<string>();
  let ticks = 0;
  for (; ticks < 40 && (await countFound()) < DEPOSITS; ticks += 1) {
    node.calls = [];
    node.callsMax = 40;
    await watcher.tick().catch((error: unknown) => refusals.add(String(error)));
  }
  expect(await countFound()).toBe(DEPOSITS);
  expect(ticks).toBeGreaterThan((2 * DEPOSITS) / 40);
  expect([...refusals].filter((text) => !text.includes('too many requests'))).toEqual([]);
});

describe('accounts that are behind', () => {
  const TURN = 20;
  const SHARED = 200;
  const DUSTY = [0, 1, 299];
  const dust = (count: number): void => {
    for (const i of DUSTY) for (let n = 0; n < count; n += 1) send(i, 1n);
  };
  const counts = async (): Promise<number[]> => Promise.all(DUSTY.map(async (i) => (await found(i)).length));

  test('share what is left of a tick, and make no other account wait', async () => {
    dust(300);
    send(150, 7n);
    node.calls = [];
    await watcher.tick();
    const share = Math.floor(SHARED / DUSTY.length);
    expect(await counts()).toEqual(DUSTY.map(() => TURN + share));
    expect(node.calls.filter((method) => method === 'getTransaction')).toHaveLength(3 * (TURN + share) + 1);
    expect([await found(150), (await row())?.final_number]).toEqual([[7n], node.slot]);
    for (let tick = 0; tick < 6; tick += 1) {
      send(tick === 2 ? 1 : 2, 9n);
      await watcher.tick();
    }
    expect(await counts()).toEqual([300, 301, 300]);
    expect((await found(2)).length).toBe(5);
  });

  test('each have their turn at a node that answers about one of them in a tick', async () => {
    dust(100);
    await watcher.tick();
    const before = await counts();
    node.callMs = 9_000;
    for (let tick = 0; tick < 6; tick += 1) {
      node.slot += 1;
      await watcher.tick();
    }
    expect(await counts()).toEqual(before.map((count) => count + 2));
  });
});

describe('a rewind', () => {
  const rewindTo = (number: number) => {
    const { ledger, events } = world.rooms;
    const nodesOf = () => ({ first: readerNow(), second: null });
    const steps = { ...world.core, ledger, events, nodesOf, screen: async () => 'clear' as const, toleranceUnits: 0n };
    return openDecisions({ ...steps, ids: world.core.ids, nudge: () => undefined }).rewind('solana', number);
  };

  test('finds again what is in the accounts, and keeps the time of the chain', async () => {
    send(0, 5n);
    await settle();
    send(1, 6n);
    await settle();
    const before = await row();
    await world.db.tx('test', (tx) => tx.run(sql`update deposits set due_ms = null`));
    expect(await rewindTo(101)).toEqual({ orphaned: 1, booked: [] });
    expect(await row()).toMatchObject({ final_number: 101, final_ms: secondsAt(102) * SECOND_MS, pass_number: null });
    node.slot += 1;
    await settle();
    for (const [i, units] of [5n, 6n].entries())
      expect(await transfersOf(world.db.read, rows[i]?.id ?? '')).toMatchObject([{ units, status: 'final' }]);
    await rewindTo(node.slot);
    expect((await row())?.final_ms).toBe((before?.final_ms ?? 0) + SECOND_MS);
    await rewindTo(101);
    node.accounts.clear();
    node.slot += 1;
    await settle();
    expect(await transfersOf(world.db.read, rows[1]?.id ?? '')).toMatchObject([{ status: 'orphaned' }]);
    expect(await transfersOf(world.db.read, rows[0]?.id ?? '')).toMatchObject([{ status: 'final' }]);
  });

  test('ends the pass of the last tick', async () => {
    for (const i of rows.keys()) send(i, 5n);
    node.callMs = 25_000;
    await watcher.tick();
    expect(await row()).toMatchObject({ pass_number: node.slot });
    await rewindTo(100);
    expect(await row()).toMatchObject({ pass_number: null, final_number: 100 });
    node.callMs = 0;
    await settle();
    expect(await countFound()).toBe(DEPOSITS);
  });
});

test('deposits that are not watched any more are not asked for', async () => {
  await payAll();
  node.slot += 31 * 24 * 3_600;
  await settle();
  expect((await callsOfTick()).length).toBe(TIP_CALLS);
});
