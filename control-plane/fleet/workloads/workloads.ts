// Wanting, removing and observing containers.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { DesiredMessage, ObservedMessage, Position } from '../../../shared/protocol/link.ts';
import type { ObservedWorkload } from '../../../shared/protocol/workload.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import type { Supply } from '../supply/supply.ts';
import * as store from './store.ts';

/** Phases in which the host has let go of the GPUs: the container is stopped and cannot start by itself. */
const LET_GO = new Set<ObservedWorkload['phase']>(['stopped', 'removed', 'missing']);
/** Phases after which there is nothing left to remove. */
const NOTHING_LEFT = new Set<ObservedWorkload['phase']>(['removed', 'missing']);

export interface Workloads {
  /** The container should run there from now on. The caller nudges the machine after its commit. */
  want(tx: Tx, machineId: string, spec: store.WorkloadSpec): Promise<void>;
  /** The container should go. Nothing happens for one that is going already. */
  remove(tx: Tx, workloadId: string): Promise<void>;
  /** The host ends it by itself after this time, whether it can be reached or not. */
  setEnd(tx: Tx, workloadId: string, endsAtMs: number): Promise<void>;
  /** The whole desired state of a machine, as it goes over the link. */
  desired(machineId: string): Promise<DesiredMessage>;
  /** Takes over what a host reports; tells `onChange` in the same transaction. Reports about foreign workloads are ignored. */
  observe(machineId: string, message: ObservedMessage): Promise<void>;
  /** A host that holds more than we ever sent proves that this database is an old one: start above it. */
  meet(machineId: string, held: Position | null): Promise<void>;
}

interface WorkloadsDeps {
  db: Db;
  clock: Clock;
  log: Log;
  supply: Supply;
  /** A room above wants to look again at the owner of the workload. */
  onChange(tx: Tx, instanceId: string, observed: ObservedWorkload): Promise<void>;
}

export function openWorkloads(deps: WorkloadsDeps): Workloads {
  const { db, clock, log } = deps;

  return {
    want: async (tx, machineId, spec) => {
      await store.insertWorkload(tx, machineId, spec, clock.now());
      await store.bumpRevision(tx, machineId);
    },
    remove: async (tx, workloadId) => {
      const row = await store.findWorkload(tx, workloadId);
      if (row === undefined) return;
      if (await store.move(tx, workloadId, { from: 'wanted', to: 'removing', nowMs: clock.now() })) {
        await store.bumpRevision(tx, row.machine_id);
      }
    },
    setEnd: async (tx, workloadId, endsAtMs) => {
      const row = await store.findWorkload(tx, workloadId);
      if (row === undefined) return;
      await store.setSpec(tx, workloadId, { ...row.spec, ends_at_ms: endsAtMs });
      await store.bumpRevision(tx, row.machine_id);
    },
    desired: (machineId) =>
      db.tx('workloads.desired', async (tx) => {
        const rows = await store.liveWorkloads(tx, machineId);
        const workloads = rows.map((row) => ({
          ...row.spec,
          desired: row.state === 'wanted' ? ('running' as const) : ('removed' as const),
        }));
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
        for (const observed of message.workloads) await observeOne(tx, machineId, observed, deps);
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
      }),
  };
}

async function observeOne(tx: Tx, machineId: string, observed: ObservedWorkload, deps: WorkloadsDeps): Promise<void> {
  const row = await store.findWorkload(tx, observed.workload_id);
  if (row === undefined || row.machine_id !== machineId || row.state === 'gone') return;
  const now = deps.clock.now();
  if (JSON.stringify(row.observed) !== JSON.stringify(observed)) {
    await store.setObserved(tx, row.id, observed, now);
    await deps.onChange(tx, row.instance_id, observed);
  }
  if (row.state !== 'removing') return;
  if (LET_GO.has(observed.phase)) await deps.supply.release(tx, row.id);
  if (NOTHING_LEFT.has(observed.phase)) {
    await store.move(tx, row.id, { from: 'removing', to: 'gone', nowMs: now });
    await store.bumpRevision(tx, machineId);
  }
}
