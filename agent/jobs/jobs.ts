// Follows the jobs of this host: sends their events, and carries their files.
//
// One loop reads the record of each job. It starts two works (background tasks) per job that run in parallel: an upload may take an hour.
//
//   events   reads the events file from the offset that the control plane has stored, and sends what is new
//   files    uploads the newest checkpoint; after the end of the program and its last event, uploads the result
//
// After the upload of the result, `finished` in the record is true, and the runtime reports it. A work that fails begins again.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import { type LoopStatus, startLoop } from '../../shared/loop.ts';
import type { Desired } from '../runtime/desired.ts';
import type { Engine } from '../runtime/engine.ts';
import type { JobRecord, Records } from '../runtime/records.ts';
import { JOB_FOLDERS } from '../runtime/shape.ts';
import type { JobInputs } from '../runtime/job-steps.ts';
import { nextEvents } from './events.ts';
import { uploadCheckpoint, uploadResult, prepareInputs } from './files.ts';
import type { JobLink } from './transfer.ts';

export interface Jobs extends JobInputs {
  status(): LoopStatus;
  stop(): Promise<void>;
}

export interface JobsDeps {
  clock: Clock;
  log: Log;
  stateDir: string;
  ca: string | undefined;
  engine: Pick<Engine, 'fileIn'>;
  desired: Pick<Desired, 'held'>;
  records: Pick<Records, 'all' | 'change'>;
  link: JobLink;
  /** Called after the record of a job has changed. */
  onChange(): void;
}

const PERIOD_MS = 2_000;
const RETRY_MS = 10_000;

export function openJobs(deps: JobsDeps): Jobs {
  const { clock, log, records } = deps;
  const stopping = new AbortController();
  const works = openWorks(deps);
  const followed = new Map<string, Followed>();
  const context = { ...deps, signal: stopping.signal };

  const look = async (): Promise<void> => {
    const live = [...records.all().values()].filter(
      ({ job, removing, gone }) => job?.finished === false && !removing && !gone,
    );
    const ids = new Set(live.map(({ workload_id: id }) => id));
    for (const id of followed.keys()) if (!ids.has(id)) followed.delete(id);
    for (const id of ids) {
      const state = followed.get(id) ?? { offset: undefined, isDrained: false };
      followed.set(id, state);
      works.begin(`events ${id}`, () => follow(id, state, context));
      works.begin(`files ${id}`, () => carryFiles(id, state, context));
    }
  };
  const loop = startLoop({ name: 'jobs', periodMs: PERIOD_MS, run: look }, { clock, log });
  return {
    prepare: (workload) =>
      prepareInputs(workload, {
        ...context,
        isWanted: (id) =>
          deps.desired.held()?.workloads.some((one) => one.workload_id === id && one.desired === 'running') === true,
      }),
    status: loop.status,
    stop: async () => {
      stopping.abort();
      await loop.stop();
      await works.settled();
    },
  };
}

interface Followed {
  /** Offset in the events file up to which the control plane has the events; undefined until it has answered with the offset. */
  offset: number | undefined;
  /** The program has ended, and all its events are sent. */
  isDrained: boolean;
}

type Context = JobsDeps & { signal: AbortSignal };

/** Sends the events of the program that the control plane does not have yet, and returns when there are no more now. */
async function follow(id: string, state: Followed, deps: Context): Promise<void> {
  const { link, records } = deps;
  if (state.isDrained) return;
  // An empty message asks for the offset up to which the control plane has the events.
  state.offset ??= await link.events(id, []);
  while (!deps.signal.aborted) {
    const job = records.all().get(id)?.job;
    if (job === undefined) return;
    const isOver = job.exit_code !== null;
    const offset: number = state.offset;
    const read = await readEvents(id, { offset, isOver }, deps);
    if (read === undefined || read.end === offset) {
      state.isDrained = isOver;
      return;
    }
    await noteRead(id, read, deps);
    const kept = read.events.length === 0 ? read.end : await link.events(id, read.events);
    // Lines after the last valid event are not sent. If that event was stored, the next read begins after these lines.
    state.offset = kept === read.events.at(-1)?.end ? read.end : kept;
    if (state.offset === offset) return;
  }
}

