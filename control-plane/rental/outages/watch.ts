// Probes the SSH path of every running instance, and acts on the verdict: repairs, confirms and ends outages.
//
// The table `probes` has one row for each instance that runs or is unreachable. A row is written when its series changes. While all probes
// of an instance are good, nothing changes: wells.ts keeps the time of its next probe, and of its last good one, in memory. The top of wells.ts
// explains what the next process knows if this one is killed.
//
//   tick (every second) ──► due instances: those of wells.ts, and rows whose `next_ms` has come; at most 1000 of each
//                             └─► 25 of each at once, for 10 s ──► probe ──► good as before: note it in memory
//                                                                       └──► else: afterProbe ──► verdict ──► one transaction
//
// Both kinds have workers of their own, because a large outage has thousands of rows. If they came first, healthy instances of others would
// never be probed, and one that dies would be charged for ever.
//
// One probe, step by step (`probe` below):
//   1. Log in at the SSH server of the holder, over a stream that only probes use (probe.ts). This happens outside of any transaction and
//      takes at most 5 s.
//   2. If it is good, as the one before, note it in memory. Nothing else happens.
//   3. Otherwise read the row, add the result to its series, and ask verdict.ts what it means.
//   4. Write the row and carry out the verdict in one transaction. The rules of the verdict, with an example, are at the top of verdict.ts.
//
// When the next probe is due:
//   30 s +- 20 %   All is well.
//   2 s            The probe failed, or the instance is unreachable and has one good probe of the two that it needs.
//   10 s           It has failed for more than 2 minutes.
//   at once        The link of the machine came, went, missed a ping or answers again (`onLife`); the host reported something about the
//                  holder (`onHolder`); or another machine has just failed (`hastenOthers`).
//   within 30 s    The process has just started.
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
import type { WorkloadLife } from '../../fleet/link/lives.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import type { Verdicts } from '../instances/instances.ts';
import type { Quiet } from '../instances/quiet.ts';
import { findRental, type RentalRow } from '../instances/store.ts';
import type { ProbeResult, Probes } from '../instances/steps.ts';
import { clockSteps, storedGoodSinceMs } from './own-outages.ts';
import { openProbeHours, type ProbeHours } from './probe-hours.ts';
import { evidenceOf, seriesOf } from './store.ts';
import * as store from './store.ts';
import {
  afterProbe,
  ALARMED_MAX,
  failsTogether,
  type FleetView,
  PROBE_PERIOD_MS,
  reprobeMs,
  type Series,
  SETTLED_MS,
  type Standing,
  type Verdict,
  verdict,
  WELL,
} from './verdict.ts';
import { openWells, TIMED_IN_MEMORY, type Wells } from './wells.ts';

/** Workers for the probes that are timed in rows, and as many for those timed in memory. Each probe costs about 3 ms of CPU on either side. */
const PROBES_AT_ONCE_MAX = 25;
/** Due probes of each kind beyond these wait for the next tick, a second later. */
const PROBES_PER_TICK_MAX = 1000;
/** A tick begins no probe after this time. The next tick begins with those that wait longest. */
const TICK_MS_MAX = 10_000;

/** If the loop has not run for longer, another process may have probed the instances since. */
const TAKE_OVER_MS = 10_000;
/** How often, and from which age on, `last_reachable_ms` of instances with good probes is written. So it is at most 10 minutes old. */
const STORE_PERIOD_MS = 30_000;
const STORE_AFTER_MS = 520_000;
/** How often the counts of probes are written. */
const STORE_HOURS_MS = 600_000;
/** Limit of rows in one statement. */
const ROWS_PER_WRITE = 200;
const ROWS_PER_READ = 1000;

export interface Watch {
  /** Probes every instance that is due. */
  run(signal: AbortSignal): Promise<void>;
  /** Writes what the rows do not have yet. */
  store(): Promise<void>;
  /** All instances whose probes are timed in memory had a good probe then or later; null if there is none. */
  goodSinceMs(): number | null;
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
  quiet: Quiet;
  onProbesDue(): void;
  onEndpointsChanged(): void;
}

