// What changes while a watcher or a driver waits for the network: neither acts on what is not true any more.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { DepositChain } from '../../../../shared/api/deposit.ts';
import { type Sql, sql } from '../../../../control-plane/base/db/db.ts';
import { findChain, rewind } from '../../../../control-plane/money/deposits/chains-store.ts';
import type {
  Block,
  BlockRange,
  BlockReader,
  ChainReader,
  FoundTransfer,
} from '../../../../control-plane/money/deposits/reader.ts';
import { openDecisions } from '../../../../control-plane/money/deposits/decisions.ts';
import { creditedState } from '../../../../control-plane/money/deposits/plan.ts';
import { driveDeposit, type StepDeps } from '../../../../control-plane/money/deposits/steps.ts';
import { type Deposit, findDeposit } from '../../../../control-plane/money/deposits/store.ts';
import { transfersOf, upsertTransfer } from '../../../../control-plane/money/deposits/transfers-store.ts';
import { openWatcher, type Watcher } from '../../../../control-plane/money/deposits/watch.ts';
import { openWatchLease } from '../../../../control-plane/money/deposits/watch-lease.ts';
import { noteRead, offlineDeposits } from '../../../kit/deposits.ts';
import { openWorld, type World } from '../../../kit/world.ts';

/** `noteRead` says that blocks up to 9 were read, and that 5 is final. */
const FINAL = 5;
const TIP = { head: 12, final: 8 };

