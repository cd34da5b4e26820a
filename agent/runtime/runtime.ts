// The agent's reconciler: makes the containers of this machine match the desired state that the control plane has sent.
//
// One loop does all the work. Each tick gathers facts, plans, and begins the steps that are due:
//
//     desired.json ──┐
//     records       ─┤                                      ┌─> createWork().begin(step) ─> engine, holders, records
//     engine.list() ─┼─> gatherFacts() ─> plan(facts) ──────┤      (in the background; a nudge when it ends)
//     holders, pulls ┘                                      └─> onChange() ─> observed() ─> control plane
//
// The loop ticks every 5 s, and at once after a new desired state, a finished step, a pull's progress or a change of a holder.
// A tick waits for no step. Steps of different workloads run in parallel, because stopping one container must not delay the
// start of another. A workload has at most one step at a time (its key in `busy` is the workload id). Its holder has one more
// (key `holder <id>`), because a holder can be replaced while the container goes on. A workload also fails beside a step that hangs
// in the engine (key `fail <id>`). Each step looks whether its workload has ended before it starts a container (over.ts).
//
// A workload goes through these phases (observe.ts computes them from the facts; nothing stores a phase):
//
//     pulling ─> creating ─> starting ─> running ─> stopped ─> removed
//        └──────────┴───────────┴─> failed   └─> missing (somebody else removed the container; it is reported, never replaced)
//
// Example: revision 7 arrives and names the new workload wrk_1.
//     tick 1   no container, no image       -> pull wrk_1 (in the background, with byte counts)
//     tick 2   image ready                  -> create and start wrk_1 (its holder process has been started beside the pull)
//     tick 3   container and holder are up  -> nothing to do; `starting` until the guest connects to the holder
//     tick 4   the guest has connected      -> `running`, and `ever_running: true` is stored
// If the container ends at once, tick 3 starts it again, and each start waits longer than the one before (attempts.ts). After 3
// attempts without success the workload is `failed` with `start_failed`, so that the control plane can try another host. If it has
// been reachable once, the agent starts it again without end: it may hold a customer's data. Only a program that runs once (`runs_once`) is not
// started again: its workload is `failed` then.
//
// Facts grow old while steps run. The engine may have answered before a step changed something. Therefore the keys that were
// busy before the engine was asked, and those that are busy after it, count as busy for that answer: the plan leaves them alone,
// and `observed()` does not call their container missing (`unseen`).
//
// What must never happen:
//   - A workload ends because of silence. Only `desired: removed` (or its own end time) ends one: no empty list, no older
//     revision, no lost link, no engine that does not answer (`containers: null` is "unknown", not "empty").
//   - A second container is created for a workload. It would be an empty disk under the name of a full one. (A container that was never
//     started and is in no record may be half-made. It holds no data, and the next creation replaces it.)
//   - A GPU has two containers that run. A copy of this host may have reported one of them as gone (plan.ts).
//   - Customer code starts while the network fence does not stand (`assertFenced`).
//   - A crash loses a decision. The agent may be killed at any instant; the next tick continues from what is on disk and in the engine.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import { startLoop, type LoopStatus } from '../../shared/loop.ts';
import type { DesiredMessage, ObservedMessage, Revision, PullAnswer } from '../../shared/protocol/link.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import { createAttempts, type Attempts } from './attempts.ts';
import type { Desired } from './desired.ts';
import type { Engine, LocalContainer, Mount } from './engine.ts';
import { createListing, type Listing } from './listing.ts';
import { observe, type ObservedFacts } from './observe.ts';
import { type Facts, gpusOf, type GpuStanding, holderKey, isQuarantineOver, keyOf, plan, type Step } from './plan.ts';
import { openPulls, type Pulls } from './pulls.ts';
import type { Images } from './images.ts';
import type { Records } from './records.ts';
import type { Machine } from './shape.ts';
import { createSilence, type Silence } from './silence.ts';
import type { JobInputs } from './job-steps.ts';
import { createSteps, type Holders, type StepsDeps } from './steps.ts';

