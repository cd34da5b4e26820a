// The SQL of the files that hosts upload for a job: checkpoints and results.
import { z } from 'zod';
import { blobKeyRow, int, text } from '../../base/db/columns.ts';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';

const FileRow = z.object({
  id: text,
  job_id: text,
  workload_id: text,
  kind: z.enum(['checkpoint', 'result']),
  name: text,
  step: int,
  loss: text.transform(Number).nullable(),
  /** Size and hash as the host has announced them. */
  bytes: int,
  sha256: text,
  /**
   * `awaited`: the host has a URL. `uploaded`: there is a blob. `verified`: the blob has this size and hash. `wrong`: it has another size or
   * hash.
   */
  state: z.enum(['awaited', 'uploaded', 'verified', 'wrong']),
  /** Null once the blob is not kept any more. */
  blob_key: text.nullable(),
  created_ms: int,
});
export type JobFileRow = z.infer<typeof FileRow>;

const COLUMNS = sql`id, job_id, workload_id, kind, name, step, loss, bytes, sha256, state, blob_key, created_ms`;

export async function insertFile(tx: Tx, file: JobFileRow): Promise<void> {
  await tx.run(
    sql`insert into finetuning_files (${COLUMNS})
        values (${file.id}, ${file.job_id}, ${file.workload_id}, ${file.kind}, ${file.name}, ${file.step},
          ${file.loss === null ? null : String(file.loss)}, ${file.bytes}, ${file.sha256}, ${file.state}, ${file.blob_key}, ${file.created_ms})`,
  );
}

/**
 * The files of a job that decide something, oldest first: all files of results, and the checkpoints whose blobs are kept. A long job has thousands
 * of older checkpoints, which are not read.
 */
export function filesOf(query: Query, jobId: string): Promise<JobFileRow[]> {
  return query.all(
    FileRow,
    sql`select ${COLUMNS} from finetuning_files where job_id = ${jobId} and (kind = 'result' or blob_key is not null)
        order by created_ms, id`,
  );
}

const SizeRow = z.object({ count: int, bytes: int });

/** How many files of this kind an attempt has announced, and their size together. */
export async function sizeOfFiles(
  query: Query,
  { workload_id: attemptId, kind }: Pick<JobFileRow, 'workload_id' | 'kind'>,
): Promise<z.infer<typeof SizeRow>> {
  const row = await query.one(
    SizeRow,
    sql`select count(*) as count, cast(coalesce(sum(bytes), 0) as bigint) as bytes from finetuning_files
        where workload_id = ${attemptId} and kind = ${kind}`,
  );
  return row ?? { count: 0, bytes: 0 };
}

export function findFile(
  query: Query,
  which: Pick<JobFileRow, 'workload_id' | 'kind' | 'name'>,
): Promise<JobFileRow | undefined> {
  return query.one(
    FileRow,
    sql`select ${COLUMNS} from finetuning_files
        where workload_id = ${which.workload_id} and kind = ${which.kind} and name = ${which.name}`,
  );
}

export function findFileById(query: Query, id: string): Promise<JobFileRow | undefined> {
  return query.one(FileRow, sql`select ${COLUMNS} from finetuning_files where id = ${id}`);
}

/** The checkpoint from which a job goes on. */
export function newestCheckpoint(files: readonly JobFileRow[]): JobFileRow | undefined {
  return files.findLast(
    ({ kind, state, blob_key: key }) => kind === 'checkpoint' && state === 'verified' && key !== null,
  );
}

/** Moves the state of a file. False if it is not in `from` any more. */
export async function moveFile(
  tx: Tx,
  id: string,
  { from, to }: { from: JobFileRow['state']; to: JobFileRow['state'] },
): Promise<boolean> {
  return (await tx.run(sql`update finetuning_files set state = ${to} where id = ${id} and state = ${from}`)) === 1;
}

/** Removes the blob keys from these files. The caller removes the blobs after the commit. After a crash, the sweep removes what is left. */
export async function dropBlobs(tx: Tx, ids: readonly string[]): Promise<void> {
  if (ids.length > 0) await tx.run(sql`update finetuning_files set blob_key = null where id in (${join([...ids])})`);
}

/** True if the id is that of a verified checkpoint of the job. */
export async function isCheckpoint(query: Query, jobId: string, id: string): Promise<boolean> {
  const file = await findFileById(query, id);
  return file?.job_id === jobId && file.kind === 'checkpoint' && file.state === 'verified';
}

/** Verified checkpoints, newest first. `afterId` is the last one of the page before. */
export function pageOfCheckpoints(
  query: Query,
  jobId: string,
  { afterId, count }: { afterId: string | undefined; count: number },
): Promise<JobFileRow[]> {
  const after = sql`(select created_ms, id from finetuning_files where id = ${afterId ?? ''})`;
  const isAfter = afterId === undefined ? sql`1 = 1` : sql`(created_ms, id) < ${after}`;
  return query.all(
    FileRow,
    sql`select ${COLUMNS} from finetuning_files where job_id = ${jobId} and kind = 'checkpoint' and state = 'verified' and ${isAfter}
        order by created_ms desc, id desc limit ${count}`,
  );
}

/** The blob keys among `keys` that belong to a file. */
export async function namedBlobs(query: Query, keys: readonly string[]): Promise<string[]> {
  const rows = await query.all(
    blobKeyRow,
    sql`select blob_key from finetuning_files where blob_key in (${join([...keys])})`,
  );
  return rows.map(({ blob_key: key }) => key);
}