export function openWatch(deps: WatchDeps): Watch {
  const { db, clock } = deps;
  const wells = openWells();
  const hours = openProbeHours(deps);
  const fleetView = openFleetView(deps);
  let ranMs = -Infinity;
  let storedMs = clock.monotonicMs();

  /** Only probes ask about the fleet. An instance that fails is due every few seconds, so while many fail the view is never old. */
  const probeAll = async (
    inRows: Map<string, store.ProbeRow>,
    inMemory: string[],
    signal: AbortSignal,
  ): Promise<void> => {
    const fleet = await fleetView();
    const untilMs = clock.monotonicMs() + TICK_MS_MAX;
    const worker = async (due: string[]): Promise<void> => {
      while (!signal.aborted && clock.monotonicMs() < untilMs) {
        const id = due.shift();
        if (id === undefined) return;
        await probeOrLog(id, inRows.get(id), fleet, { ...deps, wells, hours });
      }
    };
    const queues = [[...inRows.keys()], inMemory.slice(0, PROBES_PER_TICK_MAX)];
    await Promise.all(queues.flatMap((due) => Array.from({ length: PROBES_AT_ONCE_MAX }, () => worker(due))));
  };

  return {
    run: async (signal) => {
      if (clock.monotonicMs() - ranMs > TAKE_OVER_MS) await takeOver(wells, deps);
      const nowMs = clock.now();
      const rows = await store.dueProbes(db.read, nowMs, PROBES_PER_TICK_MAX);
      const inRows = new Map(rows.map((row) => [row.instance_id, row]));
      const inMemory = wells.due(nowMs).filter((id) => !inRows.has(id));
      if (rows.length + inMemory.length > 0) await probeAll(inRows, inMemory, signal);
      if (clock.monotonicMs() - storedMs >= STORE_PERIOD_MS) {
        storedMs = clock.monotonicMs();
        await storeReachable(wells.behind(STORE_AFTER_MS), deps);
        await hours.store(STORE_HOURS_MS);
      }
      ranMs = clock.monotonicMs();
    },
    store: async () => {
      await storeReachable(wells.behind(1), deps);
      await hours.store(0);
    },
    goodSinceMs: wells.goodSinceMs,
    onLife: (machineId) => {
      wells.hastenMachine(machineId, clock.now());
      deps.onProbesDue();
    },
    onHolder: async (machineId, { workload_id: workloadId, state, detail }) => {
      const workload = await findWorkload(db.read, workloadId);
      if (workload === undefined) return;
      const nowMs = clock.now();
      const failedMs = state === 'silent' ? nowMs : null;
      const note = { instanceId: workload.instance_id, machineId, failedMs, detail, nowMs };
      await db.tx('outages.holder', (tx) => store.noteHost(tx, note));
      deps.onProbesDue();
    },
  };
}

/** What verdicts need to know about the whole fleet. */
function openFleetView({ db, clock, log, quiet }: WatchDeps): () => Promise<FleetView> {
  let togetherSinceMs: number | null = null;
  let togetherUntilMs: number | null = null;
  return async () => {
    // The count of all machines reads all rows, so it is made only if something fails.
    const fails = (await store.countFailing(db.read)) > 0;
    const { machines, failing } = fails ? await store.countMachines(db.read) : { machines: 0, failing: 0 };
    const together = failsTogether(machines, failing);
    if (together && togetherSinceMs === null) {
      log.error({ machines, failing }, 'many machines fail at once: verdicts are held; check our own network first');
    }
    togetherSinceMs = together ? (togetherSinceMs ?? clock.now()) : null;
    if (together) togetherUntilMs = clock.now();
    return { togetherSinceMs, togetherUntilMs, quiet, steps: fails ? await clockSteps(db.read) : [] };
  };
}

/** Continues where the process that has probed these instances before ended. The first probes are spread over one period. */
async function takeOver(wells: Wells, { db, clock, rng }: WatchDeps): Promise<void> {
  const goodMs = await storedGoodSinceMs(db.read);
  const rows: { id: string; machineId: string }[] = [];
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const page: store.TimedRow[] = await store.timedInMemory(db.read, afterId, ROWS_PER_READ);
    rows.push(...page.map((row) => ({ id: row.instance_id, machineId: row.machine_id })));
    afterId = page.at(-1)?.instance_id;
  }
  const nextOf = (): number => clock.now() + Math.round(rng.float() * PROBE_PERIOD_MS);
  wells.takeOver(rows, { goodMs, nextOf });
}

