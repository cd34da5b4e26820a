// Probes the SSH path of every running instance, and acts on the verdict: repairs, confirms and ends outages.
//
// The table `probes` has one row for each instance that runs or is unreachable. `next_ms` says when its next probe is due. Nothing is kept
// in memory but the moment at which many machines began to fail together. So the control plane may be killed at any time.
//
//   tick (every second) ──► due rows, oldest first, at most 1000
//                             └─► 50 at once ──► probe ──► afterProbe ──► verdict ──► one transaction
//
// One probe, step by step (`probe` below):
//   1. Log in at the SSH server of the holder, over a stream that only probes use (probe.ts). This happens outside of any transaction and
//      takes at most 5 s.
//   2. Add the result to the series of the instance, and ask verdict.ts what it means.
//   3. Write the row and carry out the verdict in one transaction. The rules of the verdict, with an example, are at the top of verdict.ts.
//
// When the next probe is due:
//   30 s +- 20 %   All is well.
//   2 s            The probe failed, or the instance is unreachable and has one good probe of the two that it needs.
//   at once        The link of the machine came, went, missed a ping or answers again (`onLife`); the host reported something about the
//                  holder (`onHolder`); or another machine has just failed (`hastenOthers`).
// Example with 500 instances and no failure: about 17 probes a second, each costs about 3 ms of CPU.
//
// Messages of a host only make us probe sooner. They never confirm an outage by themselves, because the host would then decide about
// its own pay. What must never happen: a probe inside a transaction; an error on our side that counts as a failure of the host.
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
import { evidenceOf, seriesOf } from './store.ts';
import * as store from './store.ts';
import {
  afterProbe,
  ALARMED_MAX,
  failsTogether,
  type FleetView,
  PROBE_PERIOD_MS,
  REPROBE_MS,
  SETTLED_MS,
  verdict,
} from './verdict.ts';

/** Each probe costs about 3 ms of CPU on either side. */
const PROBES_AT_ONCE_MAX = 50;
/** Due rows beyond these wait for the next tick, a second later. */
const PROBES_PER_TICK_MAX = 1000;

export interface Watch {
  /** Probes every instance that is due. */
  run(signal: AbortSignal): Promise<void>;
  /** Probes the instances of a machine at once: its link came or went, or a ping was missed or is answered again. */
  onLife(machineId: string): void;
  /** Notes what a host reported about the holder of a workload, and probes at once. */
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
  onProbesDue(): void;
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
      log.error({ machines, failing }, 'many machines fail at once: verdicts are held; check our own network first');
    }
    togetherSinceMs = together ? (togetherSinceMs ?? clock.now()) : null;
    return { togetherSinceMs, startedMs };
  };

  return {
    run: async (signal) => {
      const fleet = await fleetView();
      const due = await store.dueProbes(db.read, clock.now(), PROBES_PER_TICK_MAX);
      const worker = async (): Promise<void> => {
        for (let row = due.shift(); row !== undefined && !signal.aborted; row = due.shift()) {
          await probeOrLog(row, fleet, deps);
        }
      };
      await Promise.all(Array.from({ length: PROBES_AT_ONCE_MAX }, worker));
    },
    onLife: (machineId) => {
      db.tx('edge.hasten', (tx) => store.hastenMachine(tx, machineId, clock.now())).then(
        deps.onProbesDue,
        (error: unknown) => {
          // The probes still come, at their regular time.
          log.error(
            { machine_id: machineId, reason: messageOf(error) },
            'the probes of a machine could not be made due at once',
          );
        },
      );
    },
    onHolder: async (machineId, { workload_id: workloadId, state, detail }) => {
      const workload = await findWorkload(db.read, workloadId);
      if (workload === undefined) return;
      const nowMs = clock.now();
      const failedMs = state === 'silent' ? nowMs : null;
      const note = { instanceId: workload.instance_id, machineId, failedMs, detail, nowMs };
      await db.tx('edge.holder', (tx) => store.noteHost(tx, note));
      deps.onProbesDue();
    },
  };
}

async function probeOrLog(before: store.ProbeRow, fleet: FleetView, deps: WatchDeps): Promise<void> {
  try {
    const rental = await findInstance(deps.db.read, before.instance_id);
    if (rental?.status === 'running' || rental?.status === 'unreachable')
      return await probe(rental, before, fleet, deps);
    await deps.db.tx('edge.forget', (tx) => store.forgetProbe(tx, before.instance_id));
  } catch (error) {
    const told = { instance_id: before.instance_id, reason: messageOf(error) };
    deps.log.error(told, 'a probe of an SSH endpoint failed on our side; it is repeated');
  }
}

async function probe(rental: InstanceRow, before: store.ProbeRow, fleet: FleetView, deps: WatchDeps): Promise<void> {
  const { clock, instances, link } = deps;
  const workloadId = rental.workload_id ?? '';
  const startMs = clock.now();
  const result = await deps.probes.holder(rental.id);
  const endMs = clock.now();
  const life = link.lifeOf(before.machine_id, workloadId);
  const lifeMs = Math.max(life.lastMs ?? 0, rental.last_reachable_ms ?? 0);
  const facts = { ok: result.ok, startMs, endMs, lifeMs, hostFailedMs: before.host_failed_ms };
  const series = afterProbe(seriesOf(before), facts);
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
    await instances.lock(tx, rental);
    await store.writeProbe(tx, row);
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
  // Changes the rows of other instances, so it waits for nobody while it holds this one.
  if (series.failures === 1)
    await deps.db.tx('edge.hasten_others', (tx) => store.hastenOthers(tx, row.machine_id, endMs, ALARMED_MAX));
  const told = { instance_id: rental.id, machine_id: rental.machine_id, verdict: decided, detail: row.last_detail };
  if (isRepaired) deps.log.warn(told, 'the SSH server of a workload does not answer: its host replaces the holder');
  if (decided === 'as it is' || decided === 'repair') return;
  deps.log.warn(told, 'the verdict on an SSH path changed');
  // If only the holder has failed, the host is connected. It removes the container now, and its GPUs become free.
  if (decided === 'give up') link.push(before.machine_id);
  deps.onEndpointsChanged();
}
