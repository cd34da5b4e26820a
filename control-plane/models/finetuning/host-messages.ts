// What messages of a host do for its jobs: it reports events, or needs the URL of a file.
import { FINE_TUNING_URL_MS } from '../../../shared/limits.ts';
import type { JobUrlAnswer, JobUrlPurpose, SentJobEvent } from '../../../shared/protocol/job.ts';
import type { Permission } from '../../base/blobs/blobs.ts';
import type { Query } from '../../base/db/db.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import { type Attempt, findAttempt, patchAttempt } from './attempts.ts';
import type { FineTuningDeps } from './deps.ts';
import { appendEvents, eventOf } from './events.ts';
import { findFile, findFileById, insertFile, type JobFileRow, moveFile, sizeOfFiles } from './files.ts';
import { INPUTS } from './placing.ts';
import { findJob, type Job, makeDue } from './store.ts';

const MIB = 1024 ** 2;
/** Limits for the files of one attempt. A checkpoint comes every few minutes, so these last for a month. */
const FILES_PER_ATTEMPT_MAX = { checkpoint: 10_000, result: 1_000 };

interface Owned {
  job: Job;
  attempt: Attempt;
}

/** The attempt of this machine. A host may ask for files until its workload is gone. */
async function owned(machineId: string, workloadId: string, { db }: FineTuningDeps): Promise<Owned | undefined> {
  const attempt = await findAttempt(db.read, workloadId);
  if (attempt?.machine_id !== machineId) return undefined;
  const job = await findJob(db.read, attempt.job_id);
  return job === undefined || !(await isWanted(db.read, workloadId)) ? undefined : { job, attempt };
}

async function isWanted(query: Query, workloadId: string): Promise<boolean> {
  return (await findWorkload(query, workloadId))?.state === 'wanted';
}

/**
 * Stores the events that are not stored yet. Resolves with the offset from which the host should go on; undefined if the job is not on this
 * machine.
 */
export async function takeEvents(
  from: { machineId: string; workloadId: string },
  events: readonly SentJobEvent[],
  deps: FineTuningDeps,
): Promise<number | undefined> {
  const found = await owned(from.machineId, from.workloadId, deps);
  if (found === undefined) return undefined;
  if (!events.some(({ end }) => end > found.attempt.events_offset)) return found.attempt.events_offset;
  const nowMs = deps.clock.now();
  return deps.db.tx('finetuning.events', async (tx) => {
    await tx.lock('org', found.job.org_id);
    const [attempt, job] = [await findAttempt(tx, from.workloadId), await findJob(tx, found.job.id)];
    if (attempt === undefined || job === undefined) return undefined;
    const fresh = events.filter(({ end }) => end > attempt.events_offset).toSorted((a, b) => a.end - b.end);
    const last = fresh.at(-1);
    if (last === undefined) return attempt.events_offset;
    const shown = fresh.flatMap(({ event }) => eventOf(event, attempt, nowMs) ?? []);
    await appendEvents(tx, job, shown, { ...deps, nowMs });
    const figures = fresh.findLast(({ event }) => event.step !== undefined && event.loss !== undefined)?.event;
    await patchAttempt(tx, attempt.id, {
      events_offset: last.end,
      ...(figures === undefined ? {} : { last_step: figures.step ?? null, last_loss: String(figures.loss) }),
    });
    return last.end;
  });
}

/** The URL for a file of a job; undefined if the job is not on this machine. */
export async function urlFor(
  from: { machineId: string; workloadId: string },
  purpose: JobUrlPurpose,
  deps: FineTuningDeps,
): Promise<JobUrlAnswer | undefined> {
  const found = await owned(from.machineId, from.workloadId, deps);
  if (found === undefined) return undefined;
  return purpose.kind === 'input' ? inputUrl(found, purpose.name, deps) : outputUrl(found, purpose, deps);
}

async function inputUrl({ job, attempt }: Owned, name: string, deps: FineTuningDeps): Promise<JobUrlAnswer> {
  const checkpoint =
    name === INPUTS.checkpoint && attempt.resume_file_id !== null
      ? await findFileById(deps.db.read, attempt.resume_file_id)
      : undefined;
  const key = name === INPUTS.data ? job.file_key : checkpoint?.blob_key;
  if (key == null) return { kind: 'refused', detail: `the job has no input ${name}` };
  return allowed({ method: 'GET', key }, deps);
}

/**
 * The URL to which the host uploads a file. A file has one row: a host that asks again gets the same blob, and the answer `stored` once the file
 * is there.
 */
