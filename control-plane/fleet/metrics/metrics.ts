// The figures of all machines: takes samples from their links, stores them by the minute, and asks hosts for quick samples while somebody looks
// at their figures.
//
// A host sends a sample every ten seconds. This room sums the samples up in memory and writes one row per machine and minute, many machines in
// one statement. The newest sample is written with the minute, and every second for a machine that somebody looks at. So 2,000 machines cost a
// few transactions per minute. If the process dies, the minute that was not stored is lost. That is acceptable, because nobody is charged by
// these figures.
//
// A request for live figures of a machine sets `watched_until_ms` in its row. The process that has the link of the machine sees that within a
// second, and asks the host for a sample every second.
import type { Clock } from '../../../shared/clock.ts';
import { throwAll } from '../../../shared/errors.ts';
import { METRICS_STALE_MS, METRICS_WATCH_MS } from '../../../shared/limits.ts';
import type { MetricsSample } from '../../../shared/protocol/metrics.ts';
import type { Db } from '../../base/db/db.ts';
import type { Link } from '../link/link.ts';
import { instancesOn } from '../workloads/store.ts';
import type { StoredFigures } from './figures.ts';
import { type InstanceOf, openMinutes } from './minutes.ts';
import { openPages, type Pages } from './pages.ts';
import * as store from './store.ts';

export interface LiveFigures {
  sampledMs: number;
  figures: StoredFigures;
}

export interface FleetMetrics {
  take(machineId: string, sample: MetricsSample): void;
  /** Stores what is due, and asks hosts that somebody looks at for quick samples. */
  tick(): Promise<void>;
  /** The newest samples of these machines, without old ones. Other work of the process goes on in between. */
  live(machineIds: readonly string[]): Promise<Map<string, LiveFigures>>;
  /** The newest sample; undefined if there is none or it is old. The machine is sampled quickly for a while. */
  look(machineId: string): Promise<LiveFigures | undefined>;
  /** Calls `take` with each minute of a span, the newest first. Other work of the process goes on in between. */
  eachMinute: Pages['each'];
  /** Stores what is in memory. */
  close(): Promise<void>;
}

export interface FleetMetricsDeps {
  db: Db;
  clock: Clock;
  link: Pick<Link, 'isUp' | 'watch'>;
}

/** Number of machines that one statement writes. */
const CHUNK = 100;
/** Number of machines whose newest samples are read in one turn of the event loop. */
const LIVE_CHUNK = 50;
/** A request for live figures renews `watched_until_ms` only if less than this time is left, so that most requests write nothing. */
const RENEW_MS = METRICS_WATCH_MS / 2;

