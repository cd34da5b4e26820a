// How a benchmark measures and prints: medians of several rounds, order shuffled, always as a ratio against a named peer of the same run.
import { performance } from 'node:perf_hooks';
import { systemRng } from '../../shared/rng.ts';

export interface Target {
  /** `at least` or `at most` this ratio. */
  rule: 'at least' | 'at most';
  ratio: number;
}

export interface Comparison {
  what: string;
  ours: number;
  peer: number;
  peerName: string;
  unit: string;
  target?: Target;
}

/** Milliseconds that `work` takes. */
export async function timeMs(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return performance.now() - startMs;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

export function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
}

/** Shuffled, because the first one in every round would have an advantage. */
export function shuffled<T>(items: readonly T[]): T[] {
  const rng = systemRng();
  return items
    .map((item) => ({ item, order: rng.float() }))
    .toSorted((a, b) => a.order - b.order)
    .map(({ item }) => item);
}

/** One line: both figures, the ratio, and whether the target holds. */
export function report(comparison: Comparison): void {
  const { what, ours, peer, peerName, unit, target } = comparison;
  const ratio = ours / peer;
  const holds = target === undefined || (target.rule === 'at least' ? ratio >= target.ratio : ratio <= target.ratio);
  const verdict =
    target === undefined
      ? ''
      : `  ${holds ? 'ok' : 'MISSED'} (target ${target.rule} ${Number(target.ratio.toFixed(2))}x)`;
  console.log(
    `${what}: ${figure(ours)} ${unit}, ${peerName} ${figure(peer)} ${unit}, ratio ${ratio.toFixed(2)}x${verdict}`,
  );
}

function figure(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3);
}
