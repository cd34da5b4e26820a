// What is valid for a while is accepted once: its id is known until its time is over.

export interface Dated {
  id: string;
  /** Its own time, from which it is valid for `ageMsMax`. The caller refuses what is older. */
  atMs: number;
}

/**
 * The returned function is true for what it has not accepted before. If more than `knownMax` ids would have to be known, it forgets the first ones,
 * and refuses what is as old as those.
 */
export function openOnce({
  ageMsMax,
  knownMax,
}: {
  ageMsMax: number;
  knownMax: number;
}): (of: Dated, nowMs: number) => boolean {
  const known = new Map<string, number>();
  let forgottenMs = -Infinity;
  return ({ id, atMs }, nowMs) => {
    if (known.has(id) || atMs <= forgottenMs) return false;
    known.set(id, atMs);
    for (const [first, firstMs] of known) {
      const isOver = nowMs - firstMs > ageMsMax;
      if (!isOver && known.size <= knownMax) break;
      if (!isOver) forgottenMs = Math.max(forgottenMs, firstMs);
      known.delete(first);
    }
    return true;
  };
}