export interface RuntimeDeps {
  clock: Clock;
  log: Log;
  engine: Engine;
  holders: Holders;
  jobs: JobInputs;
  desired: Desired;
  records: Records;
  images: Images;
  machine: () => Machine;
  /** Our files that replace the engine's own in the container's /etc. */
  etcFiles(workloadId: string, hostname: string): Promise<Mount[]>;
  gpus: () => GpuStanding;
  /** Rejects with the reason if customer code must not start on this host. */
  assertFenced(): Promise<void>;
  /** Called when the engine has refused a container, in words about GPUs. */
  onGpusRefused(): void;
  quarantineMs: number;
  /** Asks the control plane for a login to the registry of the workload's private image; null: none is needed. Rejects without an answer. */
  pullLogin(workloadId: string): Promise<PullAnswer | null>;
}

export interface Runtime {
  /** Stores a newer desired state before anything acts on it. An older one changes nothing. */
  take(message: DesiredMessage): Promise<void>;
  held(): Revision | null;
  observed(): ObservedMessage;
  /** Ids of our containers, running or not, as the engine last listed them. */
  containerIds(): string[];
  /** Folders of the host that are mounted into our containers, running or not; null while it is not known which containers there are. */
  mountSources(): string[] | null;
  /** Our containers that run, with the GPUs of their workloads. */
  running(): { container_id: string; workload_id: string; gpu_uuids: readonly string[] }[];
  /** Must be called whenever `holders.statuses()` has changed. */
  holdersChanged(): void;
  /** Must be called whenever the record of a job has changed. */
  jobsChanged(): void;
  /** Why the engine's list of our containers does not count now, in words for people; empty if it does, or if there is none. */
  doubt(): string;
  status(): LoopStatus[];
  /** Stops the loops and waits for the steps at work. Containers go on. */
  stop(): Promise<void>;
}

const PERIOD_MS = 5_000;
const IMAGES_PERIOD_MS = 60_000;

/** Starts the loop. `onChange` is called whenever `observed()` may have changed. */
export function openRuntime(deps: RuntimeDeps, onChange: () => void): Runtime {
  const { clock, log, holders, desired, records } = deps;
  const changed = (): void => {
    onChange();
    loop.nudge();
  };
  const wantedImages = (): Set<string> => new Set(wantedOf(desired).map((workload) => workload.image));
  const hasRoom = (bytes: number): Promise<boolean> => deps.images.makeRoom(bytes, wantedImages());
  const pulls = openPulls(deps.engine, changed, { ...deps, hasRoom });
  const work = createWork({ ...deps, pulls }, changed);
  const listing = createListing({ ...deps, busy: work.busy, placed: () => placedOf(deps) });
  const silence = createSilence(clock, holders, (id) => records.all().get(id)?.ever_running === true);
  /** Keys with a step that ran during or after the last answer of the engine. That answer may not show what the step did. */
  let unseen: Facts['busy'] = new Map();

  const facts = (containers: LocalContainer[] | null, busy: Facts['busy']): ObservedFacts =>
    gatherFacts({ ...deps, pulls, work, listing, silence }, containers, busy);

  const tick = async (): Promise<void> => {
    // The engine may hang, and rentals must be reachable before its first answer. Only steps for containers wait for that answer.
    if (listing.known() === null) for (const step of plan(facts(null, work.busy))) work.begin(step);
    // A step that ran while the engine was asked may have changed something after the engine answered.
    const busyBefore = [...work.busy];
    await desired.keep();
    await records.keep();
    await listing.refresh();
    silence.note(listing.current());
    const now = facts(listing.current(), new Map([...busyBefore, ...work.busy]));
    await records.forgetOld(new Set(now.desired.map((workload) => workload.workload_id)));
    pulls.keepOnly(wantedOf(desired));
    for (const step of plan(now)) work.begin(step);
    unseen = new Map([...busyBefore, ...work.busy]);
    onChange();
    // The report goes first, because a customer waits for it. Storing the record may take a while.
    await recordFound(now, records);
    await recordReachable(holders, silence.spoken, { records, work });
    if (work.launchIsOver()) spare.nudge();
  };
  /** Runs between launches only: while an engine creates a network, its other calls are slow. */
  const keepSpare = async (): Promise<void> => {
    if (work.busy.size === 0 && listing.current() !== null) await deps.engine.keepSpareNetwork();
  };
  const loop = startLoop({ name: 'runtime', periodMs: PERIOD_MS, run: tick }, { clock, log });
  const spare = startLoop({ name: 'spare-network', periodMs: PERIOD_MS, run: keepSpare }, { clock, log });
  const sweep = (): Promise<void> => sweepImages(deps.images, listing, wantedImages());
  const images = startLoop({ name: 'images', periodMs: IMAGES_PERIOD_MS, run: sweep }, { clock, log });

  return {
    take: async (message) => {
      if (await desired.take(message)) loop.nudge();
    },
    held: () => revisionOf(desired),
    observed: () => ({ type: 'observed', held: revisionOf(desired), ...observe(facts(listing.known(), unseen)) }),
    containerIds: () => (listing.known() ?? []).map((container) => container.id),
    mountSources: () => listing.current()?.flatMap((container) => container.mount_sources) ?? null,
    running: () => runningOf(listing.known() ?? [], desired),
    holdersChanged: () => {
      silence.listen();
      loop.nudge();
    },
    jobsChanged: changed,
    doubt: listing.doubt,
    status: () => [loop.status(), spare.status(), images.status()],
    stop: async () => {
      await Promise.all([loop.stop(), spare.stop(), images.stop()]);
      await work.settled();
    },
  };
}

