// Wanting, removing and observing containers.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { WORKLOADS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { DesiredMessage, ObservedMessage, Revision } from '../../../shared/protocol/link.ts';
import type { DesiredWorkload, ObservedWorkload } from '../../../shared/protocol/workload.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { Supply } from '../supply/supply.ts';
import * as store from './store.ts';

/** Phases in which the host has let go of the GPUs: the container is stopped and cannot start by itself. */
const LET_GO = new Set<ObservedWorkload['phase']>(['stopped', 'removed', 'missing']);
/** Phases after which there is nothing left to remove. */
const NOTHING_LEFT = new Set<ObservedWorkload['phase']>(['removed', 'missing']);
/** Phases of a container that is there and not on its way out. */
const THERE = new Set<ObservedWorkload['phase']>(['starting', 'running']);

export interface Workloads {
  /** The variables of an instance's containers as they are stored: they may hold secrets, and only its host is told them. */
  sealEnv(instanceId: string, env: Record<string, string>): string;
  /** Whether the machine can be told of one more container (WORKLOADS_PER_MACHINE_MAX). */
  hasRoom(tx: Tx, machineId: string): Promise<boolean>;
  /** The container should run there from now on. The caller nudges the machine after its commit. */
  want(tx: Tx, machineId: string, spec: store.WorkloadSpec): Promise<void>;
  /** The container should go. Nothing happens for one that is going already. */
  remove(tx: Tx, workloadId: string): Promise<void>;
  /** The host ends it by itself after this time, whether it can be reached or not. */
  setEnd(tx: Tx, workloadId: string, endsAtMs: number): Promise<void>;
  /** The whole desired state of a machine, as it goes over the link. */
  desired(machineId: string): Promise<DesiredMessage>;
  /**
   * Takes over what a host reports; tells `onChange` in the same transaction. Of workloads that this database does not know, or knows
   * elsewhere, it takes no more than their ids: they keep new work away from the host.
   */
  observe(machineId: string, message: ObservedMessage): Promise<void>;
  /** A host that holds more than we ever sent proves that this database is an old one: start above it. */
  meet(machineId: string, held: Revision | null): Promise<void>;
  /**
   * The operator's word: a container that a host reports and nobody here knows should go. Nothing happens where it is going already.
   * @throws ServiceError `not_found`, `conflict`
   */
  removeUnknown(machineId: string, workloadId: string): Promise<void>;
}

interface WorkloadsDeps {
  db: Db;
  clock: Clock;
  log: Log;
  sealing: Sealing;
  supply: Supply;
  /** The machine's link is young, and took the place of one that was up: another host may have its identity. */
  isContested(machineId: string): boolean;
  /** A room above wants to look again at the owner of the workload. */
  onChange(tx: Tx, instanceId: string, observed: ObservedWorkload): Promise<void>;
}

export function openWorkloads(deps: WorkloadsDeps): Workloads {
  const { db, clock, log, sealing } = deps;

  return {
    sealEnv: (instanceId, env) => sealing.seal(envPlace(instanceId), JSON.stringify(env)),
    hasRoom: async (tx, machineId) => (await store.countLive(tx, machineId)) < WORKLOADS_PER_MACHINE_MAX,
    want: async (tx, machineId, spec) => {
      await store.insertWorkload(tx, machineId, spec, clock.now());
      await store.bumpRevision(tx, machineId, clock.now());
    },
    remove: async (tx, workloadId) => {
      const row = await store.findWorkload(tx, workloadId);
      if (row === undefined) return;
      if (await store.move(tx, workloadId, { from: 'wanted', to: 'removing', nowMs: clock.now() })) {
        await store.bumpRevision(tx, row.machine_id, clock.now());
      }
    },
    setEnd: async (tx, workloadId, endsAtMs) => {
      const row = await store.findWorkload(tx, workloadId);
      if (row === undefined) return;
      await store.setSpec(tx, workloadId, { ...row.spec, ends_at_ms: endsAtMs });
      await store.bumpRevision(tx, row.machine_id, clock.now());
    },
    desired: (machineId) =>
      db.tx('workloads.desired', async (tx) => {
        const rows = await store.liveWorkloads(tx, machineId);
        const workloads = rows.map((row) => desiredOf(row, sealing));
        return {
          type: 'desired' as const,
          ...(await store.position(tx, machineId)),
          complete: true as const,
          now_ms: clock.now(),
          workloads,
        };
      }),
    observe: (machineId, message) =>
      db.tx('workloads.observe', async (tx) => {
        const unknown = [...message.unknown_workload_ids];
        for (const observed of message.workloads) {
          const isKnown = await observeOne(tx, machineId, observed, deps);
          if (!isKnown && THERE.has(observed.phase)) unknown.push(observed.workload_id);
        }
        await deps.supply.setUnknownWorkloads(tx, machineId, unknown.toSorted());
      }),
    meet: (machineId, held) =>
      db.tx('workloads.meet', async (tx) => {
        const ours = await store.position(tx, machineId);
        if (held === null || held.epoch < ours.epoch || (held.epoch === ours.epoch && held.revision <= ours.revision))
          return;
        log.error(
          { machine_id: machineId, held, ours },
          'a host holds a newer desired state than this database: it was restored from a backup; starting a new epoch above it',
        );
        await store.setPosition(tx, machineId, { epoch: held.epoch + 1, revision: 0 });
        await deps.supply.setUnknownWorkloads(tx, machineId, null);
      }),
    removeUnknown: (machineId, workloadId) =>
      db.tx('workloads.remove_unknown', (tx) => removeUnknown(tx, machineId, workloadId, deps)),
  };
}