let world: World;
let deposit: Deposit;
beforeEach(async () => {
  world = await openWorld(1, { settings: { deposits: offlineDeposits(['ethereum']) } });
  await noteRead(world, 'ethereum');
  const { orgId } = await world.customer(0);
  const request = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 } as const;
  deposit = await world.db.tx('test.deposit', (tx) => world.rooms.deposits.create(tx, orgId, request));
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const block = (number: number): Block => ({ number, hash: `0x${number}`, ms: world.clock.now() });
const paid = (txHash: string, units: bigint): FoundTransfer => {
  return { txHash, logIndex: 0, block: block(7), from: '0xpayer', to: deposit.address, asset: 'usdc', units };
};

/** A node that has these payments. `meanwhile` happens before it answers for the first time. */
function reader(found: FoundTransfer[], meanwhile = async (): Promise<void> => undefined): BlockReader {
  let isFirst = true;
  const answer = async (): Promise<FoundTransfer[]> => {
    if (isFirst) await meanwhile();
    isFirst = false;
    return found;
  };
  return {
    obstacle: async () => undefined,
    tip: async () => ({ head: block(TIP.head), final: block(TIP.final) }),
    block: async (number) => block(number),
    transfers: async ({ to }) => ({ transfers: await answer(), readTo: to }),
    transfersOf: answer,
    balance: async () => 0n,
    isSanctioned: async () => false,
  };
}

function watcherOf(meanwhile: () => Promise<void>, chain: DepositChain = 'ethereum', blocksPerQuery = 100): Watcher {
  const lease = openWatchLease('test', world.core);
  const watched = { reader: reader([paid('0xa', 25_000_000n)], meanwhile), lease, blocksPerQuery };
  return openWatcher({ chain, ...watched }, { ...world.core, nudge: () => undefined });
}

const finalNumber = async (): Promise<unknown> => (await findChain(world.db.read, 'ethereum'))?.final_number;

test('a watcher stores what it has read', async () => {
  await watcherOf(async () => undefined).tick();
  expect(await finalNumber()).toBe(TIP.final);
});

test.each([
  [59_999, TIP.final, undefined],
  [60_000, FINAL + 1, 'again'],
])(
  'a watcher whose node takes %d ms for a block goes on to block %d in the same tick',
  async (takesMs, number, next) => {
    const watcher = watcherOf(() => world.clock.advance(takesMs), 'ethereum', 1);
    expect(await watcher.tick()).toBe(next);
    expect(await finalNumber()).toBe(number);
    expect(await watcher.tick()).toBeUndefined();
    expect(await finalNumber()).toBe(TIP.final);
  },
);

test('a watcher whose node is slow leaves the blocks after the final one to the next ticks too', async () => {
  const slow = async (): Promise<void> => world.clock.advance(25_000);
  const { transfers, ...rest } = reader([]);
  const lease = openWatchLease('test', world.core);
  const node = {
    ...rest,
    transfers: (range: BlockRange, to: readonly string[]) => slow().then(() => transfers(range, to)),
  };
  const watched = { chain: 'ethereum', reader: node, lease, blocksPerQuery: 1 } as const;
  const watcher = openWatcher(watched, { ...world.core, nudge: () => undefined });
  const head = async (): Promise<unknown> => (await findChain(world.db.read, 'ethereum'))?.head_number;
  await watcher.tick();
  expect([await finalNumber(), await head()]).toEqual([TIP.final, TIP.final + 1]);
  await watcher.tick();
  expect(await head()).toBe(TIP.head);
});

test('a watcher reads more transfers than a function has room for arguments', async () => {
  const stray = { ...paid('0xa', 1n), to: '0xother' };
  const lease = openWatchLease('test', world.core);
  const watched = { chain: 'ethereum', reader: reader(Array.from({ length: 150_000 }, () => stray)) } as const;
  await openWatcher({ ...watched, lease, blocksPerQuery: 100 }, { ...world.core, nudge: () => undefined }).tick();
  expect(await finalNumber()).toBe(TIP.final);
});

test('a watcher whose lease was taken while it read stores nothing', async () => {
  const other = openWatchLease('test', world.core);
  const watcher = watcherOf(async () => {
    expect(await other.hold()).toBeUndefined();
    await world.clock.advance(120_000);
    expect(await other.hold()).toBeDefined();
  });
  await watcher.tick();
  expect(await finalNumber()).toBe(FINAL);
});

test('a watcher stores nothing if the chain was rewound while it read', async () => {
  const watcher = watcherOf(() => world.db.tx('test.rewind', (tx) => rewind(tx, 'ethereum', block(3), 1)));
  await watcher.tick();
  expect(await finalNumber()).toBe(3);
});

async function note(found: FoundTransfer): Promise<void> {
  const transfer = {
    id: `deptx_${found.txHash}`,
    depositId: deposit.id,
    chain: 'ethereum',
    found,
    isFinal: true,
  } as const;
  await world.db.tx('test.note', (tx) => upsertTransfer(tx, transfer));
}

function stepsWith(confirmed: FoundTransfer[], meanwhile: () => Promise<void>): StepDeps {
  const first = reader(confirmed, meanwhile);
  const { ledger, events } = world.rooms;
  return {
    ...world.core,
    ledger,
    events,
    nodesOf: () => ({ first, second: null }),
    screen: async () => 'clear',
    toleranceUnits: 0n,
  };
}

const stateOf = async (): Promise<Deposit | undefined> => findDeposit(world.db.read, deposit.id);

test('a deposit is not settled with a transfer that came while the others were confirmed', async () => {
  await note(paid('0xa', 25_000_000n));
  const steps = stepsWith([paid('0xa', 25_000_000n)], () => note(paid('0xb', 1_000_000n)));
  for (const status of ['detected', 'confirming', 'settled', 'screening', 'credited', 'credited', 'credited']) {
    await driveDeposit(deposit.id, steps);
    expect((await stateOf())?.status).toBe(status);
  }
  expect(await stateOf()).toMatchObject({
    credited_cents: 2_500,
    note: expect.stringContaining('another result of the transaction 0xb'),
  });
});

test.each([
  ['in time', 0],
  ['too late', 1],
])(
  'a deposit is credited although a stranger sends a tiny transfer %s at each look at the chain',
  async (_when, late) => {
    await note(paid('0xa', 25_000_000n));
    const dust: FoundTransfer[] = [];
    const dusty = async (): Promise<void> => {
      const ms = late === 0 ? world.clock.now() : deposit.expires_ms + 1;
      const tiny = { ...paid(`0xdust${dust.length}`, 1n), block: { ...block(7), ms } };
      dust.push(tiny);
      await note(tiny);
    };
    const steps = stepsWith([], async () => undefined);
    const node: ChainReader = {
      ...reader([]),
      transfersOf: async (txHash) => {
        await dusty();
        return [paid('0xa', 25_000_000n), ...dust].filter((each) => each.txHash === txHash);
      },
    };
    const screen = async (): Promise<'clear'> => {
      await dusty();
      return 'clear';
    };
    const asked = { ...steps, screen, nodesOf: () => ({ first: node, second: null }) };
    for (let i = 0; i < 20; i += 1) await driveDeposit(deposit.id, asked);
    expect((await stateOf())?.credited_cents).toBe(2_500);
  },
);

/** What the operator does when a node was on a fork. */
async function rewindTo(number: number): Promise<void> {
  const steps = stepsWith([], async () => undefined);
  await openDecisions({ ...steps, ids: world.core.ids, nudge: () => undefined }).rewind('ethereum', number);
}

test('a deposit is not settled with a transfer that a rewind takes back while it is confirmed', async () => {
  await note({ ...paid('0xa', 25_000_000n), block: block(5) });
  const confirmed = [{ ...paid('0xa', 25_000_000n), block: block(5) }];
  const steps = stepsWith(confirmed, () => rewindTo(4));
  for (const status of ['detected', 'confirming', 'confirming', 'created']) {
    await driveDeposit(deposit.id, steps);
    expect((await stateOf())?.status).toBe(status);
  }
});

test('a deposit is not credited with a transfer that a rewind takes back while its sender is checked', async () => {
  await note({ ...paid('0xa', 25_000_000n), block: block(5) });
  const steps = stepsWith([{ ...paid('0xa', 25_000_000n), block: block(5) }], async () => undefined);
  for (let i = 0; i < 4; i += 1) await driveDeposit(deposit.id, steps);
  expect((await stateOf())?.status).toBe('screening');
  const screening: StepDeps = {
    ...steps,
    screen: async () => {
      await rewindTo(4);
      return 'clear';
    },
  };
  for (const status of ['screening', 'held_screening', 'held_screening']) {
    await driveDeposit(deposit.id, screening);
    expect(await stateOf()).toMatchObject({ status, credited_cents: null });
  }
  expect(await transfersOf(world.db.read, deposit.id)).toMatchObject([{ status: 'orphaned', is_counted: false }]);
});

test('an operator credits no transfer whose sender came while the others were checked', async () => {
  const late = (txHash: string, from: string): FoundTransfer => {
    const ms = deposit.expires_ms + 1;
    return { ...paid(txHash, 1_000_000n), from, block: { ...block(7), ms } };
  };
  await note(paid('0xa', 25_000_000n));
  const steps = stepsWith([paid('0xa', 25_000_000n)], async () => undefined);
  for (let i = 0; i < 6; i += 1) await driveDeposit(deposit.id, steps);
  await note(late('0xb', '0xpayer'));
  await driveDeposit(deposit.id, steps);
  const screen: StepDeps['screen'] = async (_chain, address) => {
    if (address === '0xsanctioned') return 'hit';
    await note(late('0xc', '0xsanctioned'));
    await driveDeposit(deposit.id, steps);
    return 'clear';
  };
  const { credit } = openDecisions({ ...steps, screen, ids: world.core.ids, nudge: () => undefined });
  await expect(credit(deposit.id, 'late')).rejects.toMatchObject({ code: 'conflict' });
  expect(await stateOf()).toMatchObject({ credited_cents: 2_500 });
});

test.each([
  ['another block', { block: { number: 7, hash: '0x99', ms: 0 } }],
  ['another amount', { units: 26_000_000n }],
  ['another token', { asset: 'usdt' as const }],
  ['another place in its block', { logIndex: 1 }],
])('a deposit whose transfer the node now has with %s waits, and says why', async (_what, change) => {
  await note(paid('0xa', 25_000_000n));
  const steps = stepsWith([{ ...paid('0xa', 25_000_000n), ...change }], async () => undefined);
  for (let i = 0; i < 5; i += 1) await driveDeposit(deposit.id, steps);
  expect(await stateOf()).toMatchObject({
    status: 'confirming',
    note: 'the node has another result of the transaction 0xa',
  });
});

test('a deposit whose place in a transaction another deposit gets by a reorganisation waits for tokens again', async () => {
  const request = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 } as const;
  const { orgId } = await world.customer(0);
  const other = await world.db.tx('test.deposit', (tx) => world.rooms.deposits.create(tx, orgId, request));
  const at = (to: string, logIndex: number, hash: string): FoundTransfer => ({
    ...paid('0xa', 25_000_000n),
    to,
    logIndex,
    block: { number: 11, hash, ms: world.clock.now() },
  });
  let tip = TIP;
  let found = [at(deposit.address, 5, '0x11'), at(other.address, 6, '0x11')];
  const node: ChainReader = {
    ...reader([], async () => undefined),
    tip: async () => ({ head: block(tip.head), final: block(tip.final) }),
    transfers: async ({ from, to }) => ({
      transfers: found.filter(({ block: { number } }) => from <= number && number <= to),
      readTo: to,
    }),
  };
  const lease = openWatchLease('test', world.core);
  const watched = { chain: 'ethereum', reader: node, lease, blocksPerQuery: 100 } as const;
  const watcher = openWatcher(watched, { ...world.core, nudge: () => undefined });
  const idle = stepsWith([], async () => undefined);
  await watcher.tick();
  await driveDeposit(other.id, idle);
  expect(await findDeposit(world.db.read, other.id)).toMatchObject({ status: 'detected' });
  tip = { head: 24, final: 20 };
  found = [at(deposit.address, 6, '0x11b')];
  await watcher.tick();
  await driveDeposit(other.id, idle);
  expect(await findDeposit(world.db.read, other.id)).toMatchObject({ status: 'created' });
  expect(await transfersOf(world.db.read, other.id)).toEqual([]);
  expect((await transfersOf(world.db.read, deposit.id)).map((row) => `${row.log_index} ${row.status}`)).toEqual([
    '5 orphaned',
    '6 final',
  ]);
});

