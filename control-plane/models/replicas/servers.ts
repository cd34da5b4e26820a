// The replicas as this process saw them last, in the form in which the gateway uses servers. The rows in the database are the truth: this copy is
// read again every second, and after each change that this process has made.
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Db } from '../../base/db/db.ts';
import type { Deployment } from '../catalog/deployments.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Outlook } from './demand.ts';
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
  /** Reads the rows again. Returns the time as of which they were read. */
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

interface Seen {
  servers: Upstream[];
  outlook: Outlook;
  drains: boolean;
  wakes: Wakes | undefined;
}

export function openServers(deps: ServersDeps): Servers {
  const { db, clock } = deps;
  let pools = new Map<string, Seen>();
  let known = new Map<string, Upstream>();
  return {
    ofPool: (poolId) => pools.get(poolId)?.servers ?? [],
    all: () => [...pools.values()].flatMap(({ servers }) => servers),
    outlook: (poolId) => pools.get(poolId)?.outlook ?? { isComing: false, retryMs: 0, wakeMs: undefined },
    drains: (poolId) => pools.get(poolId)?.drains === true,
    wakes: (poolId) => pools.get(poolId)?.wakes,
    refresh: async () => {
      const seenMs = clock.now();
      const rows = await store.allPools(db.read);
      const replicas = rows.length === 0 ? [] : await store.liveReplicas(db.read);
      const ofPool = Map.groupBy(replicas, (row) => row.pool_id);
      const next = new Map<string, Seen>();
      const stillKnown = new Map<string, Upstream>();
      const serverFor = (row: store.ReplicaRow): Upstream => {
        const limits = limitsOf(deps.deploymentOf(row.pool_id) ?? row.deployment);
        const key = `${row.id} ${JSON.stringify(limits)}`;
        const server = known.get(key) ?? serverOf({ ...row, deployment: { ...row.deployment, ...limits } }, deps);
        stillKnown.set(key, server);
        return server;
      };
      for (const { id, retry_ms: retryMs } of rows) {
        const own = ofPool.get(id) ?? [];
        const ready = own.filter(({ state }) => state === 'ready');
        const servers = ready.map(serverFor);
        const wakes = wakesOf(await store.wakeTimesMs(db.read, id, WAKES_COUNTED));
        const isComing = own.some(({ state }) => state === 'ready' || state === 'starting');
        const drains = own.some(({ state }) => state === 'draining');
        next.set(id, { servers, drains, wakes, outlook: { isComing, retryMs, wakeMs: wakes?.p50Ms } });
      }
      pools = next;
      known = stillKnown;
      return seenMs;
    },
  };
}

/** The settings of a deployment that replicas follow while they run. */
function limitsOf(
  deployment: Deployment,
): Pick<Deployment, 'max_open_requests' | 'answer_ms' | 'first_byte_ms' | 'idle_ms' | 'max_inputs'> {
  const { max_open_requests, max_inputs, answer_ms, first_byte_ms, idle_ms } = deployment;
  return { max_open_requests, max_inputs, answer_ms, first_byte_ms, idle_ms };
}

/** The server of a replica that has a machine. Its URL only names it, because it has no address. */
export function serverOf(
  row: Pick<store.ReplicaRow, 'id' | 'pool_id' | 'machine_id' | 'workload_id' | 'deployment'>,
  { openStream, enter }: Pick<ServersDeps, 'openStream' | 'enter'>,
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
