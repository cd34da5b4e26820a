// Addresses of payouts: every EVM address of the examples of EIP-55, every way to write one, and those of another chain.
import { expect, test } from 'vitest';
import { maskAddress, readAddress } from '../../../control-plane/money/payouts/address.ts';

const CHECKED = [
  '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed',
  '0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359',
  '0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB',
  '0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb',
  '0x52908400098527886E0F7030069857D2E4169EE7',
  '0xde709f2102306220921060314715629080e2fb77',
];
const SOLANA = 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v';

test.each(CHECKED)('%s is stored with its checksum, however its letters are written', (address) => {
  const upper = `0x${address.slice(2).toUpperCase()}`;
  for (const written of [address, address.toLowerCase(), upper]) {
    expect(readAddress('base', written).toLowerCase()).toBe(address.toLowerCase());
  }
  expect(readAddress('ethereum', address.toLowerCase())).toBe(readAddress('polygon', upper));
});

test('the stored form is that of EIP-55', () => {
  for (const address of CHECKED.slice(0, 4)) expect(readAddress('arbitrum', address.toLowerCase())).toBe(address);
});

test('a Solana address is stored as it is', () => {
  expect(readAddress('solana', SOLANA)).toBe(SOLANA);
});

test.each([
  ['base', '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1Beaed', 'must have the checksum of EIP-55'],
  ['base', '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe', 'must be 0x and 40 hexadecimal digits for the chain base'],
  ['base', '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAedd', 'must be 0x and 40 hexadecimal digits'],
  ['base', '5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed', 'must be 0x and 40 hexadecimal digits'],
  ['base', '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeg', 'must be 0x and 40 hexadecimal digits'],
  ['ethereum', `0x${'0'.repeat(40)}`, 'must not be the zero address'],
  ['polygon', SOLANA, 'must be 0x and 40 hexadecimal digits for the chain polygon: this is a Solana address'],
  ['solana', CHECKED[0] ?? '', 'must be 32 bytes in base58 for the chain solana: this is an EVM address'],
  ['solana', SOLANA.slice(3), 'must be 32 bytes in base58'],
  ['solana', `${SOLANA}1`, 'must be 32 bytes in base58'],
  ['solana', `${SOLANA.slice(0, -1)}0`, 'must be 32 bytes in base58'],
  ['solana', '1'.repeat(32), 'must not be the address of the system program'],
  ['solana', 'z'.repeat(44), 'must be 32 bytes in base58'],
] as const)('on %s, %s is refused', (chain, address, rule) => {
  expect(() => readAddress(chain, address)).toThrow(`address ${rule}`);
});

test('a masked address shows both of its ends', () => {
  expect(maskAddress(CHECKED[0] ?? '')).toBe('0x5aA...BeAed');
});
