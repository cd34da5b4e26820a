// Pure: the first rows of a page of usage, summed up from parts that arrive in any order. It stores few more rows than the page has.
export interface Position {
  bucketStartMs: number;
  key: string;
}

export interface UsageRow extends Position {
  /** `key` is the instance id or the GPU type. */
  gpuSeconds: number;
  costCents: bigint;
  /** The exact cost in microcents. */
  costUcents: bigint;
}

export interface Sums {
  /** Adds a part of a row. */
  add(part: UsageRow): void;
  /** The first `limit` rows, ordered by bucket and key. */
  first(): UsageRow[];
  size(): number;
}

/** Rows beyond the limit are dropped when there are this many more than twice the limit, so that they are rarely sorted. */
const SLACK = 1_000;

/** Only rows after `after` are summed up. */
export function openSums({ after, limit }: { after: Position | undefined; limit: number }): Sums {
  let rows = new Map<string, UsageRow>();
  /** A row after this one is not among the first `limit` rows, whatever follows: no row is ever taken away from them. */
  let last: Position | undefined;
  const idOf = ({ bucketStartMs, key }: Position): string => `${bucketStartMs}/${key}`;
  const first = (): UsageRow[] => [...rows.values()].toSorted((a, b) => (isAfter(a, b) ? 1 : -1)).slice(0, limit);
  const dropRest = (): void => {
    const kept = first();
    rows = new Map(kept.map((row) => [idOf(row), row]));
    last = kept.at(-1);
  };
  return {
    add: (part) => {
      if (after !== undefined && !isAfter(part, after)) return;
      if (last !== undefined && isAfter(part, last)) return;
      const id = idOf(part);
      const row = rows.get(id);
      if (row === undefined) {
        rows.set(id, { ...part });
        if (rows.size > 2 * limit + SLACK) dropRest();
        return;
      }
      row.gpuSeconds += part.gpuSeconds;
      row.costCents += part.costCents;
      row.costUcents += part.costUcents;
    },
    first,
    size: () => rows.size,
  };
}

function isAfter(row: Position, position: Position): boolean {
  if (row.bucketStartMs !== position.bucketStartMs) return row.bucketStartMs > position.bucketStartMs;
  return row.key > position.key;
}
