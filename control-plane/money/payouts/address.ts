// Pure: addresses to which stablecoins are sent. A wrong address loses the money for ever, so everything that can be checked is checked.
import { keccak_256 } from '@noble/hashes/sha3.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';
import { base58 } from '@scure/base';
import { failField } from '../../../shared/errors.ts';
import type { Chain } from '../../../shared/api/payout.ts';

const EVM = /^0x[0-9a-fA-F]{40}$/;
const BASE58 = /^[1-9A-HJ-NP-Za-km-z]+$/;
const SOLANA_BYTES = 32;
/** 32 bytes in base58 are no longer. */
const SOLANA_CHARS_MAX = 44;
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

/** The address with its checksum (EIP-55); undefined if the text is no address, or if its checksum is wrong. */
export function readEvmAddress(text: string): string | undefined {
  if (!EVM.test(text)) return undefined;
  const digits = text.slice(2);
  const address = withChecksum(digits.toLowerCase());
  const isMixed = digits !== digits.toLowerCase() && digits !== digits.toUpperCase();
  return isMixed && address !== text ? undefined : address;
}

/** `digits` are 40 hexadecimal digits in lower case. A letter becomes upper case if the digit of the hash at its place is 8 or more. */
export function withChecksum(digits: string): string {
  const hash = bytesToHex(keccak_256(utf8ToBytes(digits)));
  const letters = Array.from(digits).map((digit, at) => ((hash[at] ?? '0') >= '8' ? digit.toUpperCase() : digit));
  return `0x${letters.join('')}`;
}

/** The 32 bytes of a Solana address; undefined for any other text. Longer texts are not decoded, because that takes time. */
export function solanaBytes(text: string): Uint8Array | undefined {
  if (text.length > SOLANA_CHARS_MAX || !BASE58.test(text)) return undefined;
  const bytes = base58.decode(text);
  return bytes.length === SOLANA_BYTES ? bytes : undefined;
}

function evmAddress(chain: Chain, address: string): string {
  if (!EVM.test(address)) {
    const other = solanaBytes(address) === undefined ? '' : ': this is a Solana address';
    return failField('address', `must be 0x and 40 hexadecimal digits for the chain ${chain}${other}`);
  }
  if (/^0x0+$/.test(address)) return failField('address', 'must not be the zero address: nobody has its key');
  return (
    readEvmAddress(address) ??
    failField(
      'address',
      'must have the checksum of EIP-55: a character is wrong. Copy the whole address from your wallet again',
    )
  );
}

function solanaAddress(address: string): string {
  const bytes = solanaBytes(address);
  if (bytes === undefined) {
    const other = EVM.test(address) ? ': this is an EVM address' : '';
    return failField('address', `must be 32 bytes in base58 for the chain solana${other}`);
  }
  if (bytes.every((byte) => byte === 0)) {
    return failField('address', 'must not be the address of the system program: nobody has its key');
  }
  return address;
}
