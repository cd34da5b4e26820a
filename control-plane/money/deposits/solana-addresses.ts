// Two kinds of Solana addresses: addresses of owners, and addresses of the token accounts that are derived from them.
import { ed25519 } from '@noble/curves/ed25519.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { concatBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { base58 } from '@scure/base';
import { solanaBytes } from '../payouts/address.ts';

/** The program that both tokens belong to. Tokens of the newer program may take fees, so they are not accepted. */
export const TOKEN_PROGRAM = 'TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA';
const ASSOCIATED_TOKEN_PROGRAM = 'ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL';
const BUMP_MAX = 255;

/** The address of a key pair; undefined for any other text, also for the address of a token account or of a program. */
export function readSolanaAddress(text: string): string | undefined {
  const bytes = solanaBytes(text);
  return bytes !== undefined && isOnCurve(bytes) ? text : undefined;
}

/** The account to which wallets send tokens of `mint` if they are given the address of the owner. */
export function tokenAccountOf(owner: string, mint: string): string {
  const seeds = [owner, TOKEN_PROGRAM, mint].map((text) => base58.decode(text));
  for (let bump = BUMP_MAX; bump >= 0; bump -= 1) {
    const program = base58.decode(ASSOCIATED_TOKEN_PROGRAM);
    const hash = sha256(concatBytes(...seeds, Uint8Array.of(bump), program, utf8ToBytes('ProgramDerivedAddress')));
    // The address of a token account must have no private key. Otherwise somebody could own it.
    if (!isOnCurve(hash)) return base58.encode(hash);
  }
  throw new Error(`${owner} has no token account for ${mint}`);
}

/** Whether the text is an address, with or without a private key. */
export function isSolanaAddress(text: string): boolean {
  return solanaBytes(text) !== undefined;
}

function isOnCurve(bytes: Uint8Array): boolean {
  try {
    ed25519.Point.fromBytes(bytes);
    return true;
  } catch {
    return false;
  }
}
