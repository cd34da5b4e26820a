// Costs of the instances whose rows are drawn. One request reads many of them. An instance is read again after each change, and all twice a minute.
import { type ReadonlySignal, type Signal, signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import type { InstanceCost } from '../../../../shared/api/instance-bill.ts';
import type { Page } from '../../../../shared/api/page.ts';
import { PAGE_MAX } from '../../../../shared/limits.ts';
import { ApiError, get } from '../core/api.ts';
import { whileVisible } from '../core/data.ts';
import { onLive } from '../core/live.ts';

const REREAD_MS = 30_000;
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

/** The costs of the rows while the list is shown. */
export function useCosts(): Costs {
  const costs = useMemo(openCosts, []);
  useEffect(() => {
    const stopLive = onLive((event) => {
      if (event === 'resync') costs.rereadAll();
      else if (event.resource_type === 'instance') costs.reread(event.resource_id);
    });
    const stopTimer = whileVisible(REREAD_MS, costs.rereadAll);
    return () => {
      stopLive();
      stopTimer();
      costs.stop();
    };
  }, [costs]);
  return costs;
}

interface OpenCosts extends Costs {
  reread(id: string): void;
  rereadAll(): void;
  stop(): void;
}

function openCosts(): OpenCosts {
  const known = new Map<string, Signal<InstanceCost | undefined>>();
  const drawn = signal<readonly string[]>([]);
  const error = signal<ApiError | undefined>(undefined);
  const wanted = new Set<string>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const of = (id: string): Signal<InstanceCost | undefined> => {
    const found = known.get(id) ?? signal<InstanceCost | undefined>(undefined);
    known.set(id, found);
    return found;
  };
  const read = async (): Promise<void> => {
    const ids = drawn.peek().filter((id) => wanted.has(id));
    wanted.clear();
    try {
      for (let from = 0; from < ids.length; from += PAGE_MAX) {
        const page = ids.slice(from, from + PAGE_MAX).join(',');
        const { data } = await get<Page<InstanceCost>>(`/v1/instance-costs?limit=${PAGE_MAX}&instance_ids=${page}`);
        for (const cost of data) of(cost.instance_id).value = cost;
      }
      error.value = undefined;
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      error.value = failure;
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
