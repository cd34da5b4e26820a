// Addresses of EVM chains: those of deposits are derived from the operator's extended public key, so that no private key is on the server.
import { secp256k1 } from '@noble/curves/secp256k1.js';
import { keccak_256 } from '@noble/hashes/sha3.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import { HDKey } from '@scure/bip32';
import { withChecksum } from '../payouts/address.ts';

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
