// Reads the costs of the instances whose rows are drawn. One request reads many of them.
import { type ReadonlySignal, type Signal, signal } from '@preact/signals';
import type { InstanceCost } from '../../../../shared/api/instance-bill.ts';
import type { Page } from '../../../../shared/api/page.ts';
import { PAGE_MAX } from '../../../../shared/limits.ts';
import { ApiError, get } from '../core/api.ts';
import { openOrder } from '../core/reading.ts';

/** Changes that arrive within this time cause only one request. */
const GATHER_MS = 1_000;

export interface Costs {
  /** Cost of this instance; undefined until it is known. */
  of(id: string): ReadonlySignal<InstanceCost | undefined>;
  /** Must be called when a row of this instance is drawn. The returned function must be called when the row is not drawn any more. */
  draw(id: string): () => void;
  /** The ids of the rows that are drawn. */
  drawn: ReadonlySignal<readonly string[]>;
  error: ReadonlySignal<ApiError | undefined>;
}

interface OpenCosts extends Costs {
  reread(id: string): void;
  rereadAll(): void;
  stop(): void;
}

interface Row {
  cost: Signal<InstanceCost | undefined>;
  /** The order of the reads of this row. Requests may end in another order than they began. */
  begin: ReturnType<typeof openOrder>;
}

/** Reads of a row that end after a later read of it change nothing. */
export function openCosts(): OpenCosts {
  const known = new Map<string, Row>();
  const drawn = signal<readonly string[]>([]);
  const error = signal<ApiError | undefined>(undefined);
  const wanted = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const begin = openOrder();
  const rowOf = (id: string): Row => {
    const found = known.get(id) ?? { cost: signal(undefined), begin: openOrder() };
    known.set(id, found);
    return found;
  };
  const of = (id: string): Row['cost'] => rowOf(id).cost;
  const read = async (): Promise<void> => {
    const ids = drawn.peek().filter((id) => wanted.has(id));
    wanted.clear();
    const isNewest = begin();
    const isNewestOf = new Map(ids.map((id) => [id, rowOf(id).begin()]));
    try {
      for (let from = 0; from < ids.length; from += PAGE_MAX) {
        const page = ids.slice(from, from + PAGE_MAX).join(',');
        const { data } = await get<Page<InstanceCost>>(`/v1/instance-costs?limit=${PAGE_MAX}&instance_ids=${page}`);
        for (const cost of data) if (isNewestOf.get(cost.instance_id)?.() === true) of(cost.instance_id).value = cost;
      }
      if (isNewest()) error.value = undefined;
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      if (isNewest()) error.value = failure;
    }
  };
  const soon = (ids: readonly string[], ms: number): void => {
    for (const id of ids) wanted.add(id);
    timer ??= setTimeout(() => {
      timer = undefined;
      void read();
    }, ms);
  };
  return {
    of,
    drawn,
    error,
    draw: (id) => {
      drawn.value = [...drawn.peek(), id];
      if (of(id).peek() === undefined) soon([id], 0);
      return () => {
        drawn.value = drawn.peek().filter((each) => each !== id);
      };
    },
    reread: (id) => {
      if (drawn.peek().includes(id)) soon([id], GATHER_MS);
    },
    rereadAll: () => soon(drawn.peek(), GATHER_MS),
    stop: () => clearTimeout(timer),
  };
}
