// Performs the steps of the plan. Each step reads its facts again in its transaction, under the lock of the organisation, and does nothing if
// the plan is another one by then. So several control planes may drive the same job.
import { dollarText } from '../../../shared/money.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { findMachine } from '../../fleet/supply/store.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import { findAttempt, patchAttempt } from './attempts.ts';
import type { FineTuningDeps } from './deps.ts';
import { dropBlobs, filesOf, type JobFileRow } from './files.ts';
import { placeJob } from './placing.ts';
import { type Facts, plan, type Step } from './plan.ts';
import { appendEvents, forgetEvents } from './events.ts';
import { failure, isOpen, move, type Move } from './states.ts';
import * as store from './store.ts';
import { blobMatches, noteVerified } from './verify-files.ts';

const LOOK_MS = 30_000;

/** Does the next step of a job. */
export async function driveJob(id: string, deps: FineTuningDeps, signal: AbortSignal): Promise<void> {
  const facts = await factsOf(deps.db.read, id, deps);
  if (facts === undefined) return;
  const step = plan(facts, deps.clock.now());
  // The steps `verify` and `validate` read blobs, so these reads happen outside of the transaction.
  if (step.do === 'verify') {
    const isRight = await blobMatches(step.file, deps.blobs, signal);
    if (!signal.aborted) await noteVerified(facts.job, step.file, isRight, deps);
    return;
  }
  const isThere = step.do !== 'validate' || (await hasBlob(facts.job, deps));
  const dropped: string[] = [];
  const { touched, next } = await deps.db.tx('finetuning.step', async (tx) => {
    await tx.lock('org', facts.job.org_id);
    const now = await factsOf(tx, id, deps);
    const nowMs = deps.clock.now();
    const again = now && plan(now, nowMs);
    if (now === undefined || again?.do !== step.do) return { touched: [], next: [] };
    dropped.splice(0, dropped.length, ...(again.do === 'forget' ? keysOf(now.files) : []));
    const waiting = again.do === 'place' ? await placeJob(tx, now, nowMs, deps) : [];
    if (again.do !== 'place') await perform(tx, now, { step: again, nowMs, isThere }, deps);
    const after = await store.findJob(tx, id);
    return { touched: await machinesOf(tx, [now.job.workload_id, after?.workload_id]), next: waiting };
  });
  for (const machineId of new Set(touched)) deps.push(machineId);
  await wakeNext(next, deps);
  for (const key of dropped) await deps.blobs.remove(key);
}

/** Jobs of other organisations are not locked by the step, so they become due in a transaction of their own. */
async function wakeNext(ids: readonly string[], { db, clock, nudge }: FineTuningDeps): Promise<void> {
  if (ids.length === 0) return;
  await db.tx('finetuning.wake', (tx) => store.wake(tx, ids, clock.now()));
  nudge();
}

async function machinesOf(query: Query, workloadIds: readonly (string | null | undefined)[]): Promise<string[]> {
  const found = await Promise.all(
    workloadIds.map(async (id) => (id == null ? undefined : (await findAttempt(query, id))?.machine_id)),
  );
  return found.filter((id) => id !== undefined);
}

async function hasBlob({ file_key: key, file_bytes: bytes }: store.Job, { blobs }: FineTuningDeps): Promise<boolean> {
  const blob = await blobs.open(key);
  await blob?.close();
  return blob?.bytes === bytes;
}

function keysOf(files: readonly JobFileRow[]): string[] {
  return files.flatMap(({ blob_key: key }) => (key === null ? [] : [key]));
}

/** Undefined if there is no such job. */
async function factsOf(query: Query, id: string, { quiet }: Pick<FineTuningDeps, 'quiet'>): Promise<Facts | undefined> {
  const job = await store.findJob(query, id);
  if (job === undefined) return undefined;
  const files = await filesOf(query, id);
  const attempt = job.workload_id === null ? undefined : await findAttempt(query, job.workload_id);
  const workload = attempt === undefined ? undefined : await findWorkload(query, attempt.id);
  const machine = attempt === undefined ? undefined : await findMachine(query, attempt.machine_id);
  const observed = workload === undefined || workload.state === 'gone' ? 'gone' : workload.observed;
  return {
    job,
    attempt,
    files,
    quiet,
    observed: attempt === undefined ? null : observed,
    endedMs: workload?.ended_ms ?? null,
    isRemoving: workload?.state === 'removing',
    isOnline: machine?.online === true,
  };
}

interface Due {
  step: Exclude<Step, { do: 'place' }>;
  nowMs: number;
  /** True if the content of the training file exists. Only the step `validate` uses this. */
  isThere: boolean;
}

