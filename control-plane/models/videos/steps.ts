// Performs the steps of the plan: sends a request to a server, then applies the result if the job has not changed meanwhile.
import { ServiceError } from '../../../shared/errors.ts';
import { VIDEO_KEEP_MS } from '../../../shared/limits.ts';
import { removeUnnamed } from '../../base/blobs/blobs.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import type { Upstream } from '../catalog/models.ts';
import type { StepDeps } from './deps.ts';
import { submitMsMax, takesDelete, type Standing } from './servers.ts';
import { endJob, failJob, type Failure, note, noteSilence, isOpen, move } from './states.ts';
import { againMs, SILENCES_MAX, type Step } from './plan.ts';
import type { Job } from './store.ts';
import { submitJob } from './submissions.ts';

/** Number of failures after which a server is no longer asked to let go of a job. */
const RELEASE_FAILURES_MAX = 5;
const NEVER_BEGAN = {
  error_code: 'upstream_unavailable',
  error_message: 'No server began with this video within two hours. Nothing was charged. Send the request again.',
} as const;

export async function perform(job: Job, step: Step, deps: StepDeps, signal: AbortSignal): Promise<void> {
  switch (step.do) {
    case 'submit':
      return submitJob(job, deps, signal);
    case 'poll':
      return poll(job, step, deps, signal);
    case 'fetch':
      return fetchVideo(job, deps, signal);
    case 'release':
      return release(job, deps, signal);
    case 'expire':
      return expire(job, deps);
    case 'fail':
      return failJob(job, step, deps);
    case 'wait':
      return note(job, { due_ms: step.untilMs }, deps);
  }
}

/** The server that has the job; undefined if it is not in the catalog any more. */
export function serverOf(job: Job, { upstreamsOf }: Pick<StepDeps, 'upstreamsOf'>): Upstream | undefined {
  return upstreamsOf(job).find(({ base_url: url }) => url === job.upstream);
}

/** The server answered 200 without an MP4. */
class NoVideo extends Error {}

/** The type of an MP4's first box. It follows the four bytes of the length. */
const FIRST_BOX = 'ftyp';
const HEAD_BYTES = 8;

/**
 * Yields the bytes of `body` unchanged. An error page with status 200 is no video file, so it is not charged.
 * @throws NoVideo before the first byte if it is not an MP4, and what `body` throws
 */
async function* checkedVideo(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let head = Buffer.alloc(0);
  for await (const piece of body) {
    if (head.length >= HEAD_BYTES) {
      yield piece;
      continue;
    }
    head = Buffer.concat([head, piece]);
    if (head.length < HEAD_BYTES) continue;
    if (head.toString('latin1', 4, HEAD_BYTES) !== FIRST_BOX) break;
    yield head;
  }
  if (head.toString('latin1', 4, HEAD_BYTES) !== FIRST_BOX) throw new NoVideo('what came is no MP4 file');
}

type Poll = Extract<Step, { do: 'poll' }>;

const TOO_LATE: Failure = {
  code: 'upstream_timeout',
  message: 'The model did not finish the video in time. Send the request again.',
};

async function poll(job: Job, { late }: Pick<Poll, 'late'>, deps: StepDeps, signal: AbortSignal): Promise<void> {
  const { upstream, upstreamJobId } = placeOf(job, deps);
  const report = await deps.servers.report(upstream, upstreamJobId, signal);
  if (signal.aborted) return;
  const isSilent = report.status === 'silent' && job.failures + 1 >= SILENCES_MAX;
  const isStuck = isSilent || report.status === 'queued' || report.status === late;
  if (late === 'queued' && isStuck) return expire(job, deps);
  if (late !== null && isStuck) return failJob(job, TOO_LATE, deps);
  switch (report.status) {
    case 'silent':
      return noteSilence(job, report.reason, deps);
    case 'gone':
      return failJob(job, { code: 'upstream_error', message: 'The server that made this video has lost it.' }, deps);
    case 'failed':
      return failJob(job, { code: 'upstream_error', message: 'The model could not make this video.' }, deps);
    case 'queued': {
      const nowMs = deps.clock.now();
      return note(job, { failures: 0, due_ms: nowMs + againMs(nowMs - job.created_ms) }, deps);
    }
    case 'in_progress':
    case 'completed':
      return advance(job, report, deps);
  }
}

/** Stores the progress. If the server has finished, the job cannot be cancelled from now on. */
async function advance(job: Job, { status, progress }: Standing, deps: StepDeps): Promise<void> {
  const nowMs = deps.clock.now();
  const startedMs = job.started_ms ?? nowMs;
  const isFinished = status === 'completed';
  const patch = {
    failures: 0,
    // At most 99 until our copy of the file is complete.
    progress: Math.max(job.progress, Math.min(progress, 99)),
    started_ms: startedMs,
    due_ms: isFinished ? nowMs : nowMs + againMs(nowMs - startedMs),
    ...(isFinished ? { committed_ms: nowMs } : {}),
  };
  if (job.status === 'in_progress') return note(job, patch, deps);
  await deps.db.tx('videos.start', async (tx) => {
    await tx.lock('video', job.id);
    await move(tx, job, { to: 'in_progress', patch }, { ...deps, nowMs });
  });
}