async function storeReachable(
  rows: readonly { id: string; goodMs: number }[],
  { db, instances }: Pick<WatchDeps, 'db' | 'instances'>,
): Promise<void> {
  for (let i = 0; i < rows.length; i += ROWS_PER_WRITE) {
    const piece = rows.slice(i, i + ROWS_PER_WRITE);
    await db.tx('outages.reachable', async (tx) => {
      await tx.lock('instance', ...piece.map(({ id }) => id));
      await instances.noteReachable(tx, piece);
    });
  }
}

type ProbeDeps = WatchDeps & { wells: Wells; hours: ProbeHours };

/** `row` is given if the row itself says that the probe is due. */
async function probeOrLog(
  instanceId: string,
  row: store.ProbeRow | undefined,
  fleet: FleetView,
  deps: ProbeDeps,
): Promise<void> {
  const { db, wells } = deps;
  try {
    const rental = await findRental(db.read, instanceId);
    if (rental?.status === 'running' || rental?.status === 'unreachable') return await probe(rental, row, fleet, deps);
    wells.drop(instanceId);
    await db.tx('outages.forget_probe', (tx) => store.forgetProbe(tx, instanceId));
  } catch (error) {
    const fields = { instance_id: instanceId, reason: messageOf(error) };
    deps.log.error(fields, 'a probe of an SSH endpoint failed on our side; it is repeated');
  }
}

async function probe(
  rental: RentalRow,
  row: store.ProbeRow | undefined,
  fleet: FleetView,
  deps: ProbeDeps,
): Promise<void> {
  const { clock, wells } = deps;
  const startMs = clock.now();
  const result = await deps.probes.holder(rental.id);
  const endMs = clock.now();
  if (rental.machine_id !== null) deps.hours.count({ id: rental.id, machineId: rental.machine_id }, result.ok);
  if (result.ok && row === undefined && wells.has(rental.id) && rental.status === 'running') {
    return wells.noteGood(rental.id, {
      machineId: rental.machine_id ?? '',
      endMs,
      nextMs: endMs + spreadMs(PROBE_PERIOD_MS, deps.rng),
      storedMs: rental.last_reachable_ms ?? 0,
    });
  }
  const before = row ?? (await store.findProbe(deps.db.read, rental.id));
  if (before === undefined) return wells.drop(rental.id);
  await judge({ rental, before, result, startMs, endMs }, fleet, deps);
}

interface Probed {
  rental: RentalRow;
  before: store.ProbeRow;
  result: ProbeResult;
  startMs: number;
  endMs: number;
}

/** What a probe means, and what is stored of it. */
interface Judged {
  decided: Verdict;
  /** The probes of the rental since the last change, this one included. */
  series: Series;
  after: store.ProbeRow;
  /** The last good probe. */
  reachedMs: number;
}

/** Asks what the result of a probe means, and carries that out. */
async function judge(probed: Probed, fleet: FleetView, deps: ProbeDeps): Promise<void> {
  const { rental, before, result, startMs, endMs } = probed;
  const { link, wells } = deps;
  const workloadId = rental.workload_id ?? '';
  const life = link.lifeOf(before.machine_id, workloadId);
  const goodMs = Math.max(wells.goodMs(rental.id), rental.last_reachable_ms ?? 0);
  const lifeMs = Math.max(life.lastMs ?? 0, goodMs);
  const facts = { ok: result.ok, startMs, endMs, lifeMs, hostFailedMs: before.host_failed_ms };
  const series = afterProbe(seriesOf(before), facts);
  const decided = verdict(series, standingOf(life, probed), fleet);
  const isRepaired = decided === 'repair' && link.repair(before.machine_id, workloadId);

  const wasOut = rental.unreachable_since_ms !== null || series.isHeld;
  const isWell = result.ok && (!wasOut || decided === 'recover' || decided === 'make good');
  const isHeld = decided === 'hold' || (series.isHeld && decided !== 'confirm');
  const after = rowAfter(probed, { ...series, isHeld }, { isWell, isRepaired });
  // The row may say TIMED_IN_MEMORY only once memory has the instance: see wells.ts.
  if (isWell) {
    const nextMs = endMs + spreadMs(PROBE_PERIOD_MS, deps.rng);
    wells.noteGood(rental.id, { machineId: before.machine_id, endMs, nextMs, storedMs: endMs });
  }
  await storeVerdict(probed, { decided, series, after, reachedMs: result.ok ? endMs : goodMs }, deps);
  // The row now has everything that matters, so memory need not keep the instance.
  if (!isWell) wells.drop(rental.id);
  if (series.failures === 1) wells.hastenOthers(before.machine_id, endMs, ALARMED_MAX);

  const fields = { instance_id: rental.id, machine_id: rental.machine_id, verdict: decided, detail: after.last_detail };
  if (isRepaired) deps.log.warn(fields, 'the SSH server of a workload does not answer: its host replaces the holder');
  if (decided === 'as it is' || decided === 'repair') return;
  deps.log.warn(fields, VERDICT_WORDS[decided]);
  // If only the holder has failed, the host is connected. It removes the container now, and its GPUs become free.
  if (decided === 'give up') link.push(before.machine_id);
  deps.onEndpointsChanged();
}

