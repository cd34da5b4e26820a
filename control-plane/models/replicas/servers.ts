// The replicas as this process saw them last, in the form in which the gateway uses servers. The rows in the database are the truth: this copy is
// read again every second, and after each change of a state that this process has made. A second reading reads little: the states of all replicas,
// and the rows of those that are ready since the last one.
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Db } from '../../base/db/db.ts';
import type { Deployment, Replica } from '../catalog/deployments.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Outlook } from './demand.ts';
import { limitsOf } from './pools.ts';
import * as store from './store.ts';

export interface Servers {
  /** The ready replicas of a pool. The same replica is always the same object. */
  ofPool(poolId: string): readonly Upstream[];
  /** The ready replicas of all pools. */
  all(): Upstream[];
  outlook(poolId: string): Outlook;
  /** True if a replica of the pool drains. */
  drains(poolId: string): boolean;
  /** The times from a start until the replica was ready, of the newest replicas of a pool. */
  wakes(poolId: string): Wakes | undefined;
  /** The ready replicas of the pool that have failed or refused the callers of this process again and again. */
  suspectsOf(poolId: string): string[];
  /** Reads the rows again. Returns the time as of which they were read. Calls at the same time share one reading. */
  refresh(): Promise<number>;
}

export interface Wakes {
  p50Ms: number;
  p95Ms: number;
}

export interface ServersDeps {
  db: Db;
  clock: Clock;
  openStream(machineId: string, workloadId: string, target: OpenMessage['target']): Promise<Duplex>;
  /** Notes a request to a replica. The returned function notes its end. */
  enter(poolId: string, replicaId: string): () => void;
  /** What the catalogue says of the pool now; undefined if the pool is not in it any more. */
  deploymentOf(poolId: string): Deployment | undefined;
}

/** Number of starts of a pool from which its wake times are computed. */
const WAKES_COUNTED = 50;

/** The outlook of a pool that has not been read yet. */
const UNKNOWN: Outlook = { isComing: false, mayStart: true, retryMs: 0, wakeMs: undefined };

interface Seen {
  servers: Upstream[];
  outlook: Outlook;
  drains: boolean;
  wakes: Wakes | undefined;
}

/** A ready replica. Its row does not change any more in what its server needs. */
interface Known {
  row: store.ReplicaRow;
  /** The settings that `server` was made with. */
  limits: string;
  server: Upstream;
  record: TrackRecord;
}

export function openServers(deps: ServersDeps): Servers {
  const { db, clock } = deps;
  let pools = new Map<string, Seen>();
  let known = new Map<string, Known>();
  const read = async (): Promise<number> => {
    const seenMs = clock.now();
    const rows = await store.allPools(db.read);
    const live = rows.length === 0 ? [] : await store.liveStates(db.read);
    const isReady = ({ state }: { state: string }): boolean => state === 'ready';
    const newIds = live.filter((each) => isReady(each) && !known.has(each.id)).map(({ id }) => id);
    const newReady = new Map((await store.replicasOf(db.read, newIds)).map((row) => [row.id, row]));
    const hasNew = new Set([...newReady.values()].map((row) => row.pool_id));
    const ofPool = Map.groupBy(live, (each) => each.pool_id);
    const next = new Map<string, Seen>();
    const stillKnown = new Map<string, Known>();
    for (const pool of rows) {
      const { id, retry_ms: retryMs } = pool;
      const own = ofPool.get(id) ?? [];
      const deployment = deps.deploymentOf(id);
      const mayStart = deployment !== undefined && limitsOf(deployment, pool).max > 0;
      for (const replica of own.filter(isReady)) {
        const row = known.get(replica.id)?.row ?? newReady.get(replica.id);
        if (row === undefined) continue;
        const now = knownAs(row, deployment, known.get(row.id), deps);
        now.record.noteProof(replica.proven_ms);
        stillKnown.set(row.id, now);
      }
      const servers = own.flatMap((replica) => stillKnown.get(replica.id)?.server ?? []);
      const before = pools.get(id);
      const wakes =
        before === undefined || hasNew.has(id)
          ? wakesOf(await store.wakeTimesMs(db.read, id, WAKES_COUNTED))
          : before.wakes;
      const isComing = own.some(({ state }) => state === 'ready' || state === 'starting');
      const drains = own.some(({ state }) => state === 'draining');
      next.set(id, { servers, drains, wakes, outlook: { isComing, mayStart, retryMs, wakeMs: wakes?.p50Ms } });
    }
    pools = next;
    known = stillKnown;
    return seenMs;
  };
  return {
    ofPool: (poolId) => pools.get(poolId)?.servers ?? [],
    all: () => [...pools.values()].flatMap(({ servers }) => servers),
    outlook: (poolId) => pools.get(poolId)?.outlook ?? UNKNOWN,
    drains: (poolId) => pools.get(poolId)?.drains === true,
    wakes: (poolId) => pools.get(poolId)?.wakes,
    suspectsOf: (poolId) =>
      [...known.values()].flatMap(({ row, record }) => (row.pool_id === poolId && record.isSuspect() ? [row.id] : [])),
    refresh: oneAtATime(read),
  };
}

