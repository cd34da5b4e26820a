// Accepts each request once. A request is valid for a while, and its id is remembered until that time is over.

export interface Dated {
  id: string;
  /** The time that the request itself states. The request is valid for `ageMsMax` from then on, and the caller refuses it later. */
  atMs: number;
}

/**
 * The returned function is true for an id that it has not accepted before. It remembers at most `knownMax` ids. If there are more, it forgets the
 * first ones, and from then on refuses all requests that are not newer than those.
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
