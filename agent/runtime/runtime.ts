// Makes the machine look like its desired state: looks, plans, starts the steps that are due, and looks again when one is over.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import { startLoop, type LoopStatus } from '../../shared/loop.ts';
import type { DesiredMessage, ObservedMessage, Revision, PullAnswer } from '../../shared/protocol/link.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import { createAttempts, type Attempts } from './attempts.ts';
import type { Desired } from './desired.ts';
import type { Engine, LocalContainer, Mount } from './engine.ts';
import { observe, type ObservedFacts } from './observe.ts';
import { holderKey, type GpuStanding, plan, type Step } from './plan.ts';
import { openPulls, type Pulls } from './pulls.ts';
import type { Images } from './images.ts';
import type { Records } from './records.ts';
import type { Machine } from './shape.ts';
import { createSilence, type Silence } from './silence.ts';
import { createSteps, type Holders, type StepsDeps } from './steps.ts';

export interface RuntimeDeps {
  clock: Clock;
  log: Log;
  engine: Engine;
  holders: Holders;
  desired: Desired;
  records: Records;
  images: Images;
  machine: () => Machine;
  /** Files of ours that a container of this workload sees in place of the engine's. */
  etcFiles(workloadId: string, hostname: string): Promise<Mount[]>;
  gpus: () => GpuStanding;
  /** Rejects with the reason where customer code must not start on this host. */
  assertFenced(): Promise<void>;
  quarantineMs: number;
  /** Asks the control plane what the registry of the workload's private image wants; null: nothing. Fails where nobody answers. */
  pullLogin(workloadId: string): Promise<PullAnswer | null>;
}

export interface Runtime {
  /** Stores a newer desired state before anything acts on it; an older one changes nothing. */
  take(message: DesiredMessage): Promise<void>;
  held(): Revision | null;
  observed(): ObservedMessage;
  /** Ids of our containers, running or not, as last seen. */
  containerIds(): string[];
  /** `holders.statuses()` have changed. */
  holdersChanged(): void;
  status(): LoopStatus[];
  /** Leaves everything as it is; waits for the steps at work. */
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
  const listing = createListing(deps.engine, deps);
  const silence = createSilence(clock, holders);
  /** What was at work when the engine last answered, or has begun since: the answer may not show what it did. */
  let unseen: ReadonlySet<string> = new Set();

  const facts = (containers: LocalContainer[] | null, busy: ReadonlySet<string>): ObservedFacts =>
    gatherFacts({ ...deps, pulls, work, listing, silence }, containers, busy);

  const look = async (): Promise<void> => {
    // Whatever was at work while the engine was asked may have changed since it answered.
    const busyBefore = new Set(work.busy);
    await desired.keep();
    await records.keep();
    await listing.refresh();
    silence.note(listing.current());
    const now = facts(listing.current(), new Set([...busyBefore, ...work.busy]));
    await records.forgetOld(new Set(now.desired.map((workload) => workload.workload_id)));
    pulls.keepOnly(wantedOf(desired));
    for (const step of plan(now)) work.begin(step);
    unseen = new Set([...busyBefore, ...work.busy]);
    onChange();
    // After it was told: a customer waits for that.
    await recordReachable(holders, silence.spoken, { records, work });
    if (work.launchIsOver()) spare.nudge();
  };
  /** Between launches, as soon as one is over: an engine that makes a network is slow at everything else. */
  const keepSpare = async (): Promise<void> => {
    if (work.busy.size === 0 && listing.current() !== null) await deps.engine.keepSpareNetwork();
  };
  const loop = startLoop({ name: 'runtime', periodMs: PERIOD_MS, run: look }, { clock, log });
  const spare = startLoop({ name: 'spare-network', periodMs: PERIOD_MS, run: keepSpare }, { clock, log });
  const sweep = (): Promise<void> => deps.images.sweep(wantedImages());
  const images = startLoop({ name: 'images', periodMs: IMAGES_PERIOD_MS, run: sweep }, { clock, log });

  return {
    take: async (message) => {
      if (await desired.take(message)) loop.nudge();
    },
    held: () => positionOf(desired),
    observed: () => ({ type: 'observed', held: positionOf(desired), ...observe(facts(listing.known(), unseen)) }),
    containerIds: () => (listing.known() ?? []).map((container) => container.id),
    holdersChanged: () => {
      silence.listen();
      loop.nudge();
    },
    status: () => [loop.status(), spare.status(), images.status()],
    stop: async () => {
      await Promise.all([loop.stop(), spare.stop(), images.stop()]);
      await work.settled();
    },
  };
}

