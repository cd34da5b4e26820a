// Submits a job to a server. The row names the server before the request is sent, so that a crash in between is noticed.
//
// A server returns its id of the job only in its answer. If the process dies before that id is stored, it is unknown whether the server has
// begun, and the job is sent again. The server may then make it twice. The customer gets one video and pays for one.
//
// From the claim on, the job counts as one that the server may work on. So a job that is cancelled while the server has not answered yet takes its
// slot, and a place of its organisation, until the answer is there (`release` in steps.ts).
import { UPSTREAM_ATTEMPTS_MAX } from '../../../shared/limits.ts';
import type { CatalogModel, Upstream } from '../catalog/models.ts';
import type { StepDeps } from './deps.ts';
import { type Answer, takesDelete } from './servers.ts';
import { failJob, note, waitMs } from './states.ts';
import { againMs } from './plan.ts';
import * as store from './store.ts';

/** Tries one server after another until one accepts the job. If none does, the job stays in the queue. */
export async function submitJob(read: store.Job, deps: StepDeps, signal: AbortSignal): Promise<void> {
  const job = read.upstream === null ? read : await noteLost(read, deps);
  if (job === undefined) return;
  let asked = 0;
  for (const upstream of await inOrder(deps.upstreamsOf(job), deps)) {
    if (signal.aborted) return;
    if (asked === UPSTREAM_ATTEMPTS_MAX) break;
    const leave = deps.places.take(upstream.base_url, 'submit');
    if (leave === undefined) continue;
    try {
      const claimed = await claim(job, upstream, deps);
      if (claimed === 'over') return;
      if (claimed !== 'mine') continue;
      asked += 1;
      const claimedJob = { ...job, ...claimOf(upstream.base_url) };
      if ((await ask(claimedJob, upstream, deps, signal)) === 'over') return;
    } finally {
      leave();
    }
  }
  const nowMs = deps.clock.now();
  await note(job, { due_ms: nowMs + againMs(nowMs - job.created_ms) }, deps);
}

/** How long a server that has not taken a submission comes after the others. */
const SKIPPED_LAST_MS = 60_000;

/**
 * The servers, the least busy one for its weight first. One that is away, or that loses jobs, has none. So it would always be the first, and several
 * of them would use up all tries.
 */
async function inOrder(all: readonly Upstream[], deps: StepDeps): Promise<Upstream[]> {
  const { db } = deps;
  const loads = await Promise.all(
    all.map(async (upstream) => ({ upstream, count: await store.countAt(db.read, upstream.base_url) })),
  );
  return loads
    .toSorted((a, b) => (a.count + 1) / a.upstream.weight - (b.count + 1) / b.upstream.weight)
    .map(({ upstream }) => upstream)
    .toSorted((a, b) => Number(wasSkipped(a, deps)) - Number(wasSkipped(b, deps)));
}

function wasSkipped({ base_url: url }: Upstream, { clock, skippedMs }: StepDeps): boolean {
  return clock.monotonicMs() - (skippedMs.get(url) ?? -Infinity) < SKIPPED_LAST_MS;
}

/** `over`: the job is not in the queue any more, or another process sends it. */
type Claimed = 'mine' | 'over' | 'full' | 'not mine';

/**
 * Takes a slot of the server for the job, unless the server is full, or its free slots belong to other jobs of its models (`not mine`): the first of
 * them is due at once then. A waiting job asks more rarely the older it is, so it would never get a slot otherwise. At a server that has not taken a
 * submission just now, the order does not count, because it may be the first job that the server does not take. The lock of the server makes
 * simultaneous jobs count one after another.
 */
