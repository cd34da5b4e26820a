// Performs the steps of the plan. Each step may be interrupted at any instant and repeated: engine and records show how far it came.
import { messageOf } from '../../shared/errors.ts';
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';
import { GPUS_DIFFER_CODE } from '../gpus/visible.ts';
import { imageFaultOf } from './docker-answers.ts';
import type { LastExit, Mount } from './engine.ts';
import type { Images } from './images.ts';
import { createJob, hasJobStarted, isJob, type JobStepsDeps, noteExit, noteStart, stopAtLimit } from './job-steps.ts';
import type { Step } from './plan.ts';
import { isOver } from './over.ts';
import type { Pulls } from './pulls.ts';
import type { WorkloadRecord } from './records.ts';
import type { HolderStatus } from './observe.ts';
import { type GuestEntry, type MainProgram, mainProgramOf, shapeOf } from './shape.ts';

/** Functions of agent/holders that the runtime calls. */
export interface Holders {
  /** Creates the workload folder; resolves with how our guest gets into the container. `ownerUid` null: any user of the container. */
  prepare(workloadId: string, launch: MainProgram, ownerUid: number | null): Promise<GuestEntry>;
  /** Connects to the workload's holder process; starts it if none answers. */
  ensure(workloadId: string): Promise<void>;
  statuses(): ReadonlyMap<string, HolderStatus>;
  /** Ends the holder until `ensure` starts another one. */
  pause(workloadId: string): Promise<void>;
  /** Ends the holder for good. */
  end(workloadId: string): Promise<void>;
}

export interface StepsDeps extends JobStepsDeps {
  holders: Holders;
  pulls: Pulls;
  images: Images;
  /** Our files that replace the engine's own in the container's /etc. */
  etcFiles(workloadId: string, hostname: string): Promise<Mount[]>;
  /** Rejects with the reason if customer code must not start on this host. */
  assertFenced(): Promise<void>;
  /** Called when the engine has refused a container, in words about GPUs. */
  onGpusRefused(): void;
}

/** Number of failures after which a workload that was never reachable is reported as failed. Then another host can be tried. */
const ATTEMPTS_MAX = 3;

type StepOf<K extends Step['kind']> = Extract<Step, { kind: K }>;
type Executors = { [K in Step['kind']]: (step: StepOf<K>, attempt: number) => Promise<void> };

/** `attempt` counts from 1 since the workload was last reachable. */
export function createSteps(deps: StepsDeps): { perform(step: Step, attempt: number): Promise<void> } {
  const { log, engine, holders, records, pulls, images, assertFenced } = deps;

  const executors: Executors = {
    pull: ({ workload }, attempt) =>
      orGiveUp(deps, workload.workload_id, attempt, async () => {
        await images.use(workload.image);
        pulls.begin(workload);
      }),

    create: ({ workload }, attempt) =>
      orGiveUp(deps, workload.workload_id, attempt, async () => {
        const [containerId] = await bothDone([create(deps, workload), assertFenced()]);
        if (containerId === undefined) return;
        const { workload_id: id } = workload;
        if (isOver(id, deps)) return discard(id, deps);
        await start(id, containerId, workload.job !== undefined, deps);
      }),

    start: async ({ workload_id, container_id }, attempt) => {
      const record = records.all().get(workload_id);
      if (record?.container_id == null) await records.change(workload_id, { container_id });
      const failure = record?.ever_running === true ? null : startFailure(await engine.lastExit(container_id), attempt);
      if (failure !== null) return records.change(workload_id, { failure });
      await orGiveUp(deps, workload_id, attempt, async () => {
        await assertFenced();
        if (!isOver(workload_id, deps)) await start(workload_id, container_id, isJob(workload_id, deps), deps);
      });
    },

    resume: async ({ workload_id, container_id }) => {
      log.warn({ workload_id }, 'somebody has paused the container of a workload, so it is resumed');
      await engine.resume(container_id);
    },

    died: ({ workload_id, container_id }) => noteDeath(workload_id, container_id, deps),

    limit: ({ workload_id }) => stopAtLimit(workload_id, deps),

    exited: ({ workload_id, container_id }) => noteExit(workload_id, container_id, deps),

    holder: ({ workload_id }) => holders.ensure(workload_id),

    'end-holder': async ({ workload_id }) => {
      log.warn({ workload_id }, 'the container of a workload is dead, so nobody is let in until it runs again');
      await holders.pause(workload_id);
    },

    fail: async ({ workload_id, workload, code, detail }) => {
      pulls.forget(workload);
      // The agent stops a failed container by itself, because the control plane may be out of reach.
      if (code === 'guest_silent') await engine.stopAndCut(workload_id);
      await records.change(workload_id, { failure: { code, detail } });
    },

    stop: ({ workload_id }) => stop(deps, workload_id),

    remove: ({ workload_id }) => remove(workload_id, deps),
  };

  return {
    perform: <K extends Step['kind']>(step: StepOf<K>, attempt: number) => {
      const executor: (step: StepOf<K>, attempt: number) => Promise<void> = executors[step.kind];
      return executor(step, attempt);
    },
  };
}

/** Removes a container that was made for a workload that has ended meanwhile. It was never started, so it holds no data. */
async function discard(id: string, { engine, records, log }: StepsDeps): Promise<void> {
  await engine.remove(id);
  await records.change(id, { container_id: null });
  log.info({ workload_id: id }, 'a workload has ended while its container was made, which was removed again');
}

