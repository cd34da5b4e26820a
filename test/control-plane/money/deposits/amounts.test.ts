// Pure: amounts of tokens, addresses from an extended public key, and the operator's settings.
import { describe, expect, test } from 'vitest';
import { HDKey } from '@scure/bip32';
import fc from 'fast-check';
import { centsOfUnits, CHAINS, tokenText, unitsOfCents } from '../../../../control-plane/money/deposits/chains.ts';
import { readAddressKey } from '../../../../control-plane/money/deposits/chain-addresses.ts';
import { readEvmAddress } from '../../../../control-plane/money/payouts/address.ts';
import { DepositsConfig, depositSettings } from '../../../../control-plane/money/deposits/settings.ts';
import { DEPOSIT_CHAINS } from '../../../../shared/api/deposit.ts';
import { TEST_XPUB } from '../../../kit/deposits.ts';

const ROOT = HDKey.fromMasterSeed(new Uint8Array(32).fill(7));

describe('an amount', () => {
  test.each([
    [0n, '0.00'],
    [1n, '0.000001'],
    [10_000n, '0.01'],
    [25_000_000n, '25.00'],
    [25_100_000n, '25.10'],
    [25_123_450n, '25.12345'],
    [100_000_000_000_000n, '100000000.00'],
  ])('of %s units is %s', (units, text) => {
    expect(tokenText(units)).toBe(text);
  });

  test('of cents comes back as the same cents', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 10 ** 10 }), (cents) => {
        expect(Number(centsOfUnits(unitsOfCents(cents)))).toBe(cents);
        expect(Number(tokenText(unitsOfCents(cents))) * 100).toBeCloseTo(cents, 2);
      }),
      { seed: 3, numRuns: 200 },
    );
  });
});

describe('an extended public key', () => {
  test('gives the addresses that a wallet shows, from the account or from its receiving branch', () => {
    const key = readAddressKey(TEST_XPUB);
    expect(key.addressOf(0)).toBe('0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266');
    expect(key.addressOf(1)).toBe('0x70997970C51812dc3A010C7d01b50e0d17dc79C8');
    const account = ROOT.derive("m/44'/60'/0'");
    const receiving = account.deriveChild(0);
    const [fromAccount, fromReceiving] = [account, receiving].map((each) => readAddressKey(each.publicExtendedKey));
    expect(fromAccount?.addressOf(5)).toBe(fromReceiving?.addressOf(5));
    expect(fromAccount?.fingerprint).toBe(fromReceiving?.fingerprint);
  });

  test.each([
    ['a private one', ROOT.derive("m/44'/60'/0'").privateExtendedKey, 'not a private one'],
    ['one of another depth', ROOT.derive("m/44'").publicExtendedKey, "of m/44'/60'/0' or"],
    ['one without its checksum', `${TEST_XPUB.slice(0, -1)}5`, 'with its checksum'],
    ['no key', 'xpub', 'with its checksum'],
  ])('is refused if it is %s, and the message does not have it', (_what, text, rule) => {
    expect(() => readAddressKey(text)).toThrow(rule);
    expect(() => readAddressKey(text)).not.toThrow(text.slice(4, 20) || 'xpub6');
  });
});

test.each([
  ['0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266', true],
  ['0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266', true],
  ['0xF39Fd6e51aad88F6F4ce6aB8827279cffFb92266', false],
  ['f39Fd6e51aad88F6F4ce6aB8827279cffFb92266', false],
  ['0xf39Fd6e51aad88F6F4ce6aB8827279cffFb9226', false],
  ['EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v', false],
])('%s is an address of an EVM chain: %s', (text, is) => {
  expect(readEvmAddress(text)).toBe(is ? '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266' : undefined);
});

test.each(DEPOSIT_CHAINS.filter((chain) => CHAINS[chain].family === 'evm'))(
  'the addresses of contracts on %s have right checksums',
  (chain) => {
    const { contracts, oracle = '' } = CHAINS[chain];
    for (const address of [...Object.values(contracts), oracle]) expect(readEvmAddress(address)).toBe(address);
  },
);

