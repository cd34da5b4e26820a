// The addresses of chains. On EVM chains, those of deposits are derived from the operator's extended public key, so that no private key is on
// the server. On Solana there are addresses of owners, and addresses of the token accounts that are derived from them.
import { secp256k1 } from '@noble/curves/secp256k1.js';
import { keccak_256 } from '@noble/hashes/sha3.js';
import { bytesToHex, concatBytes, utf8ToBytes } from '@noble/hashes/utils.js';
import { HDKey } from '@scure/bip32';
import { ed25519 } from '@noble/curves/ed25519.js';
import { sha256 } from '@noble/hashes/sha2.js';
import { base58 } from '@scure/base';
import { withChecksum, solanaBytes } from '../payouts/address.ts';

export interface AddressKey {
  /** Names the key in lists, without the key itself. */
  fingerprint: string;
  /** The address with its checksum. `index` is from 0 to 2^31 - 1. */
  addressOf(index: number): string;
}

/** Depths of the keys that wallets export: m/44'/60'/0' and m/44'/60'/0'/0. */
const ACCOUNT_DEPTH = 3;
const RECEIVING_DEPTH = 4;

/** @throws Error with the rule that the text breaks; the message never has the key */
export function readAddressKey(text: string): AddressKey {
  const key = readKey(text);
  if (key.privateKey !== null)
    throw new Error(
      'must be an extended public key (xpub...), not a private one: whoever has that can spend all deposits',
    );
  if (key.depth !== ACCOUNT_DEPTH && key.depth !== RECEIVING_DEPTH)
    throw new Error("must be the extended public key of m/44'/60'/0' or m/44'/60'/0'/0");
  const receiving = key.depth === ACCOUNT_DEPTH ? key.deriveChild(0) : key;
  return {
    fingerprint: (receiving.fingerprint >>> 0).toString(16).padStart(8, '0'),
    addressOf: (index) => addressOfKey(receiving.deriveChild(index).publicKey ?? new Uint8Array()),
  };
}

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

function readKey(text: string): HDKey {
  try {
    return HDKey.fromExtendedKey(text);
  } catch {
    // The message of the library may quote the key.
    throw new Error('must be an extended public key (xpub...) with its checksum');
  }
}

function addressOfKey(publicKey: Uint8Array): string {
  // The first byte only says that the key is not compressed.
  const point = secp256k1.Point.fromBytes(publicKey).toBytes(false).slice(1);
  return withChecksum(bytesToHex(keccak_256(point).slice(-20)));
}

function isOnCurve(bytes: Uint8Array): boolean {
  try {
    ed25519.Point.fromBytes(bytes);
    return true;
  } catch {
    return false;
  }
}