test('a payment on another chain waits for the operator, and the deposit goes on', async () => {
  await noteRead(world, 'base');
  await watcherOf(async () => undefined, 'base').tick();
  const steps = stepsWith([], async () => undefined);
  for (let i = 0; i < 3; i += 1) await driveDeposit(deposit.id, steps);
  expect((await stateOf())?.status).toBe('created');
  expect(await transfersOf(world.db.read, deposit.id)).toMatchObject([{ chain: 'base', booking: 'suspense' }]);
});

test.each([
  [24_989_999n, 'credited_underpaid'],
  [24_990_000n, 'credited'],
  [25_010_000n, 'credited'],
  [25_010_001n, 'credited_overpaid'],
])('with a tolerance of a cent, %s units of 25.00 are %s', (units, status) => {
  expect(creditedState({ due_units: 25_000_000n }, units, 10_000n)).toBe(status);
});

test('the proof finds what does not agree with the books', async () => {
  await note(paid('0xa', 25_000_000n));
  const steps = stepsWith([paid('0xa', 25_000_000n)], async () => undefined);
  for (let i = 0; i < 6; i += 1) await driveDeposit(deposit.id, steps);
  expect((await stateOf())?.status).toBe('credited');
  const { db, books } = world;
  const change = (set: Sql): Promise<number> => db.tx('test.plant', (tx) => tx.run(set));
  const faultsOf = async (plant: Sql, mend: Sql): Promise<string> => {
    await change(plant);
    const faults = await books.verify();
    await change(mend);
    return faults.join('; ');
  };
  const cents = (value: number) => sql`update deposits set credited_cents = ${value}`;
  const booking = (value: string | null) => sql`update deposit_transfers set booking = ${value}`;
  const units = (value: bigint) => sql`update deposits set credited_units = ${value}`;
  expect(await faultsOf(cents(2_501), cents(2_500))).toContain('credited in cents');
  expect(await faultsOf(units(1n), units(25_000_000n))).toContain('credited in tokens');
  expect(await faultsOf(booking('suspense'), booking('wallet'))).toContain('deposit_suspense:platform');
  expect(await faultsOf(booking(null), booking('wallet'))).toContain('taken for the wallet');
  const size = (value: bigint) => sql`update deposit_transfers set units = ${value}`;
  expect(await faultsOf(size(1n), size(25_000_000n))).toContain('deposit_clearing:ethereum:usdc');
});
