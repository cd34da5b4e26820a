// Watches the SSH path of every running rental, confirms instances, ends them or the rental, and keeps the evidence.
import { messageOf } from '../../../shared/errors.ts';
import { spreadMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { HolderMessage } from '../../../shared/protocol/link.ts';
import type { Rng } from '../../../shared/rng.ts';
import type { Db } from '../../base/db/db.ts';
import type { Link } from '../../fleet/link/link.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import type { Verdicts } from '../instances/instances.ts';
import { findInstance, type InstanceRow } from '../instances/store.ts';
import type { Probes } from '../instances/steps.ts';
import { evidenceOf, seriesOf } from './down-since.ts';
import * as store from './store.ts';
import {
  afterLook,
  ALARMED_MAX,
  failsTogether,
  type FleetView,
  PROBE_PERIOD_MS,
  REPROBE_MS,
  SETTLED_MS,
  verdict,
} from './verdict.ts';

/** Looks at once: each costs about 3 ms of CPU on either side. */
const LOOKS_AT_ONCE_MAX = 50;
/** Of one run; the rest waits for the next, a second later. */
const LOOKS_PER_RUN_MAX = 1000;

export interface Watch {
  /** Looks at every rental that is due. */
  run(signal: AbortSignal): Promise<void>;
  /** The link of a machine came or went, or a ping was missed or is answered again: what runs there is looked at now. */
  onLife(machineId: string): void;
  /** A host has seen something about the holder of a workload. */
  onHolder(machineId: string, message: HolderMessage): Promise<void>;
}

interface WatchDeps {
  db: Db;
  clock: Clock;
  log: Log;
  rng: Rng;
  probes: Probes;
  link: Pick<Link, 'lifeOf' | 'repair' | 'push'>;
  instances: Verdicts;
  onLooksDue(): void;
  onEndpointsChanged(): void;
}

export function openWatch(deps: WatchDeps): Watch {
  const { db, clock, log } = deps;
  const startedMs = clock.now();
  let togetherSinceMs: number | null = null;

  const fleetView = async (): Promise<FleetView> => {
    const { machines, failing } = await store.countMachines(db.read);
    const together = failsTogether(machines, failing);
    if (together && togetherSinceMs === null) {
      log.error({ machines, failing }, 'many machines fail at once: verdicts are held, look at our own network first');
    }
    togetherSinceMs = together ? (togetherSinceMs ?? clock.now()) : null;
    return { togetherSinceMs, startedMs };
  };

  return {
    run: async (signal) => {
      const fleet = await fleetView();
      const due = await store.dueProbes(db.read, clock.now(), LOOKS_PER_RUN_MAX);
      const looker = async (): Promise<void> => {
        for (let row = due.shift(); row !== undefined && !signal.aborted; row = due.shift()) {
          await lookOrLog(row, fleet, deps);
        }
      };
      await Promise.all(Array.from({ length: LOOKS_AT_ONCE_MAX }, looker));
    },
    onLife: (machineId) => {
      db.tx('edge.hasten', (tx) => store.hastenMachine(tx, machineId, clock.now())).then(
        deps.onLooksDue,
        (error: unknown) => {
          // Its looks come by themselves, only later.
          log.error({ machine_id: machineId, reason: messageOf(error) }, 'looks at a machine could not be hastened');
        },
      );
    },
    onHolder: async (machineId, { workload_id: workloadId, state, detail }) => {
      await db.tx('edge.holder', async (tx) => {
        const workload = await findWorkload(tx, workloadId);
        if (workload === undefined) return;
        const nowMs = clock.now();
        const failedMs = state === 'silent' ? nowMs : null;
        await store.noteHost(tx, { instanceId: workload.instance_id, machineId, failedMs, detail, nowMs });
      });
      deps.onLooksDue();
    },
  };
}

async function lookOrLog(before: store.ProbeRow, fleet: FleetView, deps: WatchDeps): Promise<void> {
  try {
    const rental = await findInstance(deps.db.read, before.instance_id);
    if (rental?.status === 'running' || rental?.status === 'unreachable')
      return await look(rental, before, fleet, deps);
    await deps.db.tx('edge.forget', (tx) => store.forgetProbe(tx, before.instance_id));
  } catch (error) {
    const told = { instance_id: before.instance_id, reason: messageOf(error) };
    deps.log.error(told, 'a look at an SSH endpoint failed on our side; it is repeated');
  }
}

async function look(rental: InstanceRow, before: store.ProbeRow, fleet: FleetView, deps: WatchDeps): Promise<void> {
  const { clock, instances, link } = deps;
  const workloadId = rental.workload_id ?? '';
  const startMs = clock.now();
  const result = await deps.probes.holder(rental.id);
  const endMs = clock.now();
  const life = link.lifeOf(before.machine_id, workloadId);
  const lifeMs = Math.max(life.lastMs ?? 0, rental.last_reachable_ms ?? 0);
  const facts = { ok: result.ok, startMs, endMs, lifeMs, hostFailedMs: before.host_failed_ms };
  const series = afterLook(seriesOf(before), facts);
  const isSettled = life.upSinceMs !== null && startMs - life.upSinceMs >= SETTLED_MS;
  const { isAnswering } = life;
  const standing = { isAnswering, isSettled, unreachableSinceMs: rental.unreachable_since_ms, nowMs: endMs };
  const decided = verdict(series, standing, fleet);
  const isRepaired = decided === 'repair' && link.repair(before.machine_id, workloadId);
  const settling = !result.ok || (rental.unreachable_since_ms !== null && decided === 'as it is');
  const row: store.ProbeRow = {
    instance_id: rental.id,
    machine_id: before.machine_id,
    next_ms: endMs + (settling ? REPROBE_MS : spreadMs(PROBE_PERIOD_MS, deps.rng)),
    first_failure_ms: series.firstFailureMs,
    failures: series.failures,
    successes: series.successes,
    last_leg: result.ok ? null : result.leg,
    last_detail: result.ok ? null : result.detail,
    life_ms: series.lifeMs,
    first_success_ms: series.firstSuccessMs,
    repair_ms: isRepaired ? endMs : series.repairMs,
    host_failed_ms: result.ok ? null : before.host_failed_ms,
    host_detail: result.ok ? null : before.host_detail,
  };
  await deps.db.tx('edge.looked', async (tx) => {
    await store.writeProbe(tx, row);
    if (series.failures === 1) await store.hastenOthers(tx, row.machine_id, endMs, ALARMED_MAX);
    if (result.ok) await instances.noteReachable(tx, rental, endMs);
    if (decided === 'confirm') {
      const outage = { sinceMs: series.lifeMs ?? startMs, evidence: evidenceOf(row) };
      await instances.confirmOutage(tx, rental, outage);
    }
    if (decided === 'recover') await instances.endOutage(tx, rental, series.firstSuccessMs ?? endMs);
    if (decided === 'give up') {
      await instances.giveUp(tx, rental, `The host could not be reached for too long (${row.last_detail}).`);
    }
  });
  const told = { instance_id: rental.id, machine_id: rental.machine_id, verdict: decided, detail: row.last_detail };
  if (isRepaired) deps.log.warn(told, 'the SSH server of a workload does not answer: its host replaces the holder');
  if (decided === 'as it is' || decided === 'repair') return;
  deps.log.warn(told, 'the verdict on an SSH path changed');
  // If only the holder has failed, the host is connected. It removes the container now, and its GPUs become free.
  if (decided === 'give up') link.push(before.machine_id);
  deps.onEndpointsChanged();
}