/** The same object as before while the settings of its deployment are the same. */
function knownAs(
  row: store.ReplicaRow,
  deployment: Deployment | undefined,
  before: Known | undefined,
  deps: ServersDeps,
): Known {
  const settings = settingsOf(deployment ?? row.deployment);
  const limits = JSON.stringify(settings);
  if (before?.limits === limits) return before;
  const record = before?.record ?? openTrackRecord(deps.clock);
  const server = serverOf({ ...row, deployment: { ...row.deployment, ...settings } }, { ...deps, note: record.note });
  return { row, limits, server, record };
}

/** What a replica has done with the last requests of callers. */
interface TrackRecord {
  note: Replica['note'];
  /** Notes when the replica has last given a real answer to our question, whichever process has asked. */
  noteProof(provenMs: number | null): void;
  isSuspect(): boolean;
}

/** A single failure may be the fault of its request. */
const SUSPECT_TIMES = 3;
/**
 * A refusal is mostly the caller's mistake, and costs the caller nothing. So refusals make a replica suspect only if it has answered nobody for this
 * time. Otherwise a caller with wrong requests could keep it busy with our questions.
 */
const SUSPECT_UNANSWERED_MS = 5 * 60_000;

function openTrackRecord(clock: Clock): TrackRecord {
  let failures = 0;
  let refusals = 0;
  let answeredMs = clock.monotonicMs();
  let lastProofMs: number | null = null;
  const noteAnswer = (): void => {
    failures = 0;
    refusals = 0;
    answeredMs = clock.monotonicMs();
  };
  return {
    note: (result) => {
      if (result === 'failed') failures += 1;
      else if (result === 'refused') refusals += 1;
      else noteAnswer();
    },
    noteProof: (provenMs) => {
      if (provenMs !== lastProofMs) noteAnswer();
      lastProofMs = provenMs;
    },
    isSuspect: () =>
      failures >= SUSPECT_TIMES ||
      (refusals >= SUSPECT_TIMES && clock.monotonicMs() - answeredMs >= SUSPECT_UNANSWERED_MS),
  };
}

/** Calls that come during a run share the next one, because the present one may have read too early for them. */
function oneAtATime<T>(run: () => Promise<T>): () => Promise<T> {
  let present: Promise<unknown> = Promise.resolve();
  let next: Promise<T> | undefined;
  return () => {
    next ??= present
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        const running = run();
        present = running;
        return running;
      });
    return next;
  };
}

/** The settings of a deployment that replicas follow while they run. */
function settingsOf(
  deployment: Deployment,
): Pick<Deployment, 'max_open_requests' | 'answer_ms' | 'first_byte_ms' | 'idle_ms' | 'max_inputs'> {
  const { max_open_requests, max_inputs, answer_ms, first_byte_ms, idle_ms } = deployment;
  return { max_open_requests, max_inputs, answer_ms, first_byte_ms, idle_ms };
}

/** What is noted of the requests to a replica. */
type Noting = Pick<ServersDeps, 'enter'> & Pick<Replica, 'note'>;

/** Our own questions do not count as requests of customers. */
export const NOTHING_TO_NOTE: Noting = { enter: () => () => undefined, note: () => undefined };

/** The server of a replica that has a machine. Its URL only names it, because it has no address. */
export function serverOf(
  row: Pick<store.ReplicaRow, 'id' | 'pool_id' | 'machine_id' | 'workload_id' | 'deployment'>,
  { openStream, enter, note }: Pick<ServersDeps, 'openStream'> & Noting,
): Upstream {
  const { id, pool_id: poolId, machine_id: machineId, workload_id: workloadId, deployment } = row;
  const { model, engine, max_open_requests, max_inputs, answer_ms, first_byte_ms, idle_ms, port } = deployment;
  return {
    base_url: `http://${id.replaceAll('_', '-')}.replica/v1`,
    model,
    engine,
    max_open_requests,
    max_inputs,
    answer_ms,
    first_byte_ms,
    idle_ms,
    weight: 1,
    connect_ms: CONNECT_MS,
    video_ms: 1,
    apiKey: undefined,
    replica: {
      id,
      dial: () => openStream(machineId ?? '', workloadId ?? '', { kind: 'tcp', port }),
      enter: () => enter(poolId, id),
      note,
    },
  };
}

/** The host has to open a stream first. */
const CONNECT_MS = 10_000;

function wakesOf(timesMs: readonly number[]): Wakes | undefined {
  if (timesMs.length === 0) return undefined;
  const sorted = timesMs.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return { p50Ms: at(0.5), p95Ms: at(0.95) };
}