async function outputUrl(
  { job, attempt }: Owned,
  purpose: Exclude<JobUrlPurpose, { kind: 'input' }>,
  deps: FineTuningDeps,
): Promise<JobUrlAnswer> {
  const { db, ids, blobs, clock } = deps;
  const { kind, file } = purpose;
  const bytesMax = job.terms.result_mib_max * MIB;
  const which = { workload_id: attempt.id, kind, name: file.name };
  const known = await findFile(db.read, which);
  if (known !== undefined) return knownUrl(job, known, file, deps);
  const step = purpose.kind === 'checkpoint' ? purpose.step : 0;
  const row: JobFileRow = {
    ...which,
    id: ids.prefixed('ftckpt'),
    job_id: job.id,
    step,
    loss: purpose.kind === 'checkpoint' && attempt.last_step === step ? attempt.last_loss : null,
    bytes: file.bytes,
    sha256: file.sha256,
    state: 'awaited',
    blob_key: blobs.newKey('finetuning'),
    created_ms: clock.now(),
  };
  const refusal = await db.tx('finetuning.file', async (tx) => {
    await tx.lock('org', job.org_id);
    if ((await findFile(tx, which)) !== undefined) return undefined;
    const refused = refusalOf(await sizeOfFiles(tx, which), row, bytesMax);
    if (refused === undefined) await insertFile(tx, row);
    return refused;
  });
  if (refusal !== undefined) return { kind: 'refused', detail: refusal };
  const inserted = await findFile(db.read, which);
  return inserted === undefined ? { kind: 'refused', detail: 'the job is gone' } : putUrl(inserted, deps);
}

/**
 * Why the host may not upload this file; undefined if it may. `alike`: the files of its attempt and kind. Each kind has limits of its own, because a
 * long job with many checkpoints must not lose its result. Without limits, a host could fill the storage with many or large files.
 */
function refusalOf(
  alike: { count: number; bytes: number },
  { kind, name, bytes }: Pick<JobFileRow, 'kind' | 'name' | 'bytes'>,
  bytesMax: number,
): string | undefined {
  if (alike.count >= FILES_PER_ATTEMPT_MAX[kind]) return `the job has too many files of the kind ${kind}`;
  // Older checkpoints are removed, so only the size of the new one counts. The files of a result are kept, so their sizes count together.
  const all = kind === 'result' ? alike.bytes + bytes : bytes;
  return all > bytesMax ? `${name} is beyond the ${bytesMax} bytes that a job may leave` : undefined;
}

async function knownUrl(
  job: Job,
  known: JobFileRow,
  file: { bytes: number; sha256: string },
  deps: FineTuningDeps,
): Promise<JobUrlAnswer> {
  if (known.state === 'verified' || known.state === 'uploaded') return { kind: 'stored' };
  const isSame = known.bytes === file.bytes && known.sha256 === file.sha256;
  if (known.state === 'wrong' || !isSame)
    return {
      kind: 'refused',
      detail: `${known.name} was announced before with another size or hash, or was not as announced`,
    };
  const blob = known.blob_key === null ? undefined : await deps.blobs.open(known.blob_key);
  await blob?.close();
  if (blob === undefined) return putUrl(known, deps);
  const isStored = await deps.db.tx('finetuning.uploaded', async (tx) => {
    await tx.lock('org', job.org_id);
    // A job that has left the machine meanwhile is not charged for the file, so it must not go on from it.
    if (!(await isWanted(tx, known.workload_id))) return false;
    await moveFile(tx, known.id, { from: 'awaited', to: 'uploaded' });
    await makeDue(tx, job.id, deps.clock.now());
    return true;
  });
  if (!isStored) return { kind: 'refused', detail: 'the job has left this machine' };
  deps.nudge();
  return { kind: 'stored' };
}

async function putUrl({ blob_key: key, bytes }: JobFileRow, deps: FineTuningDeps): Promise<JobUrlAnswer> {
  if (key === null) return { kind: 'refused', detail: 'the file is not wanted any more' };
  return allowed({ method: 'PUT', key, bytes }, deps);
}

async function allowed(
  permission: Omit<Permission, 'expiresS'>,
  { blobs, clock }: FineTuningDeps,
): Promise<JobUrlAnswer> {
  const expiresS = Math.floor((clock.now() + FINE_TUNING_URL_MS) / 1000);
  const { url, headers } = await blobs.presign({ ...permission, expiresS });
  return { kind: 'url', url, headers };
}
