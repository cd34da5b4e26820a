// The SQL of uploaded files.
import { z } from 'zod';
import { FILE_PURPOSE, type FilesQuery, TrainingReport } from '../../../shared/api/file.ts';
import { blobKeyRow, int, json, text } from '../../base/db/columns.ts';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';

const FileRow = z.object({
  id: text,
  org_id: text,
  blob_key: text,
  filename: text,
  purpose: z.literal(FILE_PURPOSE),
  bytes: int,
  sha256: text,
  report: json(TrainingReport),
  created_ms: int,
});
export type FileRow = z.infer<typeof FileRow>;

const COLUMNS = sql`id, org_id, blob_key, filename, purpose, bytes, sha256, report, created_ms`;

export async function insertFile(tx: Tx, file: FileRow): Promise<void> {
  await tx.run(
    sql`insert into files (${COLUMNS})
        values (${file.id}, ${file.org_id}, ${file.blob_key}, ${file.filename}, ${file.purpose}, ${file.bytes}, ${file.sha256},
                ${JSON.stringify(file.report)}, ${file.created_ms})`,
  );
}

/** Undefined if the organisation has no such file. */
export function findFile(query: Query, orgId: string, id: string): Promise<FileRow | undefined> {
  return query.one(FileRow, sql`select ${COLUMNS} from files where id = ${id} and org_id = ${orgId}`);
}

/** At most `count` files in the order of their ids, which is the order of upload. */
export function pageOfFiles(query: Query, orgId: string, page: FilesQuery, count: number): Promise<FileRow[]> {
  const { after, order, purpose } = page;
  const beyond = order === 'asc' ? sql`>` : sql`<`;
  const isAfter = after === undefined ? sql`1 = 1` : sql`id ${beyond} ${after}`;
  const isFor = purpose === undefined ? sql`1 = 1` : sql`purpose = ${purpose}`;
  return query.all(
    FileRow,
    sql`select ${COLUMNS} from files where org_id = ${orgId} and ${isAfter} and ${isFor}
        order by id ${order === 'asc' ? sql`asc` : sql`desc`} limit ${count}`,
  );
}

/** Deletes a file and returns its blob key; undefined if the organisation has no such file. */
export function deleteFile(tx: Tx, orgId: string, id: string): Promise<{ blob_key: string } | undefined> {
  return tx.one(blobKeyRow, sql`delete from files where id = ${id} and org_id = ${orgId} returning blob_key`);
}

const Stored = z.object({ count: int, bytes: int });

/** How many files the organisation has or is uploading in parts, and their total size. */
export async function storedOf(query: Query, orgId: string): Promise<z.infer<typeof Stored>> {
  const row = await query.one(
    Stored,
    sql`select count(*) as count, cast(coalesce(sum(bytes), 0) as bigint) as bytes from (
          select bytes from files where org_id = ${orgId}
          union all select bytes from uploads where org_id = ${orgId} and status = 'pending') stored`,
  );
  return row ?? { count: 0, bytes: 0 };
}

/** The blob keys among `keys` that are the content of files, without parts of uploads. */
export async function contentBlobs(query: Query, keys: readonly string[]): Promise<string[]> {
  const which = sql`select blob_key from files where blob_key in (${join([...keys])})`;
  return (await query.all(blobKeyRow, which)).map(({ blob_key: key }) => key);
}

/** The blob keys that belong to a file or to a part of one. */
export async function namedBlobs(query: Query, keys: readonly string[]): Promise<string[]> {
  const named = join([...keys]);
  const rows = await query.all(
    blobKeyRow,
    sql`select blob_key from files where blob_key in (${named})
        union all select blob_key from upload_parts where blob_key in (${named})`,
  );
  return rows.map(({ blob_key: key }) => key);
}
