// The garbage of this process: collects it, and tells whether something is still in memory.
import { setImmediate as nextTurn } from 'node:timers/promises';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** The event loop still refers to what its last turns have used. After a few more turns it does not. */
const TURNS = 10;

/** True if nothing refers to the object any more. */
export async function isForgotten(ref: WeakRef<object> | undefined): Promise<boolean> {
  for (let i = 0; i < TURNS && ref?.deref() !== undefined; i += 1) {
    await nextTurn();
    collectGarbage();
  }
  return ref !== undefined && ref.deref() === undefined;
}

/** Frees what nothing refers to. Buffers are freed a turn after their owners, by a second call. */
export function collectGarbage(): void {
  collector()();
}

/** V8 may be in the middle of a collection for another test of this process, which keeps more. */
const ROUNDS = 3;

/**
 * Returns by how many bytes the old objects grow if `use` is called `times` times, and the young objects are collected after each call. What is
 * freed then needs no full collection. The round with the least counts.
 */
export async function grownOldBytes(times: number, use: () => unknown): Promise<number> {
  const collect = collector();
  let leastBytes = Infinity;
  for (let round = 0; round < ROUNDS; round += 1) {
    collect();
    const beforeBytes = oldBytes();
    for (let i = 0; i < times; i += 1) {
      await use();
      collect({ type: 'minor' });
    }
    leastBytes = Math.min(leastBytes, oldBytes() - beforeBytes);
  }
  return leastBytes;
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? 0;
}

type Collect = (options?: { type: 'minor' }) => void;

function collector(): Collect {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as Collect;
}