describe('the settings', () => {
  const rpc_url = 'http://127.0.0.1:8545';
  const parse = (config: object) =>
    DepositsConfig.safeParse({ evm_xpub: TEST_XPUB, chains: { base: { rpc_url } }, ...config });

  test('have the contracts of the issuers, and finality by the tag of the chain', () => {
    const settings = depositSettings(DepositsConfig.parse({ evm_xpub: TEST_XPUB, chains: { base: { rpc_url } } }));
    expect(settings).toMatchObject({
      centsMin: 1_000,
      centsMax: 10_000_000,
      expiryMs: 3_600_000,
      toleranceUnits: 0n,
      openPerOrgMax: 20,
    });
    expect([...settings.chains]).toEqual([
      [
        'base',
        {
          rpcUrl: rpc_url,
          second: null,
          finality: 'finalized',
          contracts: { usdc: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913' },
          oracle: '0x3A91A31cB3dC49b4db9Ce721F50a9D076c8D739B',
          blocksPerQuery: 500,
        },
      ],
    ]);
  });

  test('take contracts, an oracle, a number of confirmations and a second node', () => {
    const usdt = '0xfde4C96c8593536E31F229EA8f37b2ADa2699bb2';
    const base = {
      rpc_url,
      finality: 12,
      contracts: { usdt },
      screening_oracle: 'none',
      second_rpc_url: 'https://rpc.example.com/key',
      second_rpc_from_usd: 500,
    };
    const settings = depositSettings(DepositsConfig.parse({ evm_xpub: TEST_XPUB, chains: { base } }));
    expect(settings.chains.get('base')).toMatchObject({
      finality: 12,
      oracle: null,
      contracts: { usdc: CHAINS.base.contracts.usdc, usdt },
      second: { rpcUrl: 'https://rpc.example.com/key', fromUnits: 500_000_000n },
    });
  });

  test('take Solana without a key, and refuse another chain without one', () => {
    const solana = { rpc_url };
    const settings = depositSettings(DepositsConfig.parse({ chains: { solana } }));
    expect([settings.evmKey, settings.chains.get('solana')]).toMatchObject([
      null,
      { finality: 'finalized', oracle: null, contracts: CHAINS.solana.contracts },
    ]);
    const refused = DepositsConfig.safeParse({ chains: { solana, base: { rpc_url } } });
    expect(refused.error?.issues.map((issue) => issue.path)).toEqual([['evm_xpub']]);
  });

  test.each([
    ['a private key', { evm_xpub: ROOT.derive("m/44'/60'/0'").privateExtendedKey }, 'evm_xpub'],
    ['no chain', { chains: {} }, 'chains'],
    ['an unknown chain', { chains: { base: { rpc_url }, bitcoin: { rpc_url } } }, 'chains'],
    ['a limit above the other', { amount_min_usd: 20, amount_max_usd: 19 }, 'amount_min_usd'],
    [
      'a contract with a wrong checksum',
      { chains: { base: { rpc_url, contracts: { usdc: '0xfDe4C96c8593536E31F229EA8f37b2ADa2699bb2' } } } },
      'chains.base.contracts.usdc',
    ],
    [
      'a user name in the address of a node',
      { chains: { base: { rpc_url: 'https://me@example.com' } } },
      'chains.base.rpc_url',
    ],
    [
      'a contract of another chain',
      { chains: { solana: { rpc_url, contracts: { usdc: CHAINS.base.contracts.usdc } } } },
      'chains.solana.contracts.usdc',
    ],
    ['an expiry below five minutes', { expiry_minutes: 4 }, 'expiry_minutes'],
    ['an expiry above a week', { expiry_minutes: 10_081 }, 'expiry_minutes'],
    ['a tolerance below zero', { tolerance_cents: -1 }, 'tolerance_cents'],
    ['a tolerance above ten dollars', { tolerance_cents: 1_001 }, 'tolerance_cents'],
  ])('are refused with %s', (_what, config, path) => {
    expect(parse(config).error?.issues.map((issue) => issue.path.join('.'))).toEqual([path]);
  });

  test.each([
    { amount_min_usd: 20, amount_max_usd: 20 },
    { expiry_minutes: 5 },
    { expiry_minutes: 10_080 },
    { tolerance_cents: 0 },
    { tolerance_cents: 1_000 },
  ])('are taken at the edge: %o', (config) => {
    expect(parse(config).success).toBe(true);
  });
});