/** If the disk with the images is away, they would count as removed, and nothing would remove them once it is back. */
async function sweepImages(images: Images, listing: Listing, wanted: ReadonlySet<string>): Promise<void> {
  if (listing.current() !== null) await images.sweep(wanted);
}

function wantedOf(desired: Desired): DesiredWorkload[] {
  return (desired.held()?.workloads ?? []).filter((workload) => workload.desired === 'running');
}

function runningOf(containers: readonly LocalContainer[], desired: Desired): ReturnType<Runtime['running']> {
  const gpusOf = new Map(desired.held()?.workloads.map(({ workload_id: id, gpu_uuids: uuids }) => [id, uuids]));
  return containers.flatMap(({ id, workload_id, running }) => {
    const gpu_uuids = gpusOf.get(workload_id);
    return running && gpu_uuids !== undefined ? [{ container_id: id, workload_id, gpu_uuids }] : [];
  });
}

/** Workloads that have a container as far as our records know. A container that is due to be removed may be gone already. */
function placedOf({ records, desired, quarantineMs }: RuntimeDeps): string[] {
  const times = { quarantineMs, serverNowMs: desired.serverNowMs() };
  return [...records.all().values()]
    .filter((record) => record.container_id !== null && !record.gone && !isQuarantineOver(record, times))
    .map(({ workload_id: id }) => id);
}

interface Sources extends RuntimeDeps {
  pulls: Pulls;
  work: Work;
  listing: Listing;
  silence: Silence;
}

function gatherFacts(sources: Sources, containers: LocalContainer[] | null, busy: Facts['busy']): ObservedFacts {
  const { desired, listing, silence, work } = sources;
  const statuses = sources.holders.statuses();
  return {
    desired: desired.held()?.workloads ?? [],
    records: sources.records.all(),
    containers,
    engineAwayMs: listing.awayMs(),
    holdersUp: new Set([...statuses].filter(([, status]) => status.up).map(([id]) => id)),
    holders: statuses,
    silentMs: silence.ms,
    deadMs: silence.deadMs,
    busy,
    pulls: sources.pulls.status,
    ...sources.gpus(),
    retryAtMs: work.attempts.retryAtMs,
    startErrors: work.errors,
    nowMs: sources.clock.now(),
    serverNowMs: desired.serverNowMs(),
    quarantineMs: sources.quarantineMs,
  };
}

