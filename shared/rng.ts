// Randomness, passed in like time: the system's for secrets and ids, a seeded one for simulations and tests.
import { randomBytes } from 'node:crypto';

export interface Rng {
  /** `count` random bytes. */
  bytes(count: number): Uint8Array;
  /** A number in [0, 1). Not for secrets. */
  float(): number;
}

/** Cryptographic randomness of the operating system. */
export function systemRng(): Rng {
  return {
    bytes: (count) => new Uint8Array(randomBytes(count)),
    float: () => randomBytes(4).readUInt32BE() / 2 ** 32,
  };
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
