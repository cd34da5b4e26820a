// The SQL of fine-tuning jobs.
import { z } from 'zod';
import { CreateFineTuningJob } from '../../../shared/api/fine-tuning.ts';
import type { ErrorCode } from '../../../shared/errors.ts';
import { FINE_TUNING_QUEUE_MS_MAX } from '../../../shared/limits.ts';
import type { FineTuningState } from '../../../shared/states.ts';
import { countRow, idRow, int, json, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, raw, type Sql, sql, type Tx } from '../../base/db/db.ts';
import { FineTuning } from '../catalog/fine-tuning.ts';

/** The parts of the request that the job's view shows and that the trainer receives. */
const Request = CreateFineTuningJob.pick({ method: true, seed: true, suffix: true, metadata: true }).extend({
  seed: z.int(),
  gpu_preference: z.string().nullable(),
});
export type Request = z.infer<typeof Request>;

const JobRow = z.object({
  id: text,
  org_id: text,
  api_key_id: text,
  /** The base model. */
  model: text,
  training_file: text,
  file_key: text,
  file_bytes: int,
  file_sha256: text,
  status: z.enum(['validating', 'queued', 'running', 'succeeded', 'failed', 'cancelled']),
  request: json(Request),
  /** The catalog's terms when the job was created. A change of the catalog does not change a job. */
  terms: json(FineTuning),
  budget_ucents: ucents,
  charged_ucents: ucents,
  /** Its present workload, which is also its present attempt. */
  workload_id: text.nullable(),
  tried_machine_ids: json(z.array(z.string())),
  /** When its owner has cancelled it. It is cancelled once its host has stopped it. */
  cancel_ms: int.nullable(),
  error_code: text.transform((code) => code as ErrorCode).nullable(),
  error_message: text.nullable(),
  event_count: int,
  created_ms: int,
  /** Since when it waits for a machine. */
  queued_ms: int,
  finished_ms: int.nullable(),
});
export type Job = z.infer<typeof JobRow>;

const COLUMNS = sql`id, org_id, api_key_id, model, training_file, file_key, file_bytes, file_sha256, status, request, terms, budget_ucents,
  charged_ucents, workload_id, tried_machine_ids, cancel_ms, error_code, error_message, event_count, created_ms, queued_ms, finished_ms`;

const OPEN = sql`status in ('validating', 'queued', 'running')`;

export type NewJob = Omit<
  Job,
  | 'status'
  | 'charged_ucents'
  | 'workload_id'
  | 'tried_machine_ids'
  | 'cancel_ms'
  | 'error_code'
  | 'error_message'
  | 'event_count'
  | 'queued_ms'
  | 'finished_ms'
>;

/** Inserts a job in `validating`, due at once. */
export async function insertJob(tx: Tx, job: NewJob): Promise<void> {
  await tx.run(
    sql`insert into finetuning_jobs (id, org_id, api_key_id, model, training_file, file_key, file_bytes, file_sha256, status, request, terms,
          budget_ucents, created_ms, queued_ms, due_ms)
        values (${job.id}, ${job.org_id}, ${job.api_key_id}, ${job.model}, ${job.training_file}, ${job.file_key}, ${job.file_bytes},
          ${job.file_sha256}, 'validating', ${JSON.stringify(job.request)}, ${JSON.stringify(job.terms)}, ${job.budget_ucents},
          ${job.created_ms}, ${job.created_ms}, ${job.created_ms})`,
  );
}

export function findJob(query: Query, id: string): Promise<Job | undefined> {
  return query.one(JobRow, sql`select ${COLUMNS} from finetuning_jobs where id = ${id}`);
}

/** Newest first. `afterId` is the last job of the page before. */
export function pageOfJobs(
  query: Query,
  orgId: string,
  { afterId, count }: { afterId: string | undefined; count: number },
): Promise<Job[]> {
  const after = sql`(select created_ms, id from finetuning_jobs where id = ${afterId ?? ''})`;
  const isAfter = afterId === undefined ? sql`1 = 1` : sql`(created_ms, id) < ${after}`;
  return query.all(
    JobRow,
    sql`select ${COLUMNS} from finetuning_jobs where org_id = ${orgId} and ${isAfter} order by created_ms desc, id desc limit ${count}`,
  );
}

const UnpaidRow = JobRow.pick({ terms: true }).extend({ held_ms: int, paid_ms: int });

/**
 * The jobs that were cancelled or that failed after `sinceMs`: how long their placements held GPUs, and how much of that was charged. A placement
 * counts for at least `heldMsMin`. One whose program never ran ends with the next one, so it counts for no more. Nothing counts after the end of
 * the program: its owner can do nothing about files that come late or cannot be read.
 */
