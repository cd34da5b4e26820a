// Pure: the chains and tokens of deposits, and amounts. A token unit is a millionth of a token, and a token counts as a dollar.
import type { DepositAsset, DepositChain } from '../../../shared/api/deposit.ts';

/** Chains of one family share their addresses. */
export type Family = 'evm' | 'solana';

/** The decimals of both tokens on every chain here. The watcher refuses a contract with another number. */
export const TOKEN_DECIMALS = 6;

const UNITS_PER_CENT = 10_000n;
/** A token is 10^6 units and 10^8 microcents. */
const UCENTS_PER_UNIT = 100n;

interface ChainFacts {
  family: Family;
  /** The answer of the chain to `eth_chainId`. */
  chainId?: number;
  /** The contracts of the issuers. Bridged tokens have other contracts and do not count. */
  contracts: Partial<Record<DepositAsset, string>>;
  /** Address of the contract that answers `isSanctioned(address)`. */
  oracle?: string;
}

const ORACLE = '0x40C57923924B5c5c5455c48D93317139ADDaC8fb';

export const CHAINS: Readonly<Record<DepositChain, ChainFacts>> = {
  ethereum: {
    family: 'evm',
    chainId: 1,
    contracts: {
      usdc: '0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48',
      usdt: '0xdAC17F958D2ee523a2206206994597C13D831ec7',
    },
    oracle: ORACLE,
  },
  // Tether issues no USDT on Base.
  base: {
    family: 'evm',
    chainId: 8453,
    contracts: { usdc: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913' },
    oracle: '0x3A91A31cB3dC49b4db9Ce721F50a9D076c8D739B',
  },
  arbitrum: {
    family: 'evm',
    chainId: 42_161,
    contracts: {
      usdc: '0xaf88d065e77c8cC2239327C5EDb3A432268e5831',
      usdt: '0xFd086bC7CD5C481DCC9C85ebE478A1C0b69FCbb9',
    },
    oracle: ORACLE,
  },
  polygon: {
    family: 'evm',
    chainId: 137,
    contracts: {
      usdc: '0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359',
      usdt: '0xc2132D05D31c914a87C6611C10748AEb04B58e8F',
    },
    oracle: ORACLE,
  },
  solana: {
    family: 'solana',
    contracts: {
      usdc: 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v',
      usdt: 'Es9vMFrzaCERmJfrF4H2FYD4KCoNkY11McCe8BenwNYB',
    },
  },
};

export function unitsOfCents(cents: number): bigint {
  return BigInt(cents) * UNITS_PER_CENT;
}

/** Whole cents of an amount. The rest is below a cent. */
export function centsOfUnits(units: bigint): bigint {
  return units / UNITS_PER_CENT;
}

export function ucentsOfUnits(units: bigint): bigint {
  return units * UCENTS_PER_UNIT;
}

/** Tokens as an exact decimal with at least two decimals, like `25.00` or `0.000001`. */
export function tokenText(units: bigint): string {
  const digits = units.toString().padStart(TOKEN_DECIMALS + 1, '0');
  const fraction = digits.slice(-TOKEN_DECIMALS).replace(/0{1,4}$/, '');
  return `${digits.slice(0, -TOKEN_DECIMALS)}.${fraction}`;
}
