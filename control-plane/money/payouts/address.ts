// Pure: addresses to which stablecoins are sent. A wrong address loses the money for ever, so everything that can be checked is checked.
import { keccak_256 } from '@noble/hashes/sha3.js';
import { base58 } from '@scure/base';
import { failField } from '../../../shared/errors.ts';
import type { Chain } from '../../../shared/api/payout.ts';

const EVM = /^0x[0-9a-fA-F]{40}$/;
const BASE58 = /^[1-9A-HJ-NP-Za-km-z]+$/;
const SOLANA_BYTES = 32;
/** Characters that stay visible at both ends of a masked address. */
const MASKED_CHARS = 5;

/**
 * The address as it is stored: an EVM address with its checksum (EIP-55), a Solana address as it was written.
 * @throws ServiceError `validation_failed` that names the field `address` and the rule
 */
export function readAddress(chain: Chain, address: string): string {
  return chain === 'solana' ? solanaAddress(address) : evmAddress(chain, address);
}

/** Enough to recognise an address, and too little to use it. */
export function maskAddress(address: string): string {
  return `${address.slice(0, MASKED_CHARS)}...${address.slice(-MASKED_CHARS)}`;
}

function evmAddress(chain: Chain, address: string): string {
  if (!EVM.test(address)) {
    const other = isSolana(address) ? ': this is a Solana address' : '';
    return failField('address', `must be 0x and 40 hexadecimal digits for the chain ${chain}${other}`);
  }
  const digits = address.slice(2);
  if (/^0+$/.test(digits)) return failField('address', 'must not be the zero address: nobody has its key');
  const checked = `0x${withChecksum(digits.toLowerCase())}`;
  const isMixed = digits !== digits.toLowerCase() && digits !== digits.toUpperCase();
  if (isMixed && checked !== address) {
    return failField(
      'address',
      'must have the checksum of EIP-55: a digit is wrong. Copy it again, or write it in lower case',
    );
  }
  return checked;
}

/** EIP-55: a letter is upper case if the digit of the hash at its place is 8 or more. */
function withChecksum(digits: string): string {
  const hash = Buffer.from(keccak_256(new TextEncoder().encode(digits))).toString('hex');
  return Array.from(digits)
    .map((digit, at) => (Number.parseInt(hash[at] ?? '0', 16) >= 8 ? digit.toUpperCase() : digit))
    .join('');
}

function solanaAddress(address: string): string {
  if (!isSolana(address)) {
    const other = EVM.test(address) ? ': this is an EVM address' : '';
    return failField('address', `must be 32 bytes in base58 for the chain solana${other}`);
  }
  if (base58.decode(address).every((byte) => byte === 0)) {
    return failField('address', 'must not be the address of the system program: nobody has its key');
  }
  return address;
}

/** 32 bytes are at most 44 characters. Longer texts are not decoded, because that takes time. */
function isSolana(address: string): boolean {
  return address.length <= 44 && BASE58.test(address) && base58.decode(address).length === SOLANA_BYTES;
}