function standingOf({ upSinceMs, isAnswering }: WorkloadLife, { rental, startMs, endMs }: Probed): Standing {
  const isSettled = upSinceMs !== null && startMs - upSinceMs >= SETTLED_MS;
  return { isAnswering, isSettled, unreachableSinceMs: rental.unreachable_since_ms, nowMs: endMs };
}

/** Writes the row and carries out the verdict, in one transaction. */
async function storeVerdict(
  { rental, before, startMs, endMs }: Probed,
  { decided, series, after, reachedMs }: Judged,
  { db, instances }: ProbeDeps,
): Promise<void> {
  const sinceMs = series.lifeMs ?? startMs;
  const recoveredMs = series.firstSuccessMs ?? endMs;
  await db.tx('outages.probed', async (tx) => {
    await instances.lock(tx, rental);
    await store.writeProbe(tx, after);
    if (reachedMs > (rental.last_reachable_ms ?? 0)) {
      await instances.noteReachable(tx, [{ id: rental.id, goodMs: reachedMs }]);
    }
    if (decided === 'confirm') await instances.confirmOutage(tx, rental, { sinceMs, evidence: evidenceOf(after) });
    if (decided === 'recover') await instances.endOutage(tx, rental, recoveredMs);
    if (decided === 'make good') {
      // The good probe has ended the evidence in `after`.
      await instances.makeGood(tx, rental, { sinceMs, untilMs: recoveredMs, evidence: evidenceOf(before) });
    }
    if (decided === 'give up') {
      await instances.giveUp(tx, rental, `The host could not be reached for too long (${after.last_detail}).`);
    }
  });
}

function rowAfter(
  { before, result, endMs }: Probed,
  series: Series,
  { isWell, isRepaired }: { isWell: boolean; isRepaired: boolean },
): store.ProbeRow {
  const { firstSuccessMs, successes } = series;
  const { firstFailureMs, failures, lifeMs, repairMs, isHeld } = isWell ? WELL : series;
  return {
    ...evidenceAfter(before, result, isHeld),
    instance_id: before.instance_id,
    machine_id: before.machine_id,
    next_ms: isWell ? TIMED_IN_MEMORY : reprobeMs(series, endMs),
    first_failure_ms: firstFailureMs,
    failures,
    successes,
    life_ms: lifeMs,
    first_success_ms: firstSuccessMs,
    repair_ms: isRepaired ? endMs : repairMs,
    held: isHeld,
  };
}

/** What a verdict means, for the log. */
const VERDICT_WORDS: Readonly<Record<Exclude<Verdict, 'as it is' | 'repair'>, string>> = {
  hold: 'an instance is out of reach, but so are many machines: no outage is confirmed for now',
  confirm: 'an instance is out of reach: it is not charged until it can be reached again',
  recover: 'an instance can be reached again: it is charged from its first good probe on',
  'make good': 'an instance was out of reach while verdicts were held: it is not charged for that time',
  'give up': 'an instance was out of reach for too long: it has failed, and its host removes the container',
};

const NO_EVIDENCE = { last_leg: null, last_detail: null, host_failed_ms: null, host_detail: null };

/** A good probe ends the evidence, but a held outage keeps it until it is made good. */
function evidenceAfter(
  before: store.ProbeRow,
  result: ProbeResult,
  isHeld: boolean,
): Pick<store.ProbeRow, keyof typeof NO_EVIDENCE> {
  const { last_leg, last_detail, host_failed_ms, host_detail } = before;
  if (!result.ok) return { last_leg: result.leg, last_detail: result.detail, host_failed_ms, host_detail };
  return isHeld ? { last_leg, last_detail, host_failed_ms, host_detail } : NO_EVIDENCE;
}
