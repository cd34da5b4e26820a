// The SQL of video jobs.
import { z } from 'zod';
import type { ErrorCode } from '../../../shared/errors.ts';
import type { VideoState } from '../../../shared/states.ts';
import { blobKeyRow, countRow, flag, idRow, int, json, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, raw, type Sql, sql, type Tx } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import { Charge } from '../../money/ledger/charges.ts';

/** The request to the server. */
const Wanted = z.object({
  prompt: z.string(),
  parameters: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
});
export type Wanted = z.infer<typeof Wanted>;

const JobRow = z.object({
  id: text,
  org_id: text,
  api_key_id: text,
  model_id: text,
  status: z.enum(['queued', 'in_progress', 'completed', 'failed', 'cancelled', 'expired']),
  progress: int,
  seconds: int,
  /** The prompt belongs to the customer: it is removed with the file, or at the end of a job that has none. */
  request: json(Wanted).nullable(),
  /** The size of the picture; null if the model has one size. */
  size: text.nullable(),
  held_ucents: ucents,
  charged_ucents: ucents,
  /** The key of its file, while the file is kept. */
  blob_key: text.nullable(),
  /** Base URL of the server that it was sent to. */
  upstream: text.nullable(),
  /** The server's id of the job; null until the server has accepted it. */
  upstream_job_id: text.nullable(),
  /** True if the server may still work on the job, or may keep a copy of the video. */
  upstream_open: flag,
  /** How often the job was submitted without a known outcome (the server died or the answer was lost). */
  submissions_lost: int,
  /** Failures in a row of the present step. */
  failures: int,
  error_code: text.transform((code) => code as ErrorCode).nullable(),
  error_message: text.nullable(),
  created_ms: int,
  /** When the server began to make the video; null before. */
  started_ms: int.nullable(),
  /** When its server had finished the video. The job cannot be cancelled from then on. */
  committed_ms: int.nullable(),
  ended_ms: int.nullable(),
  expires_ms: int.nullable(),
  deleted_ms: int.nullable(),
});
export type Job = z.infer<typeof JobRow>;

const COLUMNS = sql`id, org_id, api_key_id, model_id, status, progress, seconds, request, size, held_ucents, charged_ucents, blob_key,
  upstream, upstream_job_id, upstream_open, submissions_lost, failures, error_code, error_message, created_ms, started_ms, committed_ms,
  ended_ms, expires_ms, deleted_ms`;

const OPEN = sql`status in ('queued', 'in_progress')`;
/** Jobs that have ended without a video, and that their server may still work on. */
const LEFT_OPEN = sql`upstream_open = 1 and status in ('cancelled', 'failed', 'expired')`;

export type NewJob = Pick<
  Job,
  'id' | 'org_id' | 'api_key_id' | 'model_id' | 'seconds' | 'held_ucents' | 'created_ms'
> & {
  request_id: string;
  request: Wanted;
};

/** Inserts a job in `queued`, due at once. */
export async function insertJob(tx: Tx, job: NewJob): Promise<void> {
  const { size } = job.request.parameters;
  await tx.run(
    sql`insert into video_jobs (id, org_id, api_key_id, request_id, model_id, status, seconds, request, size, held_ucents, created_ms, due_ms)
        values (${job.id}, ${job.org_id}, ${job.api_key_id}, ${job.request_id}, ${job.model_id}, 'queued', ${job.seconds},
                ${JSON.stringify(job.request)}, ${typeof size === 'string' ? size : null}, ${job.held_ucents}, ${job.created_ms},
                ${job.created_ms})`,
  );
}

/** Finds deleted jobs too. */
export function findJob(query: Query, id: string): Promise<Job | undefined> {
  return query.one(JobRow, sql`select ${COLUMNS} from video_jobs where id = ${id}`);
}

export interface ListStart extends PageStart {
  order: 'asc' | 'desc';
}

/** The page leaves out deleted jobs. */
export function pageOfJobs(query: Query, orgId: string, start: ListStart): Promise<Job[]> {
  return query.all(
    JobRow,
    sql`select ${COLUMNS} from video_jobs where org_id = ${orgId} and deleted_ms is null
        and ${pageFrom(start, start.order)}`,
  );
}

