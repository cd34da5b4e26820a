// Workloads: which containers should run on which machine (desired), and which ones its host reports (observed).
//
// A workload is the container of one instance on one machine. The room never sends single orders such as "start" or "stop". It
// sends the complete list of desired workloads with a revision, and the host makes its containers match the list.
//
//   state of the row    meaning                                   in the desired list       leaves the state when
//   wanted              the container should run                  desired: running          `remove` is called
//   removing            a tombstone: the container should go      desired: removed          the host reports removed or missing,
//                                                                                           or the operator declares it lost
//   gone                nothing is left of it                     not in the list           its host reports it again (removing),
//                                                                                           or retention deletes the row
//
// A tombstone stays in the list until the host confirms it. A host that was offline for a week still learns which containers to
// remove. A host never removes a container because it is missing from the list: such a container is reported as unknown.
//
// The GPUs of a workload come free as soon as its container is stopped. Its disk stays on the host for some time after that, and comes free when
// the host reports the container removed.
//
// Example with revisions (milliseconds since 1970 in truth, small numbers here):
//   rev 100  `want` w1. The host starts it and reports starting, then running.
//   rev 140  `remove` w1: the row is `removing`, the list holds {w1, removed}.
//            The host reports stopped: w1's GPUs are free. It reports removed: w1's disk is free too, and the row is `gone`.
//   rev 150  The list is empty.
//
// Restore from a backup. The host holds rev 150, but the restored database only knows rev 120. When the host links, `meet`
// compares the two: the host holds a newer list than this database has ever sent. A new epoch begins (epoch 2, rev 0), which is
// above everything that the host has seen. Containers that were created after the backup are unknown to this database. Nothing is
// done to them, and nothing new is placed on the machine, until the operator orders their removal (`removeUnknown`, which inserts
// a tombstone).
//
// What must never happen:
// - A tombstone ends without the word of its host, unless the operator declares the host lost (`loseHost`) and so its key ends too.
// - A running container is removed because the database has forgotten it, or because a message was lost or incomplete.
// - A rental ends because a clone of its host reports that the container is missing (`isDoubtful`).
// - A revision is used twice for different lists: the host would take the second one for the first.
// - Environment variables, which may hold secrets, are stored unsealed or sent to another host.
// - A row that cannot be read keeps the other workloads of its host from their turn. It is left out of the list, so its container runs on.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail, messageOf } from '../../../shared/errors.ts';
import { WORKLOADS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { DesiredMessage, ObservedMessage, Revision } from '../../../shared/protocol/link.ts';
import type { DesiredWorkload, ObservedWorkload } from '../../../shared/protocol/workload.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { MachineRow } from '../supply/store.ts';
import type { Supply } from '../supply/supply.ts';
import * as store from './store.ts';

/** Phases in which the host has released the GPUs: the container is stopped and cannot start by itself. */
const LET_GO = new Set<ObservedWorkload['phase']>(['stopped', 'removed', 'missing']);
/** Phases in which nothing is left to remove. */
const NOTHING_LEFT = new Set<ObservedWorkload['phase']>(['removed', 'missing']);
/** Phases in which a host keeps a workload, and possibly its container, until its removal is ordered. */
const KEPT = new Set<ObservedWorkload['phase']>(['starting', 'running', 'failed', 'finishing', 'finished']);

export interface Workloads {
  /**
   * Seals the environment variables of an instance, because they may hold secrets. They are sent in the clear only to the host. Null if there are
   * none.
   */
  sealEnv(instanceId: string, env: Record<string, string>): string | null;
  /** The container should run on the machine from now on. The caller pushes the desired state after its commit. */
  want(tx: Tx, machineId: string, spec: store.WorkloadSpec): Promise<void>;
  /** The container should be removed. Does nothing if it is being removed already. */
  remove(tx: Tx, workloadId: string): Promise<void>;
  /** The host ends the container by itself at this time, whether the host is connected or not. */
  setEnd(tx: Tx, workloadId: string, endsAtMs: number): Promise<void>;
  /** The host sends a job SIGTERM now, as at its limit. It then reports the end and what the job has left. */
  stopJob(tx: Tx, workloadId: string): Promise<void>;
  /** The complete desired state of a machine, as sent over the link. */
  desired(machineId: string): Promise<DesiredMessage>;
  /**
   * Stores what a host reports and calls `onChange` in the same transaction. If this database does not know a workload, or knows it on
   * another machine, only its id is stored. Such ids keep new work away from the host. What the host has reported removed before is removed
   * again. False if a part of the report is ignored for now, because two hosts may share the identity of the machine.
   */
  observe(machineId: string, message: ObservedMessage): Promise<boolean>;
  /**
   * Compares the revision that a host holds with ours. A higher one proves that this database was restored from a backup: a new epoch
   * begins above it, and the answer is true.
   */
  meet(tx: Tx, machineId: string, held: Revision | null): Promise<boolean>;
  /**
   * The operator orders the removal of a container that a host reports and this database does not know. Does nothing if its removal was ordered
   * before.
   * @throws ServiceError `not_found`, `conflict`
   */
  removeUnknown(machineId: string, workloadId: string): Promise<void>;
  /**
   * The operator declares that the host of a machine will never come back with what it ran. No host can confirm its tombstones, so they end now,
   * with the GPUs and the disk that they hold. The key of the host is refused from then on.
   * @throws ServiceError `not_found`, `conflict` while the host is connected, or while a rental on it has not ended
   */
  loseHost(machineId: string, reason: string): Promise<MachineRow>;
}

interface WorkloadsDeps {
  db: Db;
  clock: Clock;
  log: Log;
  sealing: Sealing;
  supply: Supply;
  /** The link of the machine has just replaced another one that was up: two hosts may share its identity. */
  isContested(machineId: string): boolean;
  isUp(machineId: string): boolean;
  /** Sends the desired state to the machine. */
  push(machineId: string): void;
  /** Lets the room above check the owner of the workload again. */
  onChange(tx: Tx, instanceId: string, observed: ObservedWorkload): Promise<void>;
}

export function openWorkloads(deps: WorkloadsDeps): Workloads {
  const { db, clock, log, sealing } = deps;

  return {
    sealEnv: (instanceId, env) =>
      Object.keys(env).length === 0 ? null : sealing.seal(envPlace(instanceId), JSON.stringify(env)),
    want: async (tx, machineId, spec) => {
      const nowMs = clock.now();
      await Promise.all([store.insertWorkload(tx, machineId, spec, nowMs), store.bumpRevision(tx, machineId, nowMs)]);
    },
    remove: async (tx, workloadId) => {
      const row = await store.findWorkload(tx, workloadId);
      if (row === undefined) return;
      // The command and the variables may be large, and lists of workloads read many rows.
      const spec = { ...(row.spec ?? tombstoneOf(workloadId)), ...NOTHING_TO_RUN, instance_id: row.instance_id };
      if (await store.move(tx, workloadId, { from: 'wanted', to: 'removing', nowMs: clock.now(), spec })) {
        await store.bumpRevision(tx, row.machine_id, clock.now());
      }
    },
    setEnd: async (tx, workloadId, endsAtMs) => {
      const row = await store.findWorkload(tx, workloadId);
      if (row?.spec == null) return;
      await store.setSpec(tx, workloadId, { ...row.spec, ends_at_ms: endsAtMs });
      await store.bumpRevision(tx, row.machine_id, clock.now());
    },
    stopJob: async (tx, workloadId) => {
      const row = await store.findWorkload(tx, workloadId);
      if (row?.spec?.job === undefined) return;
      await store.setSpec(tx, workloadId, { ...row.spec, job: { ...row.spec.job, run_ms_max: 0 } });
      await store.bumpRevision(tx, row.machine_id, clock.now());
    },
    desired: async (machineId) => {
      const { rows, ...position } = await store.desiredOf(db.read, machineId);
      const workloads = rows.flatMap((row) => listed(row, machineId, deps));
      return { type: 'desired', ...position, complete: true, now_ms: clock.now(), workloads };
    },
    observe: (machineId, message) => observe(machineId, message, deps),
    meet: async (tx, machineId, held) => {
      const ours = await store.position(tx, machineId);
      if (held === null || held.epoch < ours.epoch || (held.epoch === ours.epoch && held.revision <= ours.revision))
        return false;
      log.error(
        { machine_id: machineId, held, ours },
        'a host holds a newer desired state than this database: it was restored from a backup; a new epoch begins above it',
      );
      await store.setPosition(tx, machineId, { epoch: held.epoch + 1, revision: 0 });
      await deps.supply.setUnknownWorkloads(tx, machineId, null);
      return true;
    },
    removeUnknown: (machineId, workloadId) =>
      db.tx('workloads.remove_unknown', async (tx) => {
        await tx.lock('machine', machineId);
        await removeUnknown(tx, machineId, workloadId, deps);
      }),
    loseHost: async (machineId, reason) => {
      const machine = await db.tx('workloads.lose_host', async (tx) => {
        await tx.lock('machine', machineId);
        return loseHost(tx, machineId, deps);
      });
      log.warn({ machine_id: machineId, reason }, 'the operator has given up the host of a machine');
      return machine;
    },
  };
}

async function loseHost(tx: Tx, machineId: string, { clock, supply, isUp }: WorkloadsDeps): Promise<MachineRow> {
  const facts = await supply.factsOf(tx, machineId);
  if (facts === undefined) return fail('not_found', `There is no machine ${machineId}.`);
  if (facts.machine.public_key === null) return fail('conflict', `The machine ${machineId} has no host.`);
  if (facts.machine.online || isUp(machineId)) {
    return fail(
      'conflict',
      'The host of this machine is connected, so it is not lost. It removes its containers itself.',
    );
  }
  const rows = await store.liveOn(tx, machineId);
  const going = rows.filter(({ state }) => state === 'wanted').map((row) => row.instance_id);
  if (going.length > 0) {
    return fail(
      'conflict',
      `Not ended on this machine yet: ${going.join(', ')}. End instances first (admin instance end), or wait until they are given up.`,
    );
  }
  const nowMs = clock.now();
  for (const { id } of rows) await store.move(tx, id, { from: 'removing', to: 'gone', nowMs });
  await store.bumpRevision(tx, machineId, nowMs);
  return supply.forgetHost(tx, machineId);
}

/** A removal needs only the id. A workload that should run is left out if it cannot be read, and its host leaves its container alone. */
function listed(row: store.ListedRow, machineId: string, { sealing, log }: WorkloadsDeps): DesiredWorkload[] {
  const spec = row.spec ?? tombstoneOf(row.id);
  const { sealed_env: sealedEnv, ...plain } = spec;
  if (row.state !== 'wanted') return [{ ...plain, env: {}, desired: 'removed' }];
  try {
    if (row.spec === null) throw new Error('its spec does not fit the schema');
    const env = sealedEnv === null ? {} : openEnv(spec.instance_id, sealedEnv, sealing);
    return [{ ...plain, env, desired: 'running' }];
  } catch (error) {
    const fields = { machine_id: machineId, workload_id: row.id, reason: messageOf(error) };
    log.error(
      fields,
      'a workload cannot be read and is left out of the desired state; its container runs on, and can only be removed',
    );
    return [];
  }
}

function openEnv(instanceId: string, sealed: string, sealing: Sealing): Record<string, string> {
  return z.record(z.string(), z.string()).parse(JSON.parse(sealing.open(envPlace(instanceId), sealed)));
}

function envPlace(instanceId: string): string {
  return `env/${instanceId}`;
}

async function removeUnknown(tx: Tx, machineId: string, workloadId: string, deps: WorkloadsDeps): Promise<void> {
  if (!(await deps.supply.isUnknownWorkload(tx, machineId, workloadId))) {
    return fail('not_found', `Machine ${machineId} reports no unknown workload ${workloadId}.`);
  }
  const known = await store.findWorkload(tx, workloadId);
  if (known?.machine_id === machineId && known.state !== 'wanted') return;
  if (known !== undefined) {
    return fail('conflict', `Workload ${workloadId} belongs elsewhere: remove its container on the host.`);
  }
  if (await isFull(tx, machineId)) {
    return fail('conflict', `Machine ${machineId} has too many containers to remove. Try again in some minutes.`);
  }
  const nowMs = deps.clock.now();
  await store.insertWorkload(tx, machineId, tombstoneOf(workloadId), nowMs);
  await store.move(tx, workloadId, { from: 'wanted', to: 'removing', nowMs });
  await store.bumpRevision(tx, machineId, nowMs);
}

async function isFull(tx: Tx, machineId: string): Promise<boolean> {
  return (await store.countLive(tx, machineId)) >= WORKLOADS_PER_MACHINE_MAX;
}

/** A removal needs no command and no variables. */
const NOTHING_TO_RUN = { command: { entrypoint: null, cmd: null }, sealed_env: null };

/** The minimum that is needed to remove a container. Its owner is unknown. */
function tombstoneOf(workloadId: string): store.WorkloadSpec {
  return {
    workload_id: workloadId,
    instance_id: workloadId,
    image: 'unknown',
    pull_login: false,
    ...NOTHING_TO_RUN,
    gpu_uuids: [],
    disk_gb: null,
    ends_at_ms: null,
  };
}

async function observe(machineId: string, message: ObservedMessage, deps: WorkloadsDeps): Promise<boolean> {
  const { db, supply } = deps;
  const ids = message.workloads.map((observed) => observed.workload_id);
  const instanceIds = await store.instancesOf(db.read, ids);
  const { isTaken, again } = await db.tx('workloads.observe', async (tx) => {
    await tx.lock('instance', ...instanceIds);
    await tx.lock('machine', machineId);
    const unknown = [...message.unknown_workload_ids];
    let isTaken = true;
    let isUnreadable = false;
    for (const observed of message.workloads) {
      const effect = await observeOne(tx, machineId, observed, deps);
      if (effect === 'doubtful') isTaken = false;
      if (effect === 'unreadable') isUnreadable = true;
      if (effect === 'unknown' && KEPT.has(observed.phase)) unknown.push(observed.workload_id);
    }
    // The host ignores a list with a revision that it holds. So the list that names the workload again needs a higher one.
    if (isUnreadable) await store.bumpRevision(tx, machineId, deps.clock.now());
    const again = new Set(await removeAgain(tx, machineId, unknown, deps));
    await supply.setUnknownWorkloads(tx, machineId, unknown.filter((id) => !again.has(id)).toSorted());
    return { isTaken, again };
  });
  if (again.size > 0) deps.push(machineId);
  return isTaken;
}

/**
 * A host may take back its word that nothing is left: a power cut has restored its older records, or a copy of it had spoken. The removal of such
 * workloads was ordered, so their tombstones return. Returns those ids.
 */
async function removeAgain(
  tx: Tx,
  machineId: string,
  unknown: readonly string[],
  { clock, log }: WorkloadsDeps,
): Promise<string[]> {
  const gone = await store.goneAmong(tx, machineId, unknown);
  if (gone.length === 0 || (await isFull(tx, machineId))) return [];
  const nowMs = clock.now();
  for (const id of gone) await store.move(tx, id, { from: 'gone', to: 'removing', nowMs });
  await store.bumpRevision(tx, machineId, nowMs);
  log.warn(
    { machine_id: machineId, workload_ids: gone },
    'a host reports workloads again that it had removed; they are removed again',
  );
  return gone;
}

/**
 * Stores what the host reports about one workload. `unknown`: this machine has no such workload. `doubtful`: the report is ignored for now.
 * `unreadable`: it is stored, but the workload is not in the desired list.
 */
async function observeOne(
  tx: Tx,
  machineId: string,
  observed: ObservedWorkload,
  deps: WorkloadsDeps,
): Promise<'taken' | 'unknown' | 'doubtful' | 'unreadable'> {
  const row = await store.findWorkload(tx, observed.workload_id);
  if (row === undefined || row.machine_id !== machineId || row.state === 'gone') return 'unknown';
  if (await isDoubtful(tx, row, observed, deps)) return 'doubtful';
  const now = deps.clock.now();
  if (JSON.stringify(row.observed) !== JSON.stringify(observed)) {
    await store.setObserved(tx, row.id, observed, now);
    await deps.onChange(tx, row.instance_id, observed);
  }
  if (row.state !== 'removing') return row.spec === null ? 'unreadable' : 'taken';
  const isNothingLeft = NOTHING_LEFT.has(observed.phase);
  if (LET_GO.has(observed.phase)) await deps.supply.release(tx, row.id, !isNothingLeft);
  if (isNothingLeft) {
    await store.move(tx, row.id, { from: 'removing', to: 'gone', nowMs: now });
    await store.bumpRevision(tx, machineId, now);
  }
  return 'taken';
}

/**
 * If two hosts share one identity, only one of them has the container, and the other one reports it as missing. So a workload that ran
 * keeps counting as running and keeps its GPUs until one host is left. Meanwhile the probes of its endpoint show whether it still works.
 * While the link is contested (nobody knows yet whether there are two hosts), the report is ignored; the host repeats it soon.
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
