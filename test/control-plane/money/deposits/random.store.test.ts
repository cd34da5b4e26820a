// Random histories of a chain and of its watchers: whatever happens, each token is booked once, and every deposit ends as its payments say.
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DEPOSIT_STATES, type DepositState, mayMove } from '../../../../shared/states.ts';
import { openWatcher, type Watcher } from '../../../../control-plane/money/deposits/watch.ts';
import { openWatchLease } from '../../../../control-plane/money/deposits/watch-lease.ts';
import { driveDeposit, type StepDeps } from '../../../../control-plane/money/deposits/steps.ts';
import { creditedState } from '../../../../control-plane/money/deposits/plan.ts';
import type { Block, ChainReader, FoundTransfer } from '../../../../control-plane/money/deposits/reader.ts';
import { type Deposit, dueDeposits, findDeposit } from '../../../../control-plane/money/deposits/store.ts';
import { ucents } from '../../../../control-plane/base/db/columns.ts';
import { raw, sql } from '../../../../control-plane/base/db/db.ts';
import { z } from 'zod';
import { noteRead, offlineDeposits } from '../../../kit/deposits.ts';
import { type KeyAccount, openWorld, type World } from '../../../kit/world.ts';

const RUNS = process.env['SOAK'] === '1' ? 500 : 25;
const FINAL_BLOCKS = 4;
const MINUTE_MS = 60_000;

let world: World;
let who: KeyAccount;
beforeAll(async () => {
  world = await openWorld(1, { settings: { deposits: { ...offlineDeposits(['ethereum']), openPerOrgMax: 10_000 } } });
  who = await world.customer(0);
});
afterAll(() => world.close());

interface Mined extends Block {
  transfers: FoundTransfer[];
}

/** A chain in memory, with forks. */
interface Chain {
  blocks: Mined[];
  /** Blocks of the tip that the node does not show. */
  lag: number;
  forks: number;
}

type Step =
  | { kind: 'mine'; minutes: number; pay: { which: number; units: bigint; asset: 'usdc' | 'usdt' } | null }
  | { kind: 'reorg'; depth: number; keeps: boolean }
  | { kind: 'lag'; blocks: number }
  | { kind: 'tick' }
  | { kind: 'drive' }
  | { kind: 'restart' };

