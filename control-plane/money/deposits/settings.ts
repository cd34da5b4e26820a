// The operator's `deposits` in the configuration, and the settings that are derived from it.
import { z } from 'zod';
import {
  DEPOSIT_ASSETS,
  DEPOSIT_CENTS_MAX,
  DEPOSIT_CHAINS,
  type DepositAsset,
  type DepositChain,
} from '../../../shared/api/deposit.ts';
import { messageOf } from '../../../shared/errors.ts';
import { CHAINS, unitsOfCents } from './chains.ts';
import { readEvmAddress } from '../payouts/address.ts';
import { type AddressKey, readAddressKey, isSolanaAddress } from './chain-addresses.ts';

const CENTS_PER_DOLLAR = 100;
const DOLLARS_MAX = DEPOSIT_CENTS_MAX / CENTS_PER_DOLLAR;
/** A customer needs some minutes to pay. A long time to pay is no risk, because a token always counts as a dollar. */
const EXPIRY_MINUTES_MIN = 5;
const EXPIRY_MINUTES_MAX = 7 * 24 * 60;
const CONFIRMATIONS_MAX = 100_000;
const BLOCKS_PER_QUERY_MAX = 10_000;
const MINUTE_MS = 60_000;

const Dollars = z.int().min(1).max(DOLLARS_MAX);
const RpcUrl = z
  .url({ protocol: /^https?$/, error: 'must be a URL like https://rpc.example.com/key' })
  .regex(/^[^@]*$/, 'must not hold a user name or password');
const EvmAddress = z.string().transform((text, context): string => {
  const address = readEvmAddress(text);
  if (address !== undefined) return address;
  context.addIssue({ code: 'custom', message: 'must be an address like 0xA0b8..., with a right checksum' });
  return z.NEVER;
});

const SolanaAddress = z.string().refine(isSolanaAddress, 'must be an address like EPjFWdd5...');

const contractsOf = <T extends z.ZodType<string>>(address: T) =>
  z
    .strictObject({ usdc: address.optional(), usdt: address.optional() } satisfies Record<DepositAsset, unknown>)
    .prefault({});

const Nodes = {
  /** JSON-RPC of a node. It may be private and speak plain HTTP. Its path may contain a key. */
  rpc_url: RpcUrl,
  /** A second node, which must confirm a deposit of `second_rpc_from_usd` or more before it is credited. */
  second_rpc_url: RpcUrl.optional(),
  second_rpc_from_usd: Dollars.default(10_000),
};

const EvmChain = z.strictObject({
  ...Nodes,
  /** When a block counts as final: the chain's own tag, or a number of blocks on top of it. */
  finality: z.union([z.literal('finalized'), z.int().min(1).max(CONFIRMATIONS_MAX)]).default('finalized'),
  /** The token contracts. Default: those of the issuers on the main networks. */
  contracts: contractsOf(EvmAddress),
  /** The contract that answers `isSanctioned(address)`; `none`: imported lists decide alone. */
  screening_oracle: z.union([z.literal('none'), EvmAddress]).optional(),
  /** Blocks of one query for transfers. A node that refuses it is asked for fewer. */
  blocks_per_query: z.int().min(1).max(BLOCKS_PER_QUERY_MAX).default(500),
});

/** Only final slots are read, and imported lists alone decide about senders. */
const Solana = z.strictObject({ ...Nodes, contracts: contractsOf(SolanaAddress) });

/** Solana finds transfers by address, so a range of any size costs the same. */
const ALL_SLOTS = Number.MAX_SAFE_INTEGER / 1_000;