/** Deletes jobs that were deleted by their owners, cost nothing, and need nothing any more: no receipt refers to them. */
export function forgetDeleted(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from video_jobs where id in (
          select id from video_jobs
          where deleted_ms <= ${untilMs} and charged_ucents = 0 and due_ms is null and upstream_open = 0
          order by deleted_ms limit ${limit})`,
  );
}

/** Counts the jobs that are open, or that a server may still work on. */
export function countOpen(query: Query, orgId: string): Promise<number> {
  return countBusy(query, sql`org_id = ${orgId}`);
}

/** Creates the server's row if it does not exist, so that it can be locked. */
export async function knowServer(tx: Tx, baseUrl: string): Promise<void> {
  await tx.run(sql`insert into video_servers (id) values (${baseUrl}) on conflict (id) do nothing`);
}

/** Counts the jobs that a server may work on, or that are being submitted to it. */
export function countAt(query: Query, upstream: string): Promise<number> {
  return countBusy(query, sql`upstream = ${upstream}`);
}

/** Two counts, because each has an index of its own. */
async function countBusy(query: Query, where: Sql): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select (select count(*) from video_jobs where ${where} and ${OPEN})
             + (select count(*) from video_jobs where ${where} and ${LEFT_OPEN}) as count`,
  );
  return row?.count ?? 0;
}

const TurnRow = z.object({ id: text, place: int });

/**
 * The job of these models that gets the next slot, and `jobId` if it is among those that get one of the `free` slots. Undefined if none waits.
 *
 * Slots go to the organisation with the fewest videos of these models at servers, then to the one of which a server has taken the last video the
 * longest ago, and then to the oldest job.
 */
export async function nextInLine(
  query: Query,
  modelIds: readonly string[],
  { jobId, free }: { jobId: string; free: number },
): Promise<string | undefined> {
  const isOfModels = sql`model_id in (${join([...modelIds])})`;
  const sent = sql`select org_id, count(*) as jobs from video_jobs where ${OPEN} and upstream is not null and ${isOfModels} group by org_id`;
  // The second waiting job of an organisation is its second more at servers, and so on.
  const more = sql`row_number() over (partition by video_jobs.org_id order by created_ms, id)`;
  const rows = await query.all(
    TurnRow,
    sql`select id, place from (
          select id, row_number() over (order by jobs_then, turn_ms, created_ms, id) as place from (
            select id, created_ms, coalesce(sent.jobs, 0) + ${more} as jobs_then, coalesce(taken_ms, 0) as turn_ms
            from video_jobs
              left join (${sent}) as sent on sent.org_id = video_jobs.org_id
              left join video_turns on video_turns.org_id = video_jobs.org_id
            where status = 'queued' and upstream is null and ${isOfModels}) as waiting) as line
        where place = 1 or (id = ${jobId} and place <= ${free})`,
  );
  const own = rows.find(({ id }) => id === jobId);
  return (own ?? rows.find(({ place }) => place === 1))?.id;
}

/** Notes that a server has taken a video of the organisation. */
export async function noteTurn(tx: Tx, orgId: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into video_turns (org_id, taken_ms) values (${orgId}, ${nowMs})
        on conflict (org_id) do update set taken_ms = excluded.taken_ms`,
  );
}

/** Jobs that a server has accepted, and may still work on. */
const AT_SERVER = sql`upstream_open = 1 and upstream_job_id is not null`;

const DueRow = z.object({
  id: text,
  /** The server that has the job; null if none has. */
  upstream: text.nullable(),
});

/** Jobs whose file is due to be fetched, or all others that are due; those that wait longest first. Jobs at the servers in `except` are left out. */
export async function dueJobs(
  query: Query,
  nowMs: number,
  { isFetch, except, limit }: { isFetch: boolean; except: readonly string[]; limit: number },
): Promise<z.infer<typeof DueRow>[]> {
  const fetched = sql`committed_ms is not null and ended_ms is null`;
  const elsewhere = except.length === 0 ? sql`` : sql`and not (${AT_SERVER} and upstream in (${join([...except])}))`;
  return query.all(
    DueRow,
    sql`select id, case when ${AT_SERVER} then upstream end as upstream from video_jobs
        where due_ms <= ${nowMs} and ${isFetch ? fetched : sql`not (${fetched})`} ${elsewhere}
        order by due_ms, created_ms limit ${limit}`,
  );
}

/** The due jobs that a server has. */
export async function dueAt(
  query: Query,
  upstream: string,
  { nowMs, limit }: { nowMs: number; limit: number },
): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from video_jobs where due_ms <= ${nowMs} and ${AT_SERVER} and upstream = ${upstream}
        order by due_ms, created_ms limit ${limit}`,
  );
  return rows.map(({ id }) => id);
}