export function openFleetMetrics(deps: FleetMetricsDeps): FleetMetrics {
  const { db, clock, link } = deps;
  const minutes = openMinutes();
  const pages = openPages(deps);
  /** The time until which each host was asked to sample quickly, by machine id. */
  let announced = new Map<string, number>();

  const askHosts = (watched: ReadonlyMap<string, number>, nowMs: number): void => {
    const next = new Map<string, number>();
    for (const [machineId, untilMs] of watched) {
      if (!link.isUp(machineId)) continue;
      if (announced.get(machineId) !== untilMs) link.watch(machineId, Math.min(METRICS_WATCH_MS, untilMs - nowMs));
      next.set(machineId, untilMs);
    }
    announced = next;
  };
  const storeDue = async (watched: Iterable<string>, all = false): Promise<void> => {
    const over = minutes.closed(clock.now(), all);
    const newest = minutes.newest(new Set([...watched, ...over.map(({ machineId }) => machineId)]));
    const machineIds = [...new Set([...over, ...newest].map(({ machineId }) => machineId))].toSorted();
    const failures: unknown[] = [];
    for (let i = 0; i < machineIds.length; i += CHUNK) {
      const chunk = new Set(machineIds.slice(i, i + CHUNK));
      const due = { over, newest, within: (id: string) => chunk.has(id) };
      // What fails is lost, because memory does not have it any more. It takes nothing of other machines with it.
      await storeChunk([...chunk], due, deps).catch((error: unknown) => failures.push(error));
    }
    throwAll(failures);
  };
  const live: FleetMetrics['live'] = async (machineIds) => {
    const found = new Map<string, LiveFigures>();
    for (let i = 0; i < machineIds.length; i += LIVE_CHUNK) {
      if (i > 0) await clock.nextTurn();
      const rows = await store.newestOf(db.read, machineIds.slice(i, i + LIVE_CHUNK));
      for (const [id, row] of rows) if (isFresh(row, clock.now())) found.set(id, liveOf(row));
    }
    return found;
  };

  return {
    take: (machineId, sample) => minutes.take(machineId, sample, clock.now()),
    tick: async () => {
      // One time for both: a host ends its link if it is asked to sample for a negative time.
      const nowMs = clock.now();
      const watched = await store.watchedMachines(db.read, nowMs);
      askHosts(watched, nowMs);
      await storeDue(watched.keys());
    },
    live,
    look: async (machineId) => {
      const row = (await store.newestOf(db.read, [machineId])).get(machineId);
      const nowMs = clock.now();
      const watchedMs = (row?.watched_until_ms ?? 0) - nowMs;
      // A time that is far ahead was written before the clock was set back, and hosts were asked for it already.
      if (watchedMs < RENEW_MS || watchedMs > 2 * METRICS_WATCH_MS)
        await db.tx('metrics.watch', (tx) => store.setWatched(tx, machineId, nowMs + METRICS_WATCH_MS));
      return row !== undefined && isFresh(row, nowMs) ? liveOf(row) : undefined;
    },
    eachMinute: pages.each,
    close: () => storeDue([], true),
  };
}

interface Due {
  over: ReturnType<ReturnType<typeof openMinutes>['closed']>;
  newest: ReturnType<ReturnType<typeof openMinutes>['newest']>;
  within(machineId: string): boolean;
}

async function storeChunk(
  machineIds: readonly string[],
  { over, newest, within }: Due,
  { db, clock }: FleetMetricsDeps,
): Promise<void> {
  // A workload that has ended counts if it ended a short time ago, because samples of it may not be stored yet.
  const found = await instancesOn(db.read, machineIds, clock.now() - METRICS_STALE_MS);
  const on = (machineId: string): InstanceOf => {
    const own = found.get(machineId);
    return (workloadId) => own?.get(workloadId);
  };
  const minuteRows = over
    .filter(({ machineId }) => within(machineId))
    .toSorted((a, b) => (a.machineId < b.machineId ? -1 : 1))
    .map(({ machineId, minuteMs, samples, figures }) => ({
      machine_id: machineId,
      minute_ms: minuteMs,
      samples,
      figures: figures(on(machineId)),
    }));
  if (minuteRows.length > 0) await db.tx('metrics.minutes', (tx) => store.insertMinutes(tx, minuteRows));
  const newestRows = newest
    .filter(({ machineId }) => within(machineId))
    .toSorted((a, b) => (a.machineId < b.machineId ? -1 : 1))
    .map(({ machineId, sampledMs, figures }) => ({
      machine_id: machineId,
      sampled_ms: sampledMs,
      figures: figures(on(machineId)),
    }));
  if (newestRows.length > 0) await db.tx('metrics.newest', (tx) => store.setNewest(tx, newestRows));
}

/** A sample of the future is no newer one: the clock was set back. */
function isFresh({ sampled_ms: sampledMs, figures }: store.MachineFigures, nowMs: number): boolean {
  return figures !== null && Math.abs(nowMs - sampledMs) <= METRICS_STALE_MS;
}

function liveOf({ sampled_ms: sampledMs, figures }: store.MachineFigures): LiveFigures {
  return { sampledMs, figures: figures ?? { gpus: [], containers: [], host: null } };
}
