// The interface of this room: commands for fine-tuning jobs, messages of their hosts, and the driver that the engine calls.
import type { z } from 'zod';
import type { TrainingReport } from '../../../shared/api/file.ts';
import type {
  FineTuningCheckpointList,
  FineTuningEventList,
  FineTuningEventsQuery,
  FineTuningJob,
  FineTuningJobList,
  FineTuningQuery,
  FineTuningQuote,
} from '../../../shared/api/fine-tuning.ts';
import { fail, failField } from '../../../shared/errors.ts';
import { FINE_TUNING_URL_MS } from '../../../shared/limits.ts';
import type { JobUrlAnswer, JobUrlPurpose, SentJobEvent } from '../../../shared/protocol/job.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Reply } from '../../base/http/route.ts';
import type { Driver } from '../../base/operations/engine.ts';
import { chargedTimes, jobsOfMachines, machinesOfJobs, skipStep } from './attempts.ts';
import { cancelJob, failMissing } from './cancel.ts';
import { createJob, type CreateCall, quotesOf } from './create.ts';
import type { FineTuningDeps } from './deps.ts';
import { pageOfEvents } from './events.ts';
import { filesOf, isCheckpoint, namedBlobs, pageOfCheckpoints } from './files.ts';
import { takeEvents, urlFor } from './host-messages.ts';
import { driveJob } from './steps.ts';
import * as store from './store.ts';
import { checkpointView, eventView, jobView, resultsOf } from './view.ts';

export interface FineTuningRoom {
  create(call: CreateCall): Promise<Reply>;
  /** @throws ServiceError `not_found`, also for a job of another organisation */
  get(orgId: string, id: string): Promise<FineTuningJob>;
  /** Jobs of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<Map<string, FineTuningJob>>;
  list(orgId: string, query: z.infer<typeof FineTuningQuery>): Promise<z.infer<typeof FineTuningJobList>>;
  /** @throws ServiceError `not_found` */
  cancel(orgId: string, id: string, settle: (tx: Tx, job: FineTuningJob) => Promise<void>): Promise<FineTuningJob>;
  /** @throws ServiceError `not_found` */
  events(
    orgId: string,
    id: string,
    query: z.infer<typeof FineTuningEventsQuery>,
  ): Promise<z.infer<typeof FineTuningEventList>>;
  /** @throws ServiceError `not_found` */
  checkpoints(
    orgId: string,
    id: string,
    query: z.infer<typeof FineTuningQuery>,
  ): Promise<z.infer<typeof FineTuningCheckpointList>>;
  /** What a job with such a file would cost. */
  quotes(report: TrainingReport): FineTuningQuote[];
  /** Refuses the removal of a file that an open job reads. @throws ServiceError `conflict` */
  refuseInUse(tx: Tx, fileId: string): Promise<void>;
  driver: Driver;
  /** True if the instance id of a workload is the id of a job. */
  isJob(instanceId: string): boolean;
  /** A host reported something new about a job. */
  noteObserved(tx: Tx, jobId: string): Promise<void>;
  takeEvents(machineId: string, workloadId: string, events: readonly SentJobEvent[]): Promise<number | undefined>;
  urlFor(machineId: string, workloadId: string, purpose: JobUrlPurpose): Promise<JobUrlAnswer | undefined>;
  /** The blob keys that belong to a job. */
  namedBlobs(keys: readonly string[]): Promise<readonly string[]>;
  /** The last machine of each job, for the list of earnings. */
  machinesOf(query: Query, jobIds: readonly string[]): Promise<Map<string, string>>;
  /** The jobs that ever ran on the machines. */
  jobsOf(query: Query, machineIds: readonly string[]): Promise<string[]>;
  /** The wall clock was set forward: nobody is charged for the time between, in which nothing ran. */
  skip(step: { fromMs: number; untilMs: number }): Promise<void>;
  /** When each of these workloads of jobs was charged. */
  chargedTimes: typeof chargedTimes;
}

/** Largest number of jobs that are driven at once, because the engine must serve other rooms too. */
const DRIVEN_MAX = 16;
/** How many of them may read a whole file. That takes minutes, and meanwhile other jobs must be placed, started and ended. */
const READING_MAX = 8;
const POSTPONED_MS = 30_000;