export function unpaidJobs(
  query: Query,
  orgId: string,
  { sinceMs, heldMsMin, limit }: { sinceMs: number; heldMsMin: number; limit: number },
): Promise<z.infer<typeof UnpaidRow>[]> {
  const placedMs = sql`finetuning_attempts.created_ms`;
  const endedMs = sql`case when finetuning_attempts.id = workload_id then coalesce(cancel_ms, stopped_ms, finished_ms)
    else coalesce(stopped_ms, ${placedMs}) end`;
  return query.all(
    UnpaidRow,
    sql`select terms, cast(sum(case when held_ms > ${heldMsMin} then held_ms else ${heldMsMin} end) as bigint) as held_ms,
          cast(sum(paid_ms) as bigint) as paid_ms
        from (
          select finetuning_jobs.id, terms, ${endedMs} - ${placedMs} as held_ms, coalesce(charged_through_ms - started_ms, 0) as paid_ms
          from finetuning_jobs join finetuning_attempts on job_id = finetuning_jobs.id
          where org_id = ${orgId} and (cancel_ms is not null or status = 'failed') and coalesce(cancel_ms, finished_ms) > ${sinceMs}
        ) as placements
        group by id, terms limit ${limit}`,
  );
}

export async function countOpen(query: Query, orgId: string): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from finetuning_jobs where org_id = ${orgId} and ${OPEN}`,
  );
  return row?.count ?? 0;
}

/** The open job that reads this file, if there is one. */
export async function jobWithFile(query: Query, fileId: string): Promise<string | undefined> {
  const row = await query.one(
    idRow,
    sql`select id from finetuning_jobs where training_file = ${fileId} and ${OPEN} order by id limit 1`,
  );
  return row?.id;
}

/** With `reads`, the jobs whose next step reads a whole file: the training file, or one that the host has sent. Without it, all others. */
export async function dueJobs(
  query: Query,
  nowMs: number,
  { reads, limit }: { reads: boolean; limit: number },
): Promise<string[]> {
  const readsFile = sql`finished_ms is null and ((status = 'validating' and cancel_ms is null)
    or exists (select 1 from finetuning_files f where f.job_id = finetuning_jobs.id and f.state = 'uploaded'))`;
  const isKind = reads ? readsFile : sql`not (${readsFile})`;
  const rows = await query.all(
    idRow,
    sql`select id from finetuning_jobs where due_ms <= ${nowMs} and ${isKind} order by due_ms, created_ms limit ${limit}`,
  );
  return rows.map(({ id }) => id);
}

const HeadRow = JobRow.pick({ id: true, terms: true });
/** The first of the waiting jobs with the same terms. These jobs can use the same places. */
export type Head = z.infer<typeof HeadRow>;

/**
 * The heads among the jobs that wait for a machine, the next one first. A job that is not served in time fails. It does not count from then on: one
 * that does not even fail must not block the others for ever.
 *
 * Example: organisation A has a job on a machine, and B has none. A1 is older than A2, and A2 than B1.
 *
 *   waiting jobs          lines, one for each terms and organisation      heads, the next one first
 *   A1, A2, B1: small     small, A: first A1   small, B: first B1         B1, because B has fewer jobs on machines
 *   A3: big               big, A: first A3                                A3
 *
 * 1. `lines` steps from the first job of a line to the first job of the next line. It never reads the jobs behind them, however many there are.
 * 2. `ranked` numbers these jobs among those with the same terms. The organisation with the fewest jobs on machines comes first, then the one that
 *    got its last machine the longest ago, and then the oldest job. A job that had a machine before has had its turn, so it does not wait for the
 *    turns of others again.
 * 3. The first of each terms are the heads, in the same order.
 */
export function headsOfQueue(query: Query, nowMs: number): Promise<Head[]> {
  return query.all(
    HeadRow,
    sql`with recursive
          lines (id, terms, org_id, tried_machine_ids, created_ms) as (${linesFrom(nowMs)}),
          placed as (${JOBS_ON_MACHINES}),
          turns as (
            select lines.id, terms, coalesce(jobs, 0) as jobs, case when ${HAD_NO_MACHINE} then coalesce(placed_ms, 0) else 0 end as turn_ms, created_ms
            from lines
              left join placed on placed.org_id = lines.org_id
              left join finetuning_turns on finetuning_turns.org_id = lines.org_id),
          ranked as (
            select turns.*, row_number() over (partition by terms order by jobs, turn_ms, created_ms, id) as nth_of_terms from turns)
        select id, terms from ranked where nth_of_terms = 1 order by jobs, turn_ms, created_ms, id`,
  );
}

const HAD_NO_MACHINE = sql`tried_machine_ids = '[]'`;

const JOBS_ON_MACHINES = sql`select org_id, count(*) as jobs from finetuning_jobs where ${OPEN} and workload_id is not null group by org_id`;

/** The first job of each line, as the body of a recursive table `lines`. */
function linesFrom(nowMs: number): Sql {
  const isWaiting = sql`status = 'queued' and workload_id is null and cancel_ms is null and queued_ms > ${nowMs - FINE_TUNING_QUEUE_MS_MAX}`;
  const firstWhere = (where: Sql): Sql => sql`(select id from finetuning_jobs where ${isWaiting} and ${where}
    order by terms, org_id, case when ${HAD_NO_MACHINE} then 1 else 0 end, created_ms, id limit 1)`;
  const firstOfAll = firstWhere(sql`terms > ''`);
  const firstOfNextOrg = firstWhere(sql`terms = lines.terms and org_id > lines.org_id`);
  const firstOfNextTerms = firstWhere(sql`terms > lines.terms`);
  const columns = sql`job.id, job.terms, job.org_id, job.tried_machine_ids, job.created_ms`;
  return sql`select ${columns} from finetuning_jobs as job where job.id = ${firstOfAll}
    union all
    select ${columns} from lines join finetuning_jobs as job on job.id = coalesce(${firstOfNextOrg}, ${firstOfNextTerms})`;
}

/** Notes that the organisation got a machine for a new job. */
export async function noteTurn(tx: Tx, orgId: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into finetuning_turns (org_id, placed_ms) values (${orgId}, ${nowMs})
        on conflict (org_id) do update set placed_ms = excluded.placed_ms`,
  );
}