/** Columns that may change together with the status. */
export type Patch = Partial<
  Pick<
    Job,
    | 'progress'
    | 'charged_ucents'
    | 'blob_key'
    | 'upstream'
    | 'upstream_job_id'
    | 'upstream_open'
    | 'submissions_lost'
    | 'failures'
    | 'error_code'
    | 'error_message'
    | 'started_ms'
    | 'committed_ms'
    | 'ended_ms'
    | 'expires_ms'
    | 'deleted_ms'
  > & { request: null; due_ms: number | null }
>;

/**
 * True for the row of the job if it still stands as the job was read: with the same server, claim and work there. A process that was paused may
 * have an old answer about a job that another process has gone on with, and writes nothing then.
 */
function isAsRead(job: Job): Sql {
  return sql`id = ${job.id} and status = ${job.status} and ${isClaimed(job)} and upstream_job_id is not distinct from ${job.upstream_job_id}
    and committed_ms is not distinct from ${job.committed_ms}`;
}

/** Each submission without a known outcome is counted before the next claim, so a server and that count name one claim. */
function isClaimed({ upstream, submissions_lost: lost }: Job): Sql {
  return sql`upstream is not distinct from ${upstream} and submissions_lost = ${lost}`;
}

/** Only for states.ts. False if the job has changed since it was read. */
export async function setStatus(tx: Tx, job: Job, to: VideoState, patch: Patch): Promise<boolean> {
  return (await update(tx, { ...patch, status: to }, isAsRead(job))) === 1;
}

/** False if the job has changed since it was read. */
export async function patchJob(tx: Tx, job: Job, patch: Patch): Promise<boolean> {
  return (await update(tx, patch, isAsRead(job))) === 1;
}

/**
 * Stores the server's id in any status, because the server has the job even if it was cancelled meanwhile. False if the claim is not that of the
 * job any more.
 */
export async function noteAccepted(tx: Tx, claimed: Job, upstreamJobId: string, nowMs: number): Promise<boolean> {
  const accepted = { upstream_job_id: upstreamJobId, upstream_open: true, failures: 0, due_ms: nowMs };
  const isAwaited = sql`id = ${claimed.id} and ${isClaimed(claimed)} and upstream_job_id is null`;
  return (await update(tx, accepted, isAwaited)) === 1;
}

export async function postpone(tx: Tx, id: string, dueMs: number): Promise<void> {
  await update(tx, { due_ms: dueMs }, sql`id = ${id} and due_ms is not null`);
}

/** The column names are safe: they are the keys of `Patch` and the status, never input. */
function update(tx: Tx, patch: Patch & { status?: VideoState }, where: Sql): Promise<number> {
  const set = Object.entries(patch).map(([column, value]) => sql`${raw(column)} = ${value}`);
  return tx.run(sql`update video_jobs set ${join(set)} where ${where}`);
}

/** The blob keys among `keys` that belong to a job. */
export async function namedBlobs(query: Query, keys: readonly string[]): Promise<string[]> {
  const rows = await query.all(blobKeyRow, sql`select blob_key from video_jobs where blob_key in (${join([...keys])})`);
  return rows.map(({ blob_key: key }) => key);
}

const StatusCountRow = z.object({ status: text, count: int });

/** The number of jobs in each status, without jobs that have ended. */
export function countByStatus(query: Query): Promise<z.infer<typeof StatusCountRow>[]> {
  return query.all(StatusCountRow, sql`select status, count(*) as count from video_jobs where ${OPEN} group by status`);
}

/** The charges of these jobs, for the proof that jobs and ledger agree. */
export function chargesOf(query: Query, ids: readonly string[]): Promise<Charge[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return query.all(Charge, sql`select id, charged_ucents from video_jobs where id in (${join([...ids])})`);
}

/** Ids of charged jobs after `afterId`, in order. */
export async function chargedAfter(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(
    Charge,
    sql`select id, charged_ucents from video_jobs where charged_ucents > 0 and id > ${afterId} order by id limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

const HeldRow = z.object({ id: text, held_ucents: ucents });

export function holdsOfOpen(query: Query): Promise<z.infer<typeof HeldRow>[]> {
  return query.all(HeldRow, sql`select id, held_ucents from video_jobs where ${OPEN}`);
}