export function openFineTuning(deps: FineTuningDeps): FineTuningRoom {
  const { db, clock, catalog } = deps;
  const get: FineTuningRoom['get'] = async (orgId, id) => shown(await ownJob(db.read, orgId, id), deps);
  return {
    create: (call) => createJob(call, deps),
    get,
    describe: async (query, orgId, ids) => {
      const jobs = await Promise.all(ids.map((id) => store.findJob(query, id)));
      const own = jobs.flatMap((job) => (job?.org_id === orgId ? [job] : []));
      return new Map(await Promise.all(own.map(async (job) => [job.id, await shown(job, deps)] as const)));
    },
    list: async (orgId, { after, limit }) => {
      if (after !== undefined && (await store.findJob(db.read, after))?.org_id !== orgId)
        return failField('after', 'must be the id of a job of this list');
      const rows = await store.pageOfJobs(db.read, orgId, { afterId: after, count: limit + 1 });
      const data: FineTuningJob[] = [];
      // A result may have dozens of files, and each URL is signed. Other work of the process goes on in between.
      for (const row of rows.slice(0, limit)) {
        data.push(await shown(row, deps));
        await clock.nextTurn();
      }
      return { object: 'list', data, has_more: rows.length > limit };
    },
    cancel: async (orgId, id, settle) => {
      const { result_files: urls, status } = await get(orgId, id);
      return cancelJob(
        { orgId, id },
        async (tx, job) => {
          const view = jobView(job, job.status === status ? urls : []);
          await settle(tx, view);
          return view;
        },
        deps,
      );
    },
    events: async (orgId, id, { after, limit, order }) => {
      await ownJob(db.read, orgId, id);
      const rows = await pageOfEvents(db.read, id, { afterId: after, order, count: limit + 1 });
      return { object: 'list', data: rows.slice(0, limit).map(eventView), has_more: rows.length > limit };
    },
    checkpoints: async (orgId, id, { after, limit }) => {
      await ownJob(db.read, orgId, id);
      if (after !== undefined && !(await isCheckpoint(db.read, id, after)))
        return failField('after', 'must be the id of a checkpoint of this list');
      const rows = await pageOfCheckpoints(db.read, id, { afterId: after, count: limit + 1 });
      const data = rows.slice(0, limit).map(checkpointView);
      const ends = { first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null };
      return { object: 'list', data, ...ends, has_more: rows.length > limit };
    },
    quotes: (report) => quotesOf(report, catalog),
    refuseInUse: async (tx, fileId) => {
      const jobId = await store.jobWithFile(tx, fileId);
      if (jobId !== undefined)
        fail(
          'conflict',
          `The fine-tuning job ${jobId} reads this file. Delete it when the job has ended, or cancel the job.`,
        );
    },
    driver: openDriver(deps),
    isJob: (instanceId) => instanceId.startsWith('ftjob_'),
    noteObserved: (tx, jobId) => store.makeDue(tx, jobId, clock.now()),
    takeEvents: (machineId, workloadId, events) => takeEvents({ machineId, workloadId }, events, deps),
    urlFor: (machineId, workloadId, purpose) => urlFor({ machineId, workloadId }, purpose, deps),
    namedBlobs: (keys) => namedBlobs(db.read, keys),
    machinesOf: machinesOfJobs,
    jobsOf: jobsOfMachines,
    skip: (step) => db.tx('finetuning.skip', (tx) => skipStep(tx, step)),
    chargedTimes,
  };
}

async function ownJob(query: Query, orgId: string, id: string): Promise<store.Job> {
  const job = await store.findJob(query, id);
  return job?.org_id === orgId ? job : failMissing(id);
}

/** The URLs are new at each read, and anybody who has one may read the file until it expires. */
async function shown(job: store.Job, deps: FineTuningDeps): Promise<FineTuningJob> {
  const { blobs, clock } = deps;
  const expiresS = Math.floor((clock.now() + FINE_TUNING_URL_MS) / 1000);
  const results = resultsOf(job, await filesOf(deps.db.read, job.id));
  const allowed = results.flatMap(({ blob_key: key, name }) =>
    key === null ? [] : [{ method: 'GET' as const, key, expiresS, filename: name }],
  );
  const urls = allowed.length === 0 ? [] : await blobs.presignAll(allowed);
  return jobView(
    job,
    urls.map(({ url }) => url),
  );
}

function openDriver(deps: FineTuningDeps): Driver {
  const { clock, db } = deps;
  const driven = new Set<string>();
  let reading = new Set<string>();
  const dueJobs = async (reads: boolean, limit: number): Promise<string[]> =>
    (await store.dueJobs(db.read, clock.now(), { reads, limit })).filter((id) => !driven.has(id));
  return {
    name: 'finetuning',
    due: async (_nowMs, limit) => {
      const still = [...reading].filter((id) => driven.has(id));
      const more = (await dueJobs(true, limit)).slice(0, Math.max(0, READING_MAX - still.length));
      reading = new Set([...still, ...more]);
      return [...more, ...(await dueJobs(false, limit))].slice(0, DRIVEN_MAX - driven.size);
    },
    drive: async (id, signal) => {
      driven.add(id);
      try {
        await driveJob(id, deps, signal);
      } catch (error) {
        // The job is postponed, so that a job that cannot be driven does not delay the others.
        await db.tx('finetuning.postpone', (tx) => store.postpone(tx, id, clock.now() + POSTPONED_MS));
        throw error;
      } finally {
        driven.delete(id);
      }
    },
  };
}