async function claim(job: store.Job, upstream: Upstream, deps: StepDeps): Promise<Claimed> {
  const { db, clock, catalog, nudge } = deps;
  const { base_url: url, max_open_requests: max } = upstream;
  const isHere = ({ upstreams }: CatalogModel): boolean => upstreams.some((each) => each.base_url === url);
  const models = new Set([job.model_id, ...catalog.models.filter(isHere).map(({ id }) => id)]);
  await db.tx('videos.server', (tx) => store.knowServer(tx, url));
  const claimed = await db.tx('videos.claim', async (tx): Promise<Claimed> => {
    await tx.lock('video_server', url);
    const free = max - (await store.countAt(tx, url));
    if (free <= 0) return 'full';
    const line = { jobId: job.id, free };
    const next = (wasSkipped(upstream, deps) ? undefined : await store.nextInLine(tx, [...models], line)) ?? job.id;
    await tx.lock('video', next);
    if (next === job.id) return (await store.patchJob(tx, job, claimOf(url))) ? 'mine' : 'over';
    await store.postpone(tx, next, clock.now());
    return 'not mine';
  });
  if (claimed === 'not mine') nudge();
  return claimed;
}

/** The row names the server to which the job is about to be sent. */
function claimOf(upstream: string): Pick<store.Job, 'upstream' | 'upstream_open'> {
  return { upstream, upstream_open: true };
}

/** Sends a job that was claimed for this server. */
async function ask(
  job: store.Job,
  upstream: Upstream,
  deps: StepDeps,
  signal: AbortSignal,
): Promise<'over' | 'passed over'> {
  if (job.request === null) throw new Error(`${job.id} has no request any more`);
  const answer = await deps.servers.submit(upstream, job.request, signal);
  const { is } = answer;
  if (is === 'accepted') {
    await noteAccepted(job, upstream, answer, { ...deps, signal });
    return 'over';
  }
  // The answer is missing because this process stops. The next process counts the submission as lost.
  if (signal.aborted) return 'over';
  const fields = { video: job.id, upstream: upstream.base_url, reason: answer.reason };
  if (is === 'refused') {
    deps.log.info(fields, 'a server refuses a video');
    const message = `${job.model_id} does not take this request. Check its prompt and its parameters.`;
    await note(job, { upstream_open: false }, deps);
    await failJob(job, { code: 'invalid_request', message }, deps);
    return 'over';
  }
  deps.counts.failed(upstream.base_url);
  deps.log.warn(fields, 'a server is skipped for a video');
  deps.skippedMs.set(upstream.base_url, deps.clock.monotonicMs());
  if (is === 'lost') {
    const lost = await noteLost(job, deps);
    if (lost !== undefined) await note(lost, { due_ms: deps.clock.now() + waitMs(lost.submissions_lost) }, deps);
    return 'over';
  }
  await note(job, { upstream: null, upstream_open: false }, deps);
  return 'passed over';
}

/** Stores the server's id of the job, also if the job was cancelled meanwhile, because the server's work must then be stopped. */
async function noteAccepted(
  job: store.Job,
  upstream: Upstream,
  { upstreamJobId }: Extract<Answer, { is: 'accepted' }>,
  { db, clock, servers, signal }: StepDeps & { signal: AbortSignal },
): Promise<void> {
  const nowMs = clock.now();
  const isNoted = await db.tx('videos.accepted', async (tx) => {
    await tx.lock('video', job.id);
    if (!(await store.noteAccepted(tx, job, upstreamJobId, nowMs))) return false;
    await store.noteTurn(tx, job.org_id, nowMs);
    return true;
  });
  // Another process has counted this submission as lost, so no row names what the server makes.
  if (!isNoted && takesDelete(upstream)) await servers.release(upstream, upstreamJobId, signal);
}

/** Counts a lost submission. The plan decides how many are allowed. Undefined if the job has changed meanwhile. */
async function noteLost(job: store.Job, { db }: StepDeps): Promise<store.Job | undefined> {
  const lost = { upstream: null, upstream_open: false, submissions_lost: job.submissions_lost + 1 };
  const isNoted = await db.tx('videos.lost', (tx) => store.patchJob(tx, job, lost));
  return isNoted ? { ...job, ...lost } : undefined;
}
