// The driver that the engine calls until a job's file is here. It decides which due jobs are driven now, so that no server holds the jobs of
// others up.
import { OutboundError } from '../../base/outbound/policy.ts';
import type { Driver } from '../../base/operations/engine.ts';
import type { StepDeps } from './deps.ts';
import type { Purpose } from './places.ts';
import { planJob } from './plan.ts';
import type { Servers } from './servers.ts';
import { perform, serverOf } from './steps.ts';
import * as store from './store.ts';

/** Largest number of jobs that are driven at once, because the engine must serve other rooms too. */
const DRIVEN_MAX = 24;
/** How many of them may fetch a file. Files arrive slowly, and meanwhile other jobs must be sent and asked about. */
const FETCHES_MAX = 12;
const POSTPONED_MS = 30_000;
/** How many jobs of a silent server share one answer. */
const SHARED_MAX = 1_000;

/** A job for which there is a place. `upstream` is the server that has it; null if none has. */
interface Placed {
  purpose: Purpose;
  upstream: string | null;
  leave(): void;
}

interface Wanted {
  nowMs: number;
  limit: number;
  /** How many jobs may be driven in addition. */
  room: number;
}

const UNPLACED: Placed = { purpose: 'ask', upstream: null, leave: () => undefined };

export function openDriver(deps: StepDeps): Driver {
  const { db, places } = deps;
  const driven = new Map<string, Placed>();
  const offered = new Map<string, Placed>();
  /** Offers the due jobs that have waited longest at servers with a free place. */
  const offer = async (purpose: 'ask' | 'fetch', { nowMs, limit, room }: Wanted): Promise<void> => {
    const full = new Set<string>();
    let left = room;
    for (let before = -1; before < full.size && left > 0;) {
      before = full.size;
      const rows = await store.dueJobs(db.read, nowMs, { isFetch: purpose === 'fetch', except: [...full], limit });
      for (const { id, upstream } of rows) {
        if (left <= 0 || driven.has(id) || offered.has(id)) continue;
        const leave = upstream === null ? UNPLACED.leave : places.take(upstream, purpose);
        if (upstream !== null && leave === undefined) full.add(upstream);
        if (leave === undefined) continue;
        offered.set(id, { purpose, upstream, leave });
        left -= 1;
      }
    }
  };
  return {
    name: 'videos',
    due: async (nowMs, limit) => {
      for (const { leave } of offered.values()) leave();
      offered.clear();
      const fetching = [...driven.values()].filter(({ purpose }) => purpose === 'fetch').length;
      const rest = (): number => DRIVEN_MAX - driven.size - offered.size;
      await offer('fetch', { nowMs, limit, room: Math.min(FETCHES_MAX - fetching, rest()) });
      await offer('ask', { nowMs, limit, room: rest() });
      return [...offered.keys()];
    },
    drive: async (id, signal) => {
      const placed = offered.get(id) ?? UNPLACED;
      offered.delete(id);
      driven.set(id, placed);
      const { upstream } = placed;
      try {
        await driveOne(id, deps, signal);
        if (upstream !== null && places.isSilent(upstream) && places.taken(upstream) === 1)
          await shareSilence(upstream, id, deps, signal);
      } finally {
        driven.delete(id);
        placed.leave();
      }
    },
  };
}

/** The job is postponed if it cannot be driven, so that it does not delay the others. */
async function driveOne(id: string, deps: StepDeps, signal: AbortSignal): Promise<void> {
  const { db, clock } = deps;
  try {
    const job = await store.findJob(db.read, id);
    if (job === undefined) return;
    const server = serverOf(job, deps);
    await perform(job, planJob(job, server && { videoMs: server.video_ms }, clock.now()), deps, signal);
  } catch (error) {
    await db.tx('videos.postpone', (tx) => store.postpone(tx, id, clock.now() + POSTPONED_MS));
    throw error;
  }
}

/** Gives the silence of a server as the answer to its other jobs that are due, so that each does not wait for a silence of its own. */
async function shareSilence(upstream: string, asker: string, deps: StepDeps, signal: AbortSignal): Promise<void> {
  const { db, clock } = deps;
  for (const id of await store.dueAt(db.read, upstream, { nowMs: clock.now(), limit: SHARED_MAX })) {
    if (signal.aborted) return;
    if (id !== asker) await driveOne(id, { ...deps, servers: SILENT }, signal);
  }
}

const REASON = 'it did not answer about another video';

/** A server that gives no answer. */
const SILENT: Servers = {
  submit: async () => ({ is: 'busy', reason: REASON }),
  report: async () => ({ status: 'silent', reason: REASON }),
  file: async () => {
    throw new OutboundError('timeout', REASON);
  },
  release: async () => false,
};
