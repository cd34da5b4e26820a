// A world whose deposits are watched on a real local chain, and what its tests do with it.
import type { DepositAsset, DepositChain } from '../../../../shared/api/deposit.ts';
import type { DepositState } from '../../../../shared/states.ts';
import type { ChainSettings, DepositSettings } from '../../../../control-plane/money/deposits/settings.ts';
import { type Deposit, findDeposit } from '../../../../control-plane/money/deposits/store.ts';
import { wallet } from '../../../../control-plane/money/ledger/accounts.ts';
import { depositSettingsOf } from '../../../kit/deposits.ts';
import type { EvmChain } from '../../../kit/evm-chain.ts';
import { type KeyAccount, openWorld, type World, type WorldOutside } from '../../../kit/world.ts';

export const MINUTE_MS = 60_000;
/** A token. */
export const TOKEN = 1_000_000n;
export interface DepositWorld {
  world: World;
  who: KeyAccount;
  /** A deposit of 25.00 that expires after an hour, unless it says otherwise. */
  create(about?: { cents?: number; asset?: DepositAsset; chain?: DepositChain }): Promise<Deposit>;
  /** The watchers read everything, and everything due is driven. */
  settle(): Promise<void>;
  status(id: string): Promise<DepositState | undefined>;
  find(id: string): Promise<Deposit>;
  /** What the wallet has, in cents. */
  cents(): Promise<number>;
  /** The next process on the database. */
  restart(): Promise<DepositWorld>;
}

/** `changes` are those of the one chain. */
export function settingsFor(
  chain: EvmChain,
  changes: Partial<ChainSettings> = {},
  name: DepositChain = 'ethereum',
): DepositSettings {
  const { usdc, usdt } = chain.tokens;
  const settings: ChainSettings = {
    rpcUrl: chain.url,
    second: null,
    finality: 'finalized',
    contracts: { usdc, usdt },
    oracle: chain.oracle,
    blocksPerQuery: 500,
    ...changes,
  };
  return depositSettingsOf(new Map([[name, settings]]));
}

export async function openDepositWorld(deposits: DepositSettings, outside: WorldOutside = {}): Promise<DepositWorld> {
  const world = await openWorld(1, { ...outside, settings: { deposits, ...outside.settings } });
  return depositsIn(world, await world.customer(0));
}

export function depositsIn(world: World, who: KeyAccount): DepositWorld {
  const { db, rooms } = world;
  const find = async (id: string): Promise<Deposit> => {
    const deposit = await findDeposit(db.read, id);
    if (deposit === undefined) throw new Error(`there is no deposit ${id}`);
    return deposit;
  };
  return {
    world,
    who,
    find,
    create: ({ cents = 2_500, asset = 'usdc', chain = 'ethereum' } = {}) =>
      db.tx('test.deposit', (tx) => rooms.deposits.create(tx, who.orgId, { asset, chain, amount_usd_cents: cents })),
    settle: async () => {
      for (const { tick } of rooms.deposits.watchers) while ((await tick()) === 'again');
      await world.drive();
    },
    status: async (id) => (await find(id)).status,
    cents: async () => Number((await rooms.ledger.balance(db.read, wallet(who.orgId))).postedUcents / 1_000_000n),
    restart: async () => depositsIn(await world.restart(), who),
  };
}
