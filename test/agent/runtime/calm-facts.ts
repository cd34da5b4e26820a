// Facts from which the agent plans, for tests that say only what their case is about.
import type { Facts } from '../../../agent/runtime/plan.ts';

/** The facts of a host on which nothing is wanted, wrong or in progress, except for what `patch` says. Every image is there. */
export function calmFacts(patch: Partial<Facts>): Facts {
  return {
    desired: [],
    records: new Map(),
    containers: [],
    engineAwayMs: 0,
    holdersUp: new Set(),
    silentMs: new Map(),
    deadMs: new Map(),
    busy: new Map(),
    pulls: () => ({ state: 'ready' }),
    gpuUuids: new Set(),
    gpuFaults: new Map(),
    retryAtMs: new Map(),
    nowMs: 1_000,
    serverNowMs: 1_000,
    quarantineMs: 500,
    ...patch,
  };
}