async function start(id: string, containerId: string, isAJob: boolean, deps: StepsDeps): Promise<void> {
  if (isAJob) await noteStart(id, deps);
  await deps.engine.start(containerId);
  // The engine may have hung in the start until the workload was reported as failed.
  if (isOver(id, deps)) await deps.engine.stopAndCut(id);
}

async function stop({ desired, log, engine, holders, records }: StepsDeps, id: string): Promise<void> {
  await records.change(id, { removing: true }).catch((error: unknown) => {
    log.error({ err: error, workload_id: id }, 'the end of a workload could not be stored; it is stopped anyway');
  });
  await engine.stopAndCut(id);
  await holders.end(id);
  await records.change(id, { stopped_ms: desired.serverNowMs() });
  log.info({ workload_id: id }, 'a workload was stopped and cut off');
}

async function remove(id: string, { engine, holders, records, log }: StepsDeps): Promise<void> {
  await engine.remove(id);
  await holders.end(id);
  await records.bury(id);
  log.info({ workload_id: id }, 'a workload was removed');
}

/** The container of a program that runs once has died: nothing starts it again. */
async function noteDeath(id: string, containerId: string, { engine, records, log }: StepsDeps): Promise<void> {
  const { out_of_memory: isStarved, reason: detail } = await engine.lastExit(containerId);
  log.warn({ workload_id: id, detail }, 'the container of a program that runs once has died');
  await records.change(id, { failure: { code: isStarved ? 'out_of_memory' : 'container_died', detail } });
}

/** The failure to report for a container that ended before it was ever reachable; null if the start is tried again. */
function startFailure({ code, reason }: LastExit, attempt: number): WorkloadRecord['failure'] {
  if (attempt > 1 && code === GPUS_DIFFER_CODE) {
    return { code: 'gpu_unavailable', detail: 'the container does not see exactly the GPUs that it was given' };
  }
  if (attempt <= ATTEMPTS_MAX) return null;
  return { code: 'start_failed', detail: `the container does not stay up: ${reason}` };
}

/** Resolves with the container's id; undefined if there is none to start. Records, pulls or the desired state then contain the reason. */
async function create(deps: StepsDeps, workload: DesiredWorkload): Promise<string | undefined> {
  const { engine, holders, records, pulls, log, machine, etcFiles } = deps;
  const { workload_id, image: ref } = workload;
  const image = await engine.inspectImage(ref);
  if (image === undefined) {
    pulls.forget(workload);
    return undefined;
  }
  if (workload.job !== undefined) return createJob(workload, image, deps);
  const launch = mainProgramOf(workload, image);
  if (launch.argv.length === 0) {
    const detail = 'neither the image nor the request says what to run: set an entrypoint or a command';
    await records.change(workload_id, { failure: { code: 'no_command', detail } });
    return undefined;
  }
  const { entrypoint, mounts } = await holders.prepare(workload_id, launch, uidOf(image.user));
  const entry = { entrypoint, mounts: [...mounts, ...(await etcFiles(workload_id, workload.instance_id))] };
  if (isOver(workload_id, deps)) return undefined;
  const containerId = await engine.create(shapeOf(workload, image, entry, machine()));
  const made = { container_id: containerId, image_digest: image.digest, made_ms: deps.desired.serverNowMs() };
  await records.change(workload_id, made);
  log.info({ workload_id, container_id: containerId, image: ref }, 'a container was created');
  return containerId;
}

/** Like `Promise.all`, but waits for both before it rejects: the next step must not begin while one is still at work. */
async function bothDone<A, B>(work: [Promise<A>, Promise<B>]): Promise<[A, B]> {
  await Promise.allSettled(work);
  return Promise.all(work);
}

/**
 * After the last try, or at once if the image is wrong, records the error as the workload's failure. A workload that was reachable before is tried
 * without end.
 */
async function orGiveUp(deps: StepsDeps, workloadId: string, attempt: number, act: () => Promise<void>): Promise<void> {
  try {
    await act();
  } catch (error) {
    const detail = messageOf(error);
    if (isOver(workloadId, deps)) {
      deps.log.info({ workload_id: workloadId, detail }, 'a step of a workload failed that has ended meanwhile');
      return;
    }
    const imageFault = imageFaultOf(detail);
    const isAboutGpus = /device driver|nvidia|cdi|gpu/i.test(detail);
    if (isAboutGpus && imageFault === undefined) deps.onGpusRefused();
    const isLast = attempt >= ATTEMPTS_MAX || imageFault !== undefined;
    if (!isLast || (await wasRunning(workloadId, deps))) throw error;
    const ofHost = isAboutGpus ? 'gpu_unavailable' : 'start_failed';
    const code = imageFault === undefined ? ofHost : 'image_unusable';
    await deps.records.change(workloadId, { failure: { code, detail: imageFault ?? detail } });
  }
}

/** True if the workload was reachable once, or if its job may have been started. */
async function wasRunning(workloadId: string, deps: StepsDeps): Promise<boolean> {
  const record = deps.records.all().get(workloadId);
  if (record?.ever_running !== true) return false;
  return record.job === undefined || (await hasJobStarted(workloadId, deps));
}

/** The numeric user of an image, or null if only the image's own passwd file knows it. */
function uidOf(user: string): number | null {
  const name = user.split(':')[0] ?? '';
  if (name === '' || name === 'root') return 0;
  return /^\d{1,9}$/.test(name) ? Number(name) : null;
}
