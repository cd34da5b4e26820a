// Pure: spans of time, and what is left of them.

/** The first millisecond belongs to the span, the second does not. The end may be Infinity. */
export type Span = readonly [fromMs: number, untilMs: number];

/** The spans are in order, do not overlap, and none of them is empty. */
export function union(spans: readonly Span[]): Span[] {
  const merged: [number, number][] = [];
  for (const [fromMs, untilMs] of spans.toSorted((a, b) => a[0] - b[0])) {
    if (untilMs <= fromMs) continue;
    const last = merged.at(-1);
    if (last !== undefined && fromMs <= last[1]) last[1] = Math.max(last[1], untilMs);
    else merged.push([fromMs, untilMs]);
  }
  return merged;
}

/** The time that lies in both. */
export function overlap(spans: readonly Span[], others: readonly Span[]): Span[] {
  const cuts = union(others);
  return union(spans).flatMap(([fromMs, untilMs]) =>
    cuts.flatMap(([cutFromMs, cutUntilMs]): Span[] => {
      const both: Span = [Math.max(fromMs, cutFromMs), Math.min(untilMs, cutUntilMs)];
      return both[0] < both[1] ? [both] : [];
    }),
  );
}

/** The time of `spans` that is not in `others`. */
export function without(spans: readonly Span[], others: readonly Span[]): Span[] {
  return overlap(spans, gaps(others));
}

/** The time that is in none of them. */
function gaps(spans: readonly Span[]): Span[] {
  const left: Span[] = [];
  let fromMs = Number.NEGATIVE_INFINITY;
  for (const [startMs, endMs] of union(spans)) {
    if (fromMs < startMs) left.push([fromMs, startMs]);
    fromMs = endMs;
  }
  if (fromMs < Number.POSITIVE_INFINITY) left.push([fromMs, Number.POSITIVE_INFINITY]);
  return left;
}

export function lengthMs(spans: readonly Span[]): number {
  return union(spans).reduce((sum, [fromMs, untilMs]) => sum + untilMs - fromMs, 0);
}

/** A fact that becomes true and false again and again, with the times. */
export interface Track {
  note(isSo: boolean): void;
  /** The spans up to now. */
  spans(): Span[];
}

export function openTrack(now: () => number): Track {
  const past: Span[] = [];
  let sinceMs: number | undefined;
  return {
    note: (isSo) => {
      if (isSo === (sinceMs !== undefined)) return;
      if (sinceMs !== undefined) past.push([sinceMs, now()]);
      sinceMs = isSo ? now() : undefined;
    },
    spans: () => union(sinceMs === undefined ? past : [...past, [sinceMs, now()]]),
  };
}
