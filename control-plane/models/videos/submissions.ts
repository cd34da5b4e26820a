// Sending a job to a server: each try is in its row before the request goes out, so that a crash in between is known of.
//
// A server gives a job its id only with its answer. Where we die before that is stored, nobody can tell whether the server has begun; the
// job is sent again then. A server may make it twice; the customer gets one video and pays for one.
import { UPSTREAM_ATTEMPTS_MAX } from '../../../shared/limits.ts';
import type { Upstream } from '../catalog/models.ts';
import type { StepDeps } from './deps.ts';
import { failJob, note, waitMs } from './outcome.ts';
import { againMs } from './plan.ts';
import * as store from './store.ts';

/** Asks one server after another until one takes the job; where none has room, it stays in the queue. */
export async function submitJob(read: store.Job, deps: StepDeps, signal: AbortSignal): Promise<void> {
  const job = read.upstream === null ? read : await noteLost(read, deps);
  let asked = 0;
  for (const upstream of await inOrder(deps.upstreamsOf(job), deps)) {
    if (signal.aborted) return;
    if (asked === UPSTREAM_ATTEMPTS_MAX) break;
    if (!(await claim(job, upstream, deps))) continue;
    asked += 1;
    if ((await ask(job, upstream, deps, signal)) === 'over') return;
  }
  const nowMs = deps.clock.now();
  await note(job, { due_ms: nowMs + againMs(nowMs - job.created_ms) }, deps);
}

/** The one with the least to do for its weight first. */
async function inOrder(all: readonly Upstream[], { db }: StepDeps): Promise<Upstream[]> {
  const loads = await Promise.all(
    all.map(async (upstream) => ({ upstream, count: await store.countAt(db.read, upstream.base_url) })),
  );
  return loads
    .toSorted((a, b) => (a.count + 1) / a.upstream.weight - (b.count + 1) / b.upstream.weight)
    .map(({ upstream }) => upstream);
}

/** False where the job is not in the queue any more, or the server has enough to do. */
function claim(job: store.Job, upstream: Upstream, { db }: StepDeps): Promise<boolean> {
  return db.tx('videos.claim', async (tx) => {
    if ((await store.countAt(tx, upstream.base_url)) >= upstream.max_open_requests) return false;
    return store.patchJob(tx, job, { upstream: upstream.base_url });
  });
}

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
    // Also where it was cancelled meanwhile: what the server has begun is to be ended.
    const nowMs = deps.clock.now();
    await deps.db.tx('videos.accepted', (tx) => store.noteAccepted(tx, job.id, answer.upstreamJobId, nowMs));
    return 'over';
  }
  // It is we who end: the next process counts the try as lost.
  if (signal.aborted) return 'over';
  const told = { video: job.id, upstream: upstream.base_url, reason: answer.reason };
  if (is === 'refused') {
    deps.log.info(told, 'a server refuses a video');
    const message = `${job.model_id} does not take this request. Check its prompt and its parameters.`;
    await failJob(job, { code: 'invalid_request', message }, deps);
    return 'over';
  }
  deps.counts.failed(upstream.base_url);
  deps.log.warn(told, 'a server is passed over');
  if (is === 'lost') {
    const { submissions_lost: lost } = await noteLost({ ...job, upstream: upstream.base_url }, deps);
    await note(job, { due_ms: deps.clock.now() + waitMs(lost) }, deps);
    return 'over';
  }
  await note(job, { upstream: null }, deps);
  return 'passed over';
}

/** The plan says how often that may be. */
async function noteLost(job: store.Job, deps: StepDeps): Promise<store.Job> {
  const lost = { upstream: null, submissions_lost: job.submissions_lost + 1 };
  await note(job, lost, deps);
  return { ...job, ...lost };
}
