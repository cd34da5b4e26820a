// The costs of the rows while the list is shown. An instance is read again after each change, and all twice a minute.
import { useEffect, useMemo } from 'preact/hooks';
import { whileVisible } from '../core/data.ts';
import { onLive } from '../core/live.ts';
import { type Costs, openCosts } from './cost-reads.ts';

const REREAD_MS = 30_000;

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