/** What should run here. */
function wantedOf(desired: Desired): DesiredWorkload[] {
  return (desired.held()?.workloads ?? []).filter((workload) => workload.desired === 'running');
}

interface Sources extends RuntimeDeps {
  pulls: Pulls;
  work: Work;
  listing: Listing;
  silence: Silence;
}

function gatherFacts(
  { clock, holders, desired, records, gpus, quarantineMs, pulls, work, listing, silence }: Sources,
  containers: LocalContainer[] | null,
  busy: ReadonlySet<string>,
): ObservedFacts {
  const statuses = holders.statuses();
  return {
    desired: desired.held()?.workloads ?? [],
    records: records.all(),
    containers,
    engineAwayMs: listing.awayMs(),
    holdersUp: new Set([...statuses].filter(([, status]) => status.up).map(([id]) => id)),
    holders: statuses,
    silentMs: silence.ms,
    busy,
    pulls: pulls.status,
    ...gpus(),
    retryAtMs: work.attempts.retryAtMs,
    startErrors: work.errors,
    nowMs: clock.now(),
    serverNowMs: desired.serverNowMs(),
    quarantineMs,
  };
}

/** Whose guest has answered once runs: that it does not later is the tenant's own doing. */
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
  /** Keys that a step is at work on: a workload's id, or `holder <id>`. */
  busy: ReadonlySet<string>;
  attempts: Attempts;
  /** The last failure of each workload. */
  errors: ReadonlyMap<string, string>;
  begin(step: Step): void;
  /** It works: the next failure is a first one again. */
  forget(workloadId: string): void;
  /** A container has become reachable for the first time. */
  noteLaunched(): void;
  /** True once after that, as soon as nothing is at work any more. */
  launchIsOver(): boolean;
  settled(): Promise<void>;
}

/** Steps run beside each other and beside the loop: stopping one container must not delay starting another. */
function createWork(deps: StepsDeps & { clock: Clock }, changed: () => void): Work {
  const busy = new Set<string>();
  const atWork = new Set<Promise<void>>();
  const errors = new Map<string, string>();
  const attempts = createAttempts(deps.clock, changed);
  const steps = createSteps(deps);
  let hasLaunched = false;

  const perform = async (step: Step, key: string): Promise<void> => {
    const attempt = attempts.count(key) + 1;
    const starts = step.kind === 'create' || step.kind === 'start';
    // Even a start that succeeds counts, until the workload is reachable: the container may end at once.
    if (starts) attempts.delay(key);
    try {
      await steps.perform(step, attempt);
    } catch (error) {
      const detail = messageOf(error);
      errors.set(step.workload_id, detail);
      deps.log.warn(
        { workload_id: step.workload_id, step: step.kind, attempt, detail },
        'a step failed; it is tried again',
      );
      if (!starts) attempts.delay(key);
    }
  };

  return {
    busy,
    attempts,
    errors,
    begin: (step) => {
      const key = step.kind === 'holder' ? holderKey(step.workload_id) : step.workload_id;
      busy.add(key);
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

interface Listing {
  /** Our containers, or null while the engine does not answer: nothing may be concluded then. */
  current(): LocalContainer[] | null;
  /** What was last seen: an engine that is away has not lost anything. Null before the first answer. */
  known(): LocalContainer[] | null;
  /** 0 where it answers. */
  awayMs(): number;
  refresh(): Promise<void>;
}

function createListing(engine: Engine, { clock, log }: Pick<RuntimeDeps, 'clock' | 'log'>): Listing {
  let known: LocalContainer[] | null = null;
  let awaySinceMs: number | null = null;
  return {
    current: () => (awaySinceMs === null ? known : null),
    known: () => known,
    awayMs: () => (awaySinceMs === null ? 0 : clock.monotonicMs() - awaySinceMs),
    refresh: async () => {
      try {
        known = await engine.list();
        awaySinceMs = null;
      } catch (error) {
        // Said once, not at every period of a long absence.
        if (awaySinceMs === null) log.warn({ detail: messageOf(error) }, 'the container engine does not answer');
        awaySinceMs ??= clock.monotonicMs();
      }
    },
  };
}

function positionOf(desired: Desired): Revision | null {
  const held = desired.held();
  return held === undefined ? null : { epoch: held.epoch, revision: held.revision };
}