/** Reads the events file from `offset` on. Undefined if there is no file, or if the file ends there. */
async function readEvents(
  id: string,
  { offset, isOver }: { offset: number; isOver: boolean },
  { engine }: Context,
): Promise<Awaited<ReturnType<typeof nextEvents>> | undefined> {
  const file = await engine.fileIn(id, `${JOB_FOLDERS.out}/events.jsonl`);
  if (file === undefined) return undefined;
  if (file.bytes > offset) return nextEvents(file.stream, offset, isOver);
  file.stream.destroy();
  return undefined;
}

/** Stores the newest checkpoint before its event is sent: after a restart the control plane would not ask for that event again. */
async function noteRead(
  id: string,
  read: Awaited<ReturnType<typeof nextEvents>>,
  { records, onChange }: Context,
): Promise<void> {
  const job = records.all().get(id)?.job;
  if (job === undefined) return;
  const newest = read.events.findLast(({ event }) => event.type === 'checkpoint' && event.file !== undefined)?.event;
  const checkpoint = newest?.file === undefined ? job.checkpoint : { step: newest.step ?? 0, name: newest.file };
  const garbage = read.garbage.filter((end) => end > job.read_to).length;
  const read_to = Math.max(job.read_to, read.end);
  await records.change(id, { job: { ...job, checkpoint, read_to, skipped_lines: job.skipped_lines + garbage } });
  if (garbage > 0) onChange();
}

/** Uploads the checkpoint that waits, and the result once the program has ended and all its events are sent. */
async function carryFiles(id: string, state: Followed, deps: Context): Promise<void> {
  const waiting = deps.records.all().get(id)?.job?.checkpoint;
  if (waiting != null) await carryCheckpoint(id, waiting, deps);
  // A newer checkpoint may wait by now. It is uploaded before the result.
  const job = deps.records.all().get(id)?.job;
  if (job === undefined || job.exit_code === null || !state.isDrained || job.checkpoint !== null) return;
  await finish(id, job, deps);
}

async function carryCheckpoint(
  id: string,
  checkpoint: NonNullable<JobRecord['checkpoint']>,
  deps: Context,
): Promise<void> {
  const { records, log } = deps;
  const fault = await uploadCheckpoint(id, checkpoint, deps);
  if (fault !== undefined) log.warn({ workload_id: id, detail: fault }, 'a checkpoint of a job could not be used');
  const job = records.all().get(id)?.job;
  const isStillNewest = job?.checkpoint?.name === checkpoint.name && job.checkpoint.step === checkpoint.step;
  if (job !== undefined && isStillNewest) await records.change(id, { job: { ...job, checkpoint: null } });
}

/** A program that has failed has no result. One that was stopped at its limit may have left a partial one. */
async function finish(id: string, job: JobRecord, deps: Context): Promise<void> {
  const hasResult = job.exit_code === 0 || job.stopped_at_limit;
  const result = hasResult ? await uploadResult(id, deps) : { detail: job.detail ?? 'the program failed' };
  const done = 'files' in result ? { results: result.files } : { detail: result.detail };
  await deps.records.change(id, { job: { ...job, ...done, finished: true } });
  deps.log.info({ workload_id: id, ...done }, 'the files of a job are complete');
  deps.onChange();
}

interface Works {
  /** Does nothing while the work of this key is under way, or waits after a failure. */
  begin(key: string, work: () => Promise<void>): void;
  settled(): Promise<void>;
}

function openWorks({ clock, log }: Pick<JobsDeps, 'clock' | 'log'>): Works {
  const atWork = new Map<string, Promise<void>>();
  const notBeforeMs = new Map<string, number>();
  return {
    begin: (key, work) => {
      if (atWork.has(key) || (notBeforeMs.get(key) ?? 0) > clock.monotonicMs()) return;
      notBeforeMs.delete(key);
      const done = work()
        .catch((error: unknown) => {
          log.warn({ work: key, detail: messageOf(error) }, 'a background task of a job failed, and begins again soon');
          notBeforeMs.set(key, clock.monotonicMs() + RETRY_MS);
        })
        .finally(() => atWork.delete(key));
      atWork.set(key, done);
    },
    settled: async () => void (await Promise.all(atWork.values())),
  };
}
