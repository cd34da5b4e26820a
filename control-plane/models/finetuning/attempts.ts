// The SQL of attempts: one for each machine that a job was placed on, with the time that was charged there.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, raw, sql, type Tx } from '../../base/db/db.ts';

/** Losses are fractions, which columns of integers cannot hold. */
const fraction = text.transform(Number).nullable();

const AttemptRow = z.object({
  /** The id of the workload. */
  id: text,
  job_id: text,
  machine_id: text,
  supplier_id: text,
  gpu_type: text,
  /** The price that the customer pays for all GPUs of the job. */
  rate_ucents_per_hour: ucents,
  /** The price of the machine. The supplier gets `supplier_bps` of it. */
  supplier_rate_ucents_per_hour: ucents,
  supplier_bps: int,
  /** Id of the checkpoint from which the attempt goes on; null if it begins at the start. */
  resume_file_id: text.nullable(),
  resume_step: int,
  run_ms_max: int,
  /** The events of its host are stored up to this offset of the events file. */
  events_offset: int,
  last_step: int.nullable(),
  last_loss: fraction,
  /** Since when its machine has been seen without a link. */
  offline_since_ms: int.nullable(),
  created_ms: int,
  /** When its program was first seen running. Priced time begins here. */
  started_ms: int.nullable(),
  /** When its program ended: the first report of that, or earlier if its host says how long the program ran. */
  stopped_ms: int.nullable(),
  charged_through_ms: int.nullable(),
  charged_ucents: ucents,
  supplier_ucents: ucents,
});
export type Attempt = z.infer<typeof AttemptRow>;

const COLUMNS = sql`id, job_id, machine_id, supplier_id, gpu_type, rate_ucents_per_hour, supplier_rate_ucents_per_hour, supplier_bps,
  resume_file_id, resume_step, run_ms_max, events_offset, last_step, last_loss, offline_since_ms, created_ms, started_ms, stopped_ms,
  charged_through_ms, charged_ucents, supplier_ucents`;

export type NewAttempt = Pick<
  Attempt,
  | 'id'
  | 'job_id'
  | 'machine_id'
  | 'supplier_id'
  | 'gpu_type'
  | 'rate_ucents_per_hour'
  | 'supplier_rate_ucents_per_hour'
  | 'supplier_bps'
  | 'resume_file_id'
  | 'resume_step'
  | 'run_ms_max'
  | 'created_ms'
>;

export async function insertAttempt(tx: Tx, row: NewAttempt): Promise<void> {
  await tx.run(
    sql`insert into finetuning_attempts (id, job_id, machine_id, supplier_id, gpu_type, rate_ucents_per_hour, supplier_rate_ucents_per_hour,
          supplier_bps, resume_file_id, resume_step, run_ms_max, created_ms)
        values (${row.id}, ${row.job_id}, ${row.machine_id}, ${row.supplier_id}, ${row.gpu_type}, ${row.rate_ucents_per_hour},
          ${row.supplier_rate_ucents_per_hour}, ${row.supplier_bps}, ${row.resume_file_id}, ${row.resume_step}, ${row.run_ms_max},
          ${row.created_ms})`,
  );
}

export function findAttempt(query: Query, id: string): Promise<Attempt | undefined> {
  return query.one(AttemptRow, sql`select ${COLUMNS} from finetuning_attempts where id = ${id}`);
}

/** Columns that may change. */
export type AttemptPatch = Partial<
  Pick<
    Attempt,
    | 'events_offset'
    | 'last_step'
    | 'offline_since_ms'
    | 'started_ms'
    | 'stopped_ms'
    | 'charged_through_ms'
    | 'charged_ucents'
    | 'supplier_ucents'
  > & { last_loss: string }
>;

/** The column names are safe: they are the keys of `AttemptPatch`, never input. */
export async function patchAttempt(tx: Tx, id: string, patch: AttemptPatch): Promise<void> {
  const set = Object.entries(patch).map(([column, value]) => sql`${raw(column)} = ${value}`);
  await tx.run(sql`update finetuning_attempts set ${join(set)} where id = ${id}`);
}

/**
 * Takes a forward step of the wall clock off the time of the attempts that ran then. Their start moves with the clock, and so does what was charged
 * before the step. A repeat of the same step changes nothing.
 */
export async function skipStep(tx: Tx, { fromMs, untilMs }: { fromMs: number; untilMs: number }): Promise<void> {
  const stepMs = untilMs - fromMs;
  await tx.run(
    sql`update finetuning_attempts set started_ms = started_ms + ${stepMs}, skipped_from_ms = ${fromMs},
          charged_through_ms = charged_through_ms + case when charged_through_ms <= ${fromMs} then cast(${stepMs} as bigint) else 0 end
        where started_ms <= ${fromMs} and (stopped_ms is null or stopped_ms > ${fromMs})
          and (skipped_from_ms is null or skipped_from_ms <> ${fromMs})
          and id in (select workload_id from finetuning_jobs where status in ('validating', 'queued', 'running'))`,
  );
}

const EarnedRow = z.object({ job_id: text, charged_ucents: ucents, supplier_ucents: ucents });

/** What each of these jobs was charged, and what its suppliers earned, over all attempts. */
export function earnedOf(query: Query, jobIds: readonly string[]): Promise<z.infer<typeof EarnedRow>[]> {
  if (jobIds.length === 0) return Promise.resolve([]);
  return query.all(
    EarnedRow,
    sql`select job_id, cast(sum(charged_ucents) as bigint) as charged_ucents, cast(sum(supplier_ucents) as bigint) as supplier_ucents
        from finetuning_attempts where job_id in (${join([...jobIds])}) group by job_id`,
  );
}

const JobRow = z.object({ job_id: text });

/** The jobs that ever ran on the machines. */
export async function jobsOfMachines(query: Query, machineIds: readonly string[]): Promise<string[]> {
  const which = sql`select distinct job_id from finetuning_attempts where machine_id in (${join([...machineIds])}) order by job_id`;
  return (await query.all(JobRow, which)).map((row) => row.job_id);
}

const MachineRow = z.object({ job_id: text, machine_id: text });

/** The last machine of each of these jobs, for the list of a supplier's earnings. Ids of other things are skipped. */
export async function machinesOfJobs(query: Query, jobIds: readonly string[]): Promise<Map<string, string>> {
  if (jobIds.length === 0) return new Map();
  const rows = await query.all(
    MachineRow,
    sql`select job_id, machine_id from finetuning_attempts where job_id in (${join([...jobIds])}) order by created_ms, id`,
  );
  return new Map(rows.map(({ job_id: jobId, machine_id: machineId }) => [jobId, machineId]));
}

const ChargedRow = z.object({ id: text, started_ms: int, charged_through_ms: int });

/** The time for which each of these attempts was charged so far. Attempts whose program never ran are left out. */
export async function chargedTimes(
  query: Query,
  ids: readonly string[],
): Promise<Map<string, { fromMs: number; untilMs: number }>> {
  if (ids.length === 0) return new Map();
  const rows = await query.all(
    ChargedRow,
    sql`select id, started_ms, charged_through_ms from finetuning_attempts where id in (${join([...ids])}) and started_ms is not null`,
  );
  return new Map(rows.map((row) => [row.id, { fromMs: row.started_ms, untilMs: row.charged_through_ms }]));
}