const payment = fc.record({
  which: fc.nat(1),
  units: fc.constantFrom(1n, 9_999n, 5_000_000n, 10_000_000n, 25_000_000n),
  asset: fc.constantFrom('usdc' as const, 'usdc' as const, 'usdt' as const),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('mine' as const),
      minutes: fc.constantFrom(0, 1, 5, 20),
      pay: fc.option(payment),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('reorg' as const),
      depth: fc.integer({ min: 1, max: FINAL_BLOCKS - 1 }),
      keeps: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lag' as const), blocks: fc.nat(6) }) },
  { weight: 3, arbitrary: fc.constant({ kind: 'tick' as const }) },
  { weight: 2, arbitrary: fc.constant({ kind: 'drive' as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'restart' as const }) },
);

function readerOf(chain: Chain): ChainReader {
  const shown = (): Mined[] => chain.blocks.slice(0, Math.max(1, chain.blocks.length - chain.lag));
  const only = ({ number, hash, ms }: Mined): Block => ({ number, hash, ms });
  const at = (number: number): Block => {
    const block = shown()[Math.max(0, number)];
    if (block === undefined) throw new Error(`no block ${number}`);
    return only(block);
  };
  return {
    obstacle: async () => undefined,
    tip: async () => ({ head: at(shown().length - 1), final: at(shown().length - 1 - FINAL_BLOCKS) }),
    block: async (number) => (number < shown().length ? at(number) : undefined),
    // It reads at most two blocks at once, as if they had very many transfers.
    transfers: async ({ from, to }, addresses) => {
      const readTo = Math.min(to, from + 1);
      const blocks = shown().slice(from, readTo + 1);
      const transfers = blocks.flatMap((each) => each.transfers.filter((transfer) => addresses.includes(transfer.to)));
      return { transfers, readTo };
    },
    transfersOf: async (txHash, address) =>
      shown().flatMap(({ transfers }) => transfers.filter((each) => each.txHash === txHash && each.to === address)),
    balance: async () => 0n,
    isSanctioned: async () => false,
  };
}

function mine(chain: Chain, ms: number, transfers: (block: Block) => FoundTransfer[] = () => []): void {
  chain.forks += 1;
  const block = { number: chain.blocks.length, hash: `0x${chain.forks}`, ms };
  chain.blocks.push({ ...block, transfers: transfers(block) });
}

/** The amounts that a deposit must have once the chain is final. */
function expectedOf(deposit: Deposit, chain: Chain): { allUnits: bigint; inTimeUnits: bigint } {
  const own = chain.blocks.flatMap(({ transfers }) => transfers.filter(({ to }) => to === deposit.address));
  const sum = (transfers: FoundTransfer[]): bigint => transfers.reduce((total, { units }) => total + units, 0n);
  return {
    allUnits: sum(own),
    inTimeUnits: sum(own.filter(({ asset, block }) => asset === 'usdc' && block.ms <= deposit.expires_ms)),
  };
}

let round = 0;

async function live(steps: readonly Step[]): Promise<void> {
  const { core, rooms, db, clock } = world;
  round += 1;
  const startMs = clock.now();
  const chain: Chain = { blocks: [], lag: 0, forks: round * 1_000 };
  for (let i = 0; i <= FINAL_BLOCKS; i += 1) mine(chain, startMs - MINUTE_MS);
  await db.tx('test.clear', async (tx) => {
    for (const table of ['deposit_chains', 'deposit_checkpoints']) await tx.run(raw(`delete from ${table}`));
  });
  await noteRead(world, 'ethereum');
  const ofChain = { final_number: 0, final_hash: chain.blocks[0]?.hash ?? '', head_number: 0 };
  await db.tx('test.begin', (tx) =>
    tx.run(
      sql`update deposit_chains set final_number = 0, head_number = 0, final_hash = ${ofChain.final_hash}, final_ms = ${startMs - MINUTE_MS}`,
    ),
  );
  const create = (): Promise<Deposit> =>
    db.tx('test.deposit', (tx) =>
      rooms.deposits.create(tx, who.orgId, { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 }),
    );
  const made = [await create(), await create()];
  const reader = readerOf(chain);
  const open = (): Watcher =>
    openWatcher(
      { chain: 'ethereum', reader, lease: openWatchLease(`round ${round}`, core), blocksPerQuery: 3 },
      { ...core, nudge: () => undefined },
    );
  let watcher = open();
  const stepDeps: StepDeps = {
    ...core,
    ledger: rooms.ledger,
    events: rooms.events,
    nodesOf: () => ({ first: reader, second: null }),
    screen: async () => 'clear',
    toleranceUnits: 0n,
  };
  const drive = async (): Promise<void> => {
    for (const id of await dueDeposits(db.read, clock.now(), 100)) await driveDeposit(id, stepDeps);
  };
  const tick = async (): Promise<void> => {
    while ((await watcher.tick()) === 'again');
  };
  let nextTx = 0;
  const timeOf = (): number => chain.blocks.at(-1)?.ms ?? startMs;
  for (const each of steps) {
    if (each.kind === 'mine') {
      const { pay } = each;
      mine(chain, timeOf() + each.minutes * MINUTE_MS, (block) => {
        if (pay === null) return [];
        nextTx += 1;
        const to = made[pay.which]?.address ?? '';
        return [
          {
            txHash: `tx${round}-${nextTx}`,
            logIndex: 0,
            block,
            from: '0xpayer',
            to,
            asset: pay.asset,
            units: pay.units,
          },
        ];
      });
    } else if (each.kind === 'reorg') {
      const gone = chain.blocks.splice(Math.max(FINAL_BLOCKS + 1, chain.blocks.length - each.depth));
      const kept = each.keeps ? gone.flatMap(({ transfers }) => transfers) : [];
      for (const { ms } of gone) {
        const isLast = ms === gone.at(-1)?.ms;
        mine(chain, ms, (block) => (isLast ? kept.splice(0).map((transfer) => ({ ...transfer, block })) : []));
      }
    } else if (each.kind === 'lag') chain.lag = each.blocks;
    else if (each.kind === 'tick') await tick();
    else if (each.kind === 'drive') await drive();
    else {
      await watcher.close();
      watcher = open();
    }
  }
  chain.lag = 0;
  for (let i = 0; i <= FINAL_BLOCKS; i += 1) mine(chain, timeOf() + 120 * MINUTE_MS);
  await tick();
  for (let i = 0; i < 30; i += 1) await drive();
  for (const { id } of made) await expectEnd(id, chain);
  await watcher.close();
}

async function expectEnd(id: string, chain: Chain): Promise<void> {
  const deposit = await findDeposit(world.db.read, id);
  if (deposit === undefined) throw new Error(`no deposit ${id}`);
  const { allUnits, inTimeUnits } = expectedOf(deposit, chain);
  const credited = deposit.credited_units ?? 0n;
  // What came in time is credited, also what came after the deposit was complete.
  if (inTimeUnits > 0n) expect([deposit.status, credited]).toEqual([creditedState(deposit, credited, 0n), credited]);
  else expect(deposit.status).toBe(allUnits > 0n ? 'expired_received' : 'expired');
  expect(credited).toBe(inTimeUnits);
  const booked = await world.db.read.all(
    z.object({ units: ucents }),
    sql`select units from deposit_transfers where deposit_id = ${id} and booking is not null`,
  );
  expect(booked.reduce((sum, { units }) => sum + units, 0n)).toBe(allUnits);
  const states = (await world.journal(id)).map((type) => type.replace('deposit.', '') as DepositState);
  expect(states[0]).toBe('created');
  states
    .slice(1)
    .forEach((to, i) =>
      expect([states[i], to, mayMove(DEPOSIT_STATES, states[i] ?? 'failed', to)]).toEqual([states[i], to, true]),
    );
}

test('every history ends with each token booked once, by moves of the table alone', async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), live), { seed: 5, numRuns: RUNS });
  await world.verify();
});