export const DepositsConfig = z
  .strictObject({
    /**
     * The extended public key (xpub...) of m/44'/60'/0' of the operator's wallet. Each deposit on an EVM chain gets an address of its own from
     * it. Solana has no such keys: `admin deposit addresses import` brings its addresses.
     */
    evm_xpub: z
      .string()
      .transform((text, context): AddressKey => {
        try {
          return readAddressKey(text);
        } catch (error) {
          context.addIssue({ code: 'custom', message: messageOf(error) });
          return z.NEVER;
        }
      })
      .optional(),
    amount_min_usd: Dollars.default(10),
    amount_max_usd: Dollars.default(100_000),
    /** Time to pay, measured by the times of blocks. */
    expiry_minutes: z.int().min(EXPIRY_MINUTES_MIN).max(EXPIRY_MINUTES_MAX).default(60),
    /** A deposit that differs by at most this much counts as exact. What came is credited in any case. */
    tolerance_cents: z.int().min(0).max(1_000).default(0),
    /** Deposits of one organisation that may wait for tokens or their finality at once. Above this, callers get 429. */
    open_per_org: z.int().min(1).max(10_000).default(20),
    chains: z.strictObject({
      ethereum: EvmChain.optional(),
      base: EvmChain.optional(),
      arbitrum: EvmChain.optional(),
      polygon: EvmChain.optional(),
      solana: Solana.optional(),
    } satisfies Record<DepositChain, unknown>),
  })
  .superRefine((config, context) => {
    if (config.amount_min_usd > config.amount_max_usd)
      context.addIssue({ code: 'custom', path: ['amount_min_usd'], message: 'must not be above amount_max_usd' });
    const watched = DEPOSIT_CHAINS.filter((chain) => config.chains[chain] !== undefined);
    if (config.evm_xpub === undefined && watched.some((chain) => CHAINS[chain].family === 'evm'))
      context.addIssue({
        code: 'custom',
        path: ['evm_xpub'],
        message: 'must be set: the addresses of EVM chains are made from it',
      });
    if (watched.length === 0)
      context.addIssue({
        code: 'custom',
        path: ['chains'],
        message: `must have at least one of ${DEPOSIT_CHAINS.join(', ')}`,
      });
  });
type DepositsConfig = z.infer<typeof DepositsConfig>;

export interface ChainSettings {
  rpcUrl: string;
  /** Null: no second node is configured, so no deposit needs one. */
  second: { rpcUrl: string; fromUnits: bigint } | null;
  finality: 'finalized' | number;
  /** The contract of each asset that can be deposited on the chain. */
  contracts: Partial<Record<DepositAsset, string>>;
  /** Null: imported lists decide alone. */
  oracle: string | null;
  blocksPerQuery: number;
}

export interface DepositSettings {
  /** Null: no EVM chain is watched. */
  evmKey: AddressKey | null;
  centsMin: number;
  centsMax: number;
  expiryMs: number;
  toleranceUnits: bigint;
  openPerOrgMax: number;
  chains: ReadonlyMap<DepositChain, ChainSettings>;
}

export function depositSettings(config: DepositsConfig): DepositSettings {
  const chains = DEPOSIT_CHAINS.flatMap((chain): [DepositChain, ChainSettings][] => {
    const watched = config.chains[chain];
    return watched === undefined ? [] : [[chain, chainSettings(chain, watched)]];
  });
  return {
    evmKey: config.evm_xpub ?? null,
    centsMin: config.amount_min_usd * CENTS_PER_DOLLAR,
    centsMax: config.amount_max_usd * CENTS_PER_DOLLAR,
    expiryMs: config.expiry_minutes * MINUTE_MS,
    toleranceUnits: unitsOfCents(config.tolerance_cents),
    openPerOrgMax: config.open_per_org,
    chains: new Map(chains),
  };
}

function chainSettings(chain: DepositChain, watched: z.infer<typeof EvmChain> | z.infer<typeof Solana>): ChainSettings {
  const { rpc_url: rpcUrl, second_rpc_url: secondUrl, second_rpc_from_usd: fromUsd } = watched;
  const contracts = DEPOSIT_ASSETS.flatMap((asset): [DepositAsset, string][] => {
    const contract = watched.contracts[asset] ?? CHAINS[chain].contracts[asset];
    return contract === undefined ? [] : [[asset, contract]];
  });
  const nodes = {
    rpcUrl,
    second: secondUrl === undefined ? null : { rpcUrl: secondUrl, fromUnits: unitsOfCents(fromUsd * CENTS_PER_DOLLAR) },
    contracts: Object.fromEntries(contracts),
  };
  if (!('finality' in watched)) return { ...nodes, finality: 'finalized', oracle: null, blocksPerQuery: ALL_SLOTS };
  const oracle = watched.screening_oracle ?? CHAINS[chain].oracle ?? 'none';
  return {
    ...nodes,
    finality: watched.finality,
    oracle: oracle === 'none' ? null : oracle,
    blocksPerQuery: watched.blocks_per_query,
  };
}
