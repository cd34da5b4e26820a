// The interface of this room: commands for video jobs, and what drives them.
import type { VideoJob } from '../../../shared/api/videos.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Cursor } from '../../base/http/cursors.ts';
import type { Reply } from '../../base/http/route.ts';
import type { Driver } from '../../base/operations/engine.ts';
import { openExchanges } from '../../base/outbound/exchange.ts';
import { policyOf } from '../catalog/model-servers.ts';
import { cancelJob, deleteJob } from './cancel.ts';
import { type Counts, openCounts, type StepDeps, type VideosDeps } from './deps.ts';
import { openDriver } from './driver.ts';
import { openPlaces } from './places.ts';
import { openServers } from './servers.ts';
import * as store from './store.ts';
import { submit, type SubmitCall } from './submit.ts';
import { videoView } from './view.ts';

export interface Videos {
  submit(call: SubmitCall): Promise<Reply>;
  /** @throws ServiceError `not_found`, also for a job of another organisation and for a deleted one */
  get(orgId: string, id: string): Promise<store.Job>;
  list(orgId: string, start: store.ListStart): Promise<store.Job[]>;
  /** The jobs in the form of the API. Jobs of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<Map<string, VideoJob>>;
  /** The cursor of the page after a job, also if the job was deleted meanwhile. @throws ServiceError `validation_failed` */
  positionOf(orgId: string, id: string): Promise<Cursor>;
  /**
   * Cancels a job, and calls `settle` with the result. A job that has ended, or whose video is finished, stays unchanged.
   * @throws ServiceError `not_found`
   */
  cancel(orgId: string, id: string, settle: (tx: Tx, job: store.Job) => Promise<void>): Promise<store.Job>;
  /** Deletes a job that has ended, and its file. @throws ServiceError `not_found`, `conflict` */
  remove(orgId: string, id: string): Promise<void>;
  driver: Driver;
  /** The blob keys that belong to a job. */
  namedBlobs(keys: readonly string[]): Promise<readonly string[]>;
  /** Counts for the operator's metrics. */
  readonly counts: Pick<Counts, 'endings' | 'failures'>;
  close(): Promise<void>;
}

export function openVideos(deps: VideosDeps): Videos {
  const { db, catalog } = deps;
  const exchanges = openExchanges(policyOf(catalog), deps);
  const counts = openCounts();
  const places = openPlaces();
  const stepDeps: StepDeps = {
    ...deps,
    counts,
    places,
    skippedMs: new Map(),
    servers: openServers({ ...deps, exchanges, places }),
    upstreamsOf: ({ model_id: id }) =>
      catalog.models.find((model) => model.id === id && model.modality === 'video')?.upstreams ?? [],
  };
  return {
    submit: (call) => submit(call, deps),
    get: async (orgId, id) => {
      const job = await store.findJob(db.read, id);
      return job?.org_id === orgId && job.deleted_ms === null ? job : notFound(id);
    },
    list: (orgId, start) => store.pageOfJobs(db.read, orgId, start),
    describe: async (query, orgId, ids) => {
      const jobs = await Promise.all(ids.map((id) => store.findJob(query, id)));
      return new Map(
        jobs.flatMap((job) => (job?.org_id === orgId && job.deleted_ms === null ? [[job.id, videoView(job)]] : [])),
      );
    },
    positionOf: async (orgId, id) => {
      const job = await store.findJob(db.read, id);
      if (job?.org_id !== orgId) return failField('after', 'must be the id of a video of this list');
      return { createdMs: job.created_ms, id };
    },
    cancel: (orgId, id, settle) => cancelJob({ orgId, id }, settle, stepDeps),
    remove: (orgId, id) => deleteJob({ orgId, id }, stepDeps),
    driver: openDriver(stepDeps),
    namedBlobs: (keys) => store.namedBlobs(db.read, keys),
    counts,
    close: () => exchanges.close(),
  };
}

function notFound(id: string): never {
  return fail('not_found', `There is no video ${id}.`);
}
