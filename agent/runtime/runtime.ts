// Makes the machine look like its desired state: looks, plans, starts the steps that are due, and looks again when one is over.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import { startLoop, type LoopStatus } from '../../shared/loop.ts';
import type { DesiredMessage, ObservedMessage, Position } from '../../shared/protocol/link.ts';
import type { Desired } from './desired.ts';
import type { Engine, LocalContainer } from './engine.ts';
import { observe, type DoorStatus, type ObservedFacts } from './observe.ts';
import { plan, type Step } from './plan.ts';
import { openPulls } from './pulls.ts';
import type { Records } from './records.ts';
import type { GuestEntry, Launch, Machine } from './shape.ts';
import { createSteps } from './steps.ts';

/** The way into a workload, kept by another room. */
export interface Doors {
  /** Makes the door's folder and says how our program gets into the container. `ownerUid` null: any user of the container. */
  prepare(workloadId: string, launch: Launch, ownerUid: number | null): Promise<GuestEntry>;
  /** Makes the door's process answer. */
  ensure(workloadId: string): Promise<void>;
  statuses(): ReadonlyMap<string, DoorStatus>;
  /** The door closes for good. */
  end(workloadId: string): Promise<void>;
}

export interface RuntimeDeps {
  clock: Clock;
  log: Log;
  engine: Engine;
  doors: Doors;
  desired: Desired;
  records: Records;
  machine: () => Machine;
  gpuUuids: () => ReadonlySet<string>;
  quarantineMs: number;
}

export interface Runtime {
  /** Stores a newer desired state before anything acts on it; an older one changes nothing. */
  take(message: DesiredMessage): Promise<void>;
  held(): Position | null;
  observed(): ObservedMessage;
  /** Ids of our containers, running or not; empty while the engine does not answer. */
  containerIds(): string[];
  nudge(): void;
  status(): LoopStatus;
  /** Leaves everything as it is; waits for the steps at work. */
  stop(): Promise<void>;
}

const PERIOD_MS = 5_000;
const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 60_000;

/** Starts the loop. `onChange` is called whenever `observed()` may have changed. */
export function openRuntime(deps: RuntimeDeps, onChange: () => void): Runtime {
  const { clock, log, engine, doors, desired, records } = deps;
  const busy = new Set<string>();
  const atWork = new Set<Promise<void>>();
  const retryAtMs = new Map<string, number>();
  const startErrors = new Map<string, string>();
  const attempts = new Map<string, number>();
  let containers: LocalContainer[] | null = null;
  let engineWasAway = false;

  const nudge = (): void => loop.nudge();
  const pulls = openPulls(engine, () => (onChange(), nudge()), { clock, log });
  const steps = createSteps({ ...deps, pulls });

  const facts = (busyNow: ReadonlySet<string>): ObservedFacts => {
    const statuses = doors.statuses();
    return {
      desired: desired.held()?.workloads ?? [],
      records: records.all(),
      containers,
      doorsUp: new Set([...statuses].filter(([, status]) => status.up).map(([id]) => id)),
      doors: statuses,
      busy: busyNow,
      pulls: pulls.status,
      gpuUuids: deps.gpuUuids(),
      retryAtMs,
      startErrors,
      nowMs: clock.now(),
      quarantineMs: deps.quarantineMs,
    };
  };

  /** What fails, or will not stay up, is tried again ever more slowly: a tenant cannot keep the host busy with it. */
  const retryLater = (key: string): void => {
    const delayMs = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** (attempts.get(key) ?? 0));
    attempts.set(key, (attempts.get(key) ?? 0) + 1);
    retryAtMs.set(key, clock.now() + delayMs);
    clock.after(delayMs, nudge);
  };

  const perform = async (step: Step, key: string): Promise<void> => {
    const attempt = (attempts.get(key) ?? 0) + 1;
    if (step.kind === 'start') retryLater(key);
    try {
      await steps.perform(step, attempt);
    } catch (error) {
      const detail = messageOf(error);
      startErrors.set(step.workload_id, detail);
      log.warn({ workload_id: step.workload_id, step: step.kind, attempt, detail }, 'a step failed; it is tried again');
      if (step.kind !== 'start') retryLater(key);
    }
  };

  const begin = (step: Step): void => {
    const key = step.kind === 'door' ? `door ${step.workload_id}` : step.workload_id;
    busy.add(key);
    const work = perform(step, key).finally(() => {
      busy.delete(key);
      atWork.delete(work);
      onChange();
      nudge();
    });
    atWork.add(work);
  };

  const look = async (): Promise<void> => {
    const busyBefore = new Set(busy);
    containers = await listOrNull();
    await recordReachable();
    const now = facts(new Set([...busyBefore, ...busy]));
    await records.forgetOld(new Set(now.desired.map((workload) => workload.workload_id)));
    for (const step of plan(now)) begin(step);
    onChange();
  };

  const listOrNull = async (): Promise<LocalContainer[] | null> => {
    try {
      const listed = await engine.list();
      engineWasAway = false;
      return listed;
    } catch (error) {
      // Said once, not at every period of a long absence.
      if (!engineWasAway) log.warn({ detail: messageOf(error) }, 'the container engine does not answer');
      engineWasAway = true;
      return null;
    }
  };

  const forgetAttempts = (id: string): void => {
    for (const key of [id, `door ${id}`]) {
      attempts.delete(key);
      retryAtMs.delete(key);
    }
    startErrors.delete(id);
  };

  const recordReachable = async (): Promise<void> => {
    for (const [id, status] of doors.statuses()) {
      if (!status.guest) continue;
      forgetAttempts(id);
      const record = records.all().get(id);
      if (record !== undefined && !record.ever_running && !record.gone)
        await records.change(id, { ever_running: true });
    }
  };

  const loop = startLoop({ name: 'runtime', periodMs: PERIOD_MS, run: look }, { clock, log });

  return {
    take: async (message) => {
      if (await desired.take(message)) nudge();
    },
    held: () => positionOf(desired),
    observed: () => ({ type: 'observed', held: positionOf(desired), ...observe(facts(busy)) }),
    containerIds: () => (containers ?? []).map((container) => container.id),
    nudge,
    status: () => loop.status(),
    stop: async () => {
      await loop.stop();
      await Promise.all(atWork);
    },
  };
}

function positionOf(desired: Desired): Position | null {
  const held = desired.held();
  return held === undefined ? null : { epoch: held.epoch, revision: held.revision };
}
