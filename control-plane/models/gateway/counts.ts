// Counters of the gateway for the operator's metrics: endings of requests and failures of servers, since this process started.
import type { Ending } from './store.ts';

export interface Counts {
  ended(model: string, ending: Ending): void;
  /** Counts a request that a server has refused or failed. */
  failed(upstream: string): void;
  /** Counts an answer that used more context than the catalog states for the model. */
  beyondContext(model: string): void;
  /** Number of requests by model and ending, in no order. */
  endings(): { model: string; ending: Ending; count: number }[];
  failures(): { upstream: string; count: number }[];
  beyondContexts(): { model: string; count: number }[];
}

export function openCounts(): Counts {
  const endings = new Map<string, Map<Ending, number>>();
  const failures = new Map<string, number>();
  const beyond = new Map<string, number>();
  return {
    ended: (model, ending) => {
      const ofModel = endings.get(model) ?? new Map<Ending, number>();
      endings.set(model, ofModel.set(ending, (ofModel.get(ending) ?? 0) + 1));
    },
    failed: (upstream) => void failures.set(upstream, (failures.get(upstream) ?? 0) + 1),
    beyondContext: (model) => void beyond.set(model, (beyond.get(model) ?? 0) + 1),
    beyondContexts: () => [...beyond].map(([model, count]) => ({ model, count })),
    endings: () =>
      [...endings].flatMap(([model, counts]) => [...counts].map(([ending, count]) => ({ model, ending, count }))),
    failures: () => [...failures].map(([upstream, count]) => ({ upstream, count })),
  };
}