async function perform(tx: Tx, facts: Facts, { step, nowMs, isThere }: Due, deps: FineTuningDeps): Promise<void> {
  const { job, attempt } = facts;
  const to = (next: Omit<Move, 'nowMs'>): Promise<void> => move(tx, { job, attempt }, { ...next, nowMs }, deps);
  switch (step.do) {
    case 'validate':
      return isThere ? to(QUEUED) : to(FILE_GONE);
    case 'start':
      if (attempt !== undefined) await patchAttempt(tx, attempt.id, { started_ms: nowMs, charged_through_ms: nowMs });
      return to({ to: 'running', event: { level: 'info', message: 'The training runs.' } });
    case 'verify':
      return;
    case 'note-stop':
      if (attempt !== undefined) await patchAttempt(tx, attempt.id, { stopped_ms: step.atMs });
      return store.patchJob(tx, job.id, { due_ms: nowMs });
    case 'note-offline':
      if (attempt !== undefined)
        await patchAttempt(tx, attempt.id, { offline_since_ms: step.isOffline ? nowMs : null });
      return store.patchJob(tx, job.id, { due_ms: nowMs });
    case 'leave':
      return leave(tx, facts, { ...step, nowMs }, deps);
    case 'succeed':
      return to({
        to: 'succeeded',
        chargedThroughMs: attempt?.stopped_ms ?? undefined,
        event: { level: 'info', message: 'The job has succeeded. Its files are ready.' },
      });
    case 'fail':
      return to(failure(step.code, step.message));
    case 'exhaust':
      return to({ ...failure('budget_exceeded', exhaustedText(facts)), chargedThroughMs: provenStopMs(facts) });
    case 'cancel':
      return to({
        to: 'cancelled',
        chargedThroughMs: provenStopMs(facts),
        event: { level: 'info', message: 'The job was cancelled.' },
      });
    case 'remove':
      if (attempt !== undefined) await deps.workloads.remove(tx, attempt.id);
      return store.patchJob(tx, job.id, { due_ms: nowMs });
    case 'forget':
      await dropBlobs(
        tx,
        facts.files.map(({ id }) => id),
      );
      await forgetEvents(tx, job.id);
      return store.patchJob(tx, job.id, { due_ms: null });
    case 'wait':
      return store.patchJob(tx, job.id, { due_ms: nextLookMs(facts, step.untilMs, nowMs) });
  }
}

/** When the job is due next. A job on a machine is due again after LOOK_MS, because a machine that loses its link does not make its job due. */
function nextLookMs({ job, attempt }: Facts, untilMs: number | null, nowMs: number): number | null {
  if (attempt === undefined || !isOpen(job)) return untilMs;
  return Math.min(untilMs ?? Number.POSITIVE_INFINITY, nowMs + LOOK_MS);
}

const QUEUED: Omit<Move, 'nowMs'> = {
  to: 'queued',
  event: { level: 'info', message: 'The training file is valid. The job waits for a machine.' },
};
const FILE_GONE = failure('not_found', 'The content of the training file is gone. Upload it again.');

/**
 * The end of the program, if a verified result proves its work. If the host has not reported the end, the result was announced before it. Without a
 * result, nothing beyond the last checkpoint is charged.
 */
function provenStopMs({ attempt, files }: Facts): number | undefined {
  const last = files.findLast(
    (file) => file.kind === 'result' && file.workload_id === attempt?.id && file.state === 'verified',
  );
  return last === undefined ? undefined : (attempt?.stopped_ms ?? last.created_ms);
}

function exhaustedText({ job, files }: Facts): string {
  const kept = files.some(({ state }) => state === 'verified') ? ' What was trained until then is kept.' : '';
  return `The budget of $${dollarText(job.budget_ucents)} is used up.${kept}`;
}

/** Gives the machine up. What it has trained since the last verified checkpoint is lost and not charged. */
async function leave(
  tx: Tx,
  { job, attempt }: Facts,
  { because, detail, nowMs }: Extract<Step, { do: 'leave' }> & { nowMs: number },
  deps: FineTuningDeps,
): Promise<void> {
  const ids = { job_id: job.id, machine_id: attempt?.machine_id };
  deps.log.warn({ ...ids, because, detail }, 'a fine-tuning job leaves its machine');
  const message = `Another machine is tried: ${because}. Nothing after the last checkpoint is charged.`;
  const event = { level: 'warn' as const, message };
  if (job.status === 'running')
    return move(tx, { job, attempt }, { to: 'queued', nowMs, event, patch: { workload_id: null } }, deps);
  if (job.workload_id !== null) await deps.workloads.remove(tx, job.workload_id);
  await store.patchJob(tx, job.id, { workload_id: null, queued_ms: nowMs, due_ms: nowMs });
  await appendEvents(tx, job, [event], { ...deps, nowMs });
}