function desiredOf({ spec, state }: store.WorkloadRow, sealing: Sealing): DesiredWorkload {
  const { sealed_env: sealedEnv, ...plain } = spec;
  // What is to go needs no command and no variables, and the tombstone of an unknown container has none.
  if (state !== 'wanted') return { ...plain, command: { entrypoint: null, cmd: null }, env: {}, desired: 'removed' };
  const env = z.record(z.string(), z.string()).parse(JSON.parse(sealing.open(envPlace(spec.instance_id), sealedEnv)));
  return { ...plain, env, desired: 'running' };
}

function envPlace(instanceId: string): string {
  return `env/${instanceId}`;
}

async function removeUnknown(tx: Tx, machineId: string, workloadId: string, deps: WorkloadsDeps): Promise<void> {
  if (!(await deps.supply.isUnknownWorkload(tx, machineId, workloadId))) {
    return fail('not_found', `Machine ${machineId} reports no unknown workload ${workloadId}.`);
  }
  const known = await store.findWorkload(tx, workloadId);
  if (known?.machine_id === machineId && known.state === 'removing') return;
  if (known !== undefined) {
    return fail('conflict', `Workload ${workloadId} belongs elsewhere or is over: remove its container on the host.`);
  }
  if ((await store.countLive(tx, machineId)) >= WORKLOADS_PER_MACHINE_MAX) {
    return fail('conflict', `Machine ${machineId} has too many containers to remove. Try again in some minutes.`);
  }
  const nowMs = deps.clock.now();
  await store.insertWorkload(tx, machineId, tombstoneOf(workloadId), nowMs);
  await store.move(tx, workloadId, { from: 'wanted', to: 'removing', nowMs });
  await store.bumpRevision(tx, machineId, nowMs);
}

/** Enough of a workload to end it; who it belonged to is not known any more. */
function tombstoneOf(workloadId: string): store.WorkloadSpec {
  return {
    workload_id: workloadId,
    instance_id: workloadId,
    image: 'unknown',
    pull_login: false,
    command: { entrypoint: null, cmd: null },
    sealed_env: '',
    gpu_uuids: [],
    disk_gb: null,
    ends_at_ms: null,
  };
}

/** False for a workload that is none of this machine's here. */
async function observeOne(
  tx: Tx,
  machineId: string,
  observed: ObservedWorkload,
  deps: WorkloadsDeps,
): Promise<boolean> {
  const row = await store.findWorkload(tx, observed.workload_id);
  if (row === undefined || row.machine_id !== machineId || row.state === 'gone') return false;
  if (await isDoubtful(tx, row, observed, deps)) return true;
  const now = deps.clock.now();
  if (JSON.stringify(row.observed) !== JSON.stringify(observed)) {
    await store.setObserved(tx, row.id, observed, now);
    await deps.onChange(tx, row.instance_id, observed);
  }
  if (row.state !== 'removing') return true;
  if (LET_GO.has(observed.phase)) await deps.supply.release(tx, row.id);
  if (NOTHING_LEFT.has(observed.phase)) {
    await store.move(tx, row.id, { from: 'removing', to: 'gone', nowMs: now });
    await store.bumpRevision(tx, machineId, now);
  }
  return true;
}

/**
 * Of two hosts with one identity one has the container, and the other says that it is not there: what ran counts as running, and keeps its
 * GPUs, until one host is left. Meanwhile the looks at its endpoint find out whether it does. Where it is not yet known whether there are two,
 * the host says it again soon.
 */
async function isDoubtful(
  tx: Tx,
  row: store.WorkloadRow,
  observed: ObservedWorkload,
  { supply, isContested }: WorkloadsDeps,
): Promise<boolean> {
  const ran = row.observed?.phase === 'running';
  if (!ran || observed.phase === 'running') return false;
  return isContested(row.machine_id) || (await supply.isCopied(tx, row.machine_id));
}
