// Makes every identifier and secret of the service, from a Clock and an Rng.
import { createHash } from 'node:crypto';
import type { Clock } from './clock.ts';
import type { Rng } from './rng.ts';

/** Prefixes of ids that people may see; all others are UUIDv7. */
export type IdPrefix =
  | 'key'
  | 'apk'
  | 'evt'
  | 'whe'
  | 'dlv'
  | 'rc'
  | 'off'
  | 'wl'
  | 'seg'
  | 'dsp'
  | 'free'
  | 'out'
  | 'crd'
  | 'cor'
  | 'req'
  | 'str'
  | 'aud'
  | 'rcp'
  | 'net'
  | 'blob'
  | 'vid'
  | 'file'
  | 'upload'
  | 'part'
  | 'urlkey'
  | 'rep'
  | 'prc'
  | 'dep'
  | 'deptx'
  | 'ftjob'
  | 'ftevent'
  | 'ftckpt'
  | 'usr'
  | 'ses'
  | 'cred'
  | 'inv'
  | 'dvl';

export interface Ids {
  /** Time-ordered UUID version 7: operations, suppliers, machines, ledger entries. */
  uuid(): string;
  /** `i-` and 20 lower-case base32 characters: a DNS label, random, not guessable. */
  instance(): string;
  /** `<prefix>_` and 26 base32 characters that sort in the order in which this process made them. */
  prefixed(prefix: IdPrefix): string;
  /** ULID, 26 upper-case characters: reservation contracts (specification 2.7). */
  ulid(): string;
  /** Unguessable base64url text carrying `bytes` random bytes. */
  secret(bytes: number): string;
}

const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';
const CROCKFORD = '0123456789abcdefghjkmnpqrstvwxyz';

export function createIds(clock: Clock, rng: Rng): Ids {
  const ticks = createTicks(clock);
  return {
    uuid: () => uuidV7(clock.now(), rng.bytes(10)),
    instance: () => `i-${encode(rng.bytes(20), BASE32)}`,
    prefixed: (prefix) => `${prefix}_${timeOrderedId(ticks(), rng)}`,
    ulid: () => timeOrderedId(ticks(), rng).toUpperCase(),
    secret: (bytes) => Buffer.from(rng.bytes(bytes)).toString('base64url'),
  };
}

/** A UUID version 7 that depends on `name` and `atMs` alone: the same for ever. `atMs` is when the named thing was created. */
export function uuidOf(name: string, atMs: number): string {
  return uuidV7(atMs, createHash('sha256').update(name).digest());
}

function uuidV7(nowMs: number, random: Uint8Array): string {
  const bytes = Buffer.alloc(16);
  bytes.writeUIntBE(nowMs, 0, 6);
  bytes.set(random.subarray(0, 10), 6);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

const TICKS_PER_MS = 1024;

/** Grows with every call, also within one millisecond, and if the clock is set back. */
function createTicks(clock: Clock): () => number {
  let last = 0;
  return () => {
    last = Math.max(last + 1, clock.now() * TICKS_PER_MS);
    return last;
  };
}

/** The 26 characters of a ULID, lower case: 48 bits of milliseconds, 10 that count within one, 70 random bits. */
function timeOrderedId(ticks: number, rng: Rng): string {
  return `${timeOrdered(ticks)}${encode(rng.bytes(14), CROCKFORD)}`;
}

/** Twelve characters, so that ids of one kind sort by their time of creation. */
function timeOrdered(ticks: number): string {
  let rest = ticks;
  let text = '';
  for (let i = 0; i < 12; i += 1) {
    text = CROCKFORD.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

/** One character a byte (5 bits used): simple, uniform, and the waste does not matter here. */
function encode(bytes: Uint8Array, alphabet: string): string {
  let text = '';
  for (const byte of bytes) text += alphabet.charAt(byte & 31);
  return text;
}