/**
 * Records the containers of wanted workloads that were started and have no record. It is lost if the disk was full, or if its file is damaged.
 * Without a record, another container would be created if this one disappeared, and the workload would fail if the engine was away.
 */
async function recordFound({ desired, containers, busy }: Facts, records: Records): Promise<void> {
  for (const { id, workload_id: workloadId, started } of containers ?? []) {
    const record = records.all().get(workloadId);
    const isWanted = desired.some((one) => one.workload_id === workloadId && one.desired === 'running');
    const isKnown = record !== undefined && (record.container_id !== null || record.gone);
    if (started && isWanted && !isKnown && !busy.has(workloadId))
      await records.change(workloadId, { container_id: id });
  }
}

/** Records that a workload has been reachable once. If its guest does not answer later, the tenant has caused that. */
async function recordReachable(
  holders: Holders,
  spoken: ReadonlySet<string>,
  { records, work }: { records: Records; work: Work },
): Promise<void> {
  const statuses = holders.statuses();
  for (const id of spoken) {
    if (statuses.get(id)?.guest === true) work.forget(id);
    const record = records.all().get(id);
    if (record === undefined || record.ever_running || record.gone) continue;
    await records.change(id, { ever_running: true });
    work.noteLaunched();
  }
}

interface Work {
  /** Keys with a step at work, a workload's id or `holder <id>`, and the GPUs of the container that the step starts. */
  busy: Facts['busy'];
  attempts: Attempts;
  /** The last failure of each workload. */
  errors: ReadonlyMap<string, string>;
  begin(step: Step): void;
  /** Called when a workload works: its next failure counts as the first again. */
  forget(workloadId: string): void;
  /** Must be called when a container has become reachable for the first time. */
  noteLaunched(): void;
  /** True once after `noteLaunched`, as soon as no step is at work. */
  launchIsOver(): boolean;
  settled(): Promise<void>;
}

/** Runs steps in the background, counts their attempts and delays the next one after a failure. */
function createWork(deps: StepsDeps & { clock: Clock }, changed: () => void): Work {
  const busy = new Map<string, readonly string[]>();
  const atWork = new Set<Promise<void>>();
  const errors = new Map<string, string>();
  const attempts = createAttempts(deps.clock, changed);
  const steps = createSteps(deps);
  let hasLaunched = false;

  const perform = async (step: Step, key: string): Promise<void> => {
    const attempt = attempts.count(key) + 1;
    const starts = step.kind === 'create' || step.kind === 'start';
    // A start that succeeds counts as an attempt too, until the workload is reachable: the container may end at once.
    if (starts) attempts.delay(key);
    try {
      await steps.perform(step, attempt);
    } catch (error) {
      const detail = messageOf(error);
      errors.set(step.workload_id, detail);
      deps.log.warn(
        { workload_id: step.workload_id, step: step.kind, attempt, detail },
        'a step failed and will be tried again',
      );
      if (!starts) attempts.delay(key);
    }
  };

  return {
    busy,
    attempts,
    errors,
    begin: (step) => {
      const key = keyOf(step);
      // A second step would free the key, and with it the workload and its GPUs, while the first one is still at work.
      if (busy.has(key)) return;
      busy.set(key, gpusOf(step));
      const work = perform(step, key).finally(() => {
        busy.delete(key);
        atWork.delete(work);
        changed();
      });
      atWork.add(work);
    },
    forget: (id) => {
      attempts.forget(id);
      attempts.forget(holderKey(id));
      errors.delete(id);
    },
    noteLaunched: () => void (hasLaunched = true),
    launchIsOver: () => {
      const isOver = hasLaunched && busy.size === 0;
      if (isOver) hasLaunched = false;
      return isOver;
    },
    settled: async () => {
      await Promise.all(atWork);
    },
  };
}

function revisionOf(desired: Desired): Revision | null {
  const held = desired.held();
  return held === undefined ? null : { epoch: held.epoch, revision: held.revision };
}