/** Columns that may change. */
export type Patch = Partial<
  Pick<
    Job,
    'charged_ucents' | 'workload_id' | 'cancel_ms' | 'error_code' | 'error_message' | 'queued_ms' | 'finished_ms'
  > & {
    due_ms: number | null;
    tried_machine_ids: string;
  }
>;

/** Only for states.ts. False if the job is not in `from` any more. */
export async function setStatus(
  tx: Tx,
  id: string,
  { from, to }: { from: FineTuningState; to: FineTuningState },
  patch: Patch,
): Promise<boolean> {
  return (await update(tx, { ...patch, status: to }, sql`id = ${id} and status = ${from}`)) === 1;
}

export async function patchJob(tx: Tx, id: string, patch: Patch): Promise<void> {
  await update(tx, patch, sql`id = ${id}`);
}

export async function countEvents(tx: Tx, id: string, more: number): Promise<void> {
  await tx.run(sql`update finetuning_jobs set event_count = event_count + ${more} where id = ${id}`);
}

/** Makes an open job due now. */
export async function makeDue(tx: Tx, id: string, nowMs: number): Promise<void> {
  await update(tx, { due_ms: nowMs }, sql`id = ${id} and ${OPEN}`);
}

/** Makes the jobs due now that still wait for a machine. */
export async function wake(tx: Tx, ids: readonly string[], nowMs: number): Promise<void> {
  const isWaiting = sql`status = 'queued' and workload_id is null and due_ms > ${nowMs}`;
  await update(tx, { due_ms: nowMs }, sql`id in (${join([...ids])}) and ${isWaiting}`);
}

/** Makes a job due later. A job that has ended stays as it is. */
export async function postpone(tx: Tx, id: string, dueMs: number): Promise<void> {
  await update(tx, { due_ms: dueMs }, sql`id = ${id} and due_ms is not null`);
}

/** The column names are safe: they are the keys of `Patch` and the status, never input. */
function update(tx: Tx, patch: Patch & { status?: FineTuningState }, where: Sql): Promise<number> {
  const set = Object.entries(patch).map(([column, value]) => sql`${raw(column)} = ${value}`);
  return tx.run(sql`update finetuning_jobs set ${join(set)} where ${where}`);
}

const StatusCountRow = z.object({ status: text, count: int });

/** The number of jobs in each status, without jobs that have ended. */
export function countByStatus(query: Query): Promise<z.infer<typeof StatusCountRow>[]> {
  return query.all(
    StatusCountRow,
    sql`select status, count(*) as count from finetuning_jobs where ${OPEN} group by status`,
  );
}

const MoneyRow = z.object({ id: text, budget_ucents: ucents, charged_ucents: ucents });

/** The budgets of open jobs, and what was charged of them. */
export function budgetsOfOpen(query: Query): Promise<z.infer<typeof MoneyRow>[]> {
  return query.all(MoneyRow, sql`select id, budget_ucents, charged_ucents from finetuning_jobs where ${OPEN}`);
}

/** The charges of these jobs, for the proof that jobs and ledger agree. */
export function chargesOf(query: Query, ids: readonly string[]): Promise<z.infer<typeof MoneyRow>[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return query.all(
    MoneyRow,
    sql`select id, budget_ucents, charged_ucents from finetuning_jobs where id in (${join([...ids])})`,
  );
}

/** Ids of charged jobs after `afterId`, in order. */
export async function chargedAfter(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from finetuning_jobs where charged_ucents > 0 and id > ${afterId} order by id limit ${limit}`,
  );
  return rows.map(({ id }) => id);
}