/** The file is whole on the disk before the job is completed and charged. If the process dies in between, the sweep of blobs removes the file. */
async function fetchVideo(job: Job, deps: StepDeps, signal: AbortSignal): Promise<void> {
  const { upstream, upstreamJobId } = placeOf(job, deps);
  const key = deps.blobs.newKey('videos');
  try {
    const { body, end } = await deps.servers.file(upstream, upstreamJobId, signal);
    // The store may fail before it reads anything.
    await deps.blobs.write(key, checkedVideo(body), { bytesMax: deps.bytesMax, signal }).finally(end);
  } catch (error) {
    if (signal.aborted) return;
    const failure = finalFailure(error);
    if (failure !== undefined) return failJob(job, failure, deps);
    // Any other error is that of our own store. The job is postponed then, and no try of its server is counted.
    if (!(error instanceof OutboundError)) throw error;
    return noteSilence(job, error.message, deps);
  }
  const kept = { blob_key: key, progress: 100, expires_ms: deps.clock.now() + VIDEO_KEEP_MS };
  if (!(await endJob(job, 'completed', kept, deps))) await removeUnnamed(deps.blobs, key);
}

/** Failures that a retry would not correct. */
function finalFailure(error: unknown): Failure | undefined {
  if (error instanceof NoVideo) return { code: 'upstream_error', message: 'The model gave no video that can be used.' };
  if (!(error instanceof ServiceError)) return undefined;
  switch (error.code) {
    case 'storage_full':
      return { code: error.code, message: 'There was no room to keep the video. Try again later.' };
    case 'body_too_large':
      return { code: 'upstream_response_too_large', message: 'The video is larger than what is kept. Ask for less.' };
    default:
      return undefined;
  }
}

/**
 * Makes the server let go of a job that has ended here. A server without DELETE finishes every job, and the job takes one of its slots until then. So
 * that server is asked again and again whether the job is over.
 */
async function release(job: Job, deps: StepDeps, signal: AbortSignal): Promise<void> {
  const { servers, clock } = deps;
  const upstream = serverOf(job, deps);
  const id = job.upstream_job_id;
  if (upstream === undefined) return letGo(job, deps);
  if (id === null) return awaitAnswer(job, upstream, deps);
  if (takesDelete(upstream)) {
    if (await servers.release(upstream, id, signal)) return letGo(job, deps);
    if (signal.aborted) return;
    return releaseLater(job, 'it does not let go of a job', deps);
  }
  const nowMs = clock.now();
  const endedMs = job.ended_ms ?? nowMs;
  if (job.committed_ms !== null || nowMs >= endedMs + upstream.video_ms) return letGo(job, deps);
  const report = await servers.report(upstream, id, signal);
  if (report.status === 'queued' || report.status === 'in_progress')
    return note(job, { failures: 0, due_ms: nowMs + againMs(nowMs - endedMs) }, deps);
  if (report.status !== 'silent') return letGo(job, deps);
  if (signal.aborted) return;
  return releaseLater(job, report.reason, deps);
}

/** The job ended while its submission was under way. If the server takes it, the answer brings its id and makes the job due. */
function awaitAnswer(job: Job, upstream: Upstream, deps: StepDeps): Promise<void> {
  const untilMs = (job.ended_ms ?? 0) + submitMsMax(upstream);
  return deps.clock.now() >= untilMs ? letGo(job, deps) : note(job, { due_ms: untilMs }, deps);
}

function letGo(job: Job, deps: StepDeps): Promise<void> {
  return note(job, { upstream_open: false, failures: 0 }, deps);
}

function releaseLater(job: Job, reason: string, deps: StepDeps): Promise<void> {
  return job.failures + 1 >= RELEASE_FAILURES_MAX ? letGo(job, deps) : noteSilence(job, reason, deps);
}

async function expire(job: Job, deps: StepDeps): Promise<void> {
  const why = isOpen(job) ? NEVER_BEGAN : {};
  const isExpired = await endJob(job, 'expired', { ...why, blob_key: null }, deps);
  if (isExpired && job.blob_key !== null) await removeUnnamed(deps.blobs, job.blob_key);
}

/** The plan requests the status of a job only if a server has it. */
function placeOf(job: Job, deps: StepDeps): { upstream: Upstream; upstreamJobId: string } {
  const upstream = serverOf(job, deps);
  if (upstream === undefined || job.upstream_job_id === null) throw new Error(`${job.id} is at no server`);
  return { upstream, upstreamJobId: job.upstream_job_id };
}
