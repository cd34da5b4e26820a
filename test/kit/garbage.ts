// The garbage of this process: collects it, and tells whether something is still in memory.
import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
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
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
}
