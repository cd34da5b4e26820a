// Randomness, passed in like time: the system's for secrets and ids, a seeded one for simulations and tests.
import { randomBytes, randomFillSync } from 'node:crypto';

export interface Rng {
  /** `count` random bytes. */
  bytes(count: number): Uint8Array;
  /** A number in [0, 1). Not for secrets. */
  float(): number;
}

/** Bytes that are asked of the operating system at once: a call for each id would cost more than the id. */
const POOL_BYTES = 8_192;

/** Cryptographic randomness of the operating system. Each byte is handed out once, and erased from the pool. */
export function systemRng(): Rng {
  const pool = Buffer.alloc(POOL_BYTES);
  let used = POOL_BYTES;
  const bytes = (count: number): Uint8Array => {
    if (count > POOL_BYTES / 8) return new Uint8Array(randomBytes(count));
    if (used + count > POOL_BYTES) {
      randomFillSync(pool);
      used = 0;
    }
    const taken = Uint8Array.prototype.slice.call(pool, used, used + count);
    pool.fill(0, used, used + count);
    used += count;
    return taken;
  };
  return { bytes, float: () => Buffer.from(bytes(4)).readUInt32BE() / 2 ** 32 };
}

/** Reproducible randomness from a seed (mulberry32). Predictable by design: never for secrets. */
export function seededRng(seed: number): Rng {
  let state = seed >>> 0;
  const float = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return { float, bytes: (count) => Uint8Array.from({ length: count }, () => Math.floor(float() * 256)) };
}
