// The SQL of files that come in parts.
import { z } from 'zod';
import { FILE_PURPOSE } from '../../../shared/api/file.ts';
import type { UploadState } from '../../../shared/states.ts';
import { blobKeyRow, int, json, text } from '../../base/db/columns.ts';
import { type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';

const UploadRow = z.object({
  id: text,
  org_id: text,
  filename: text,
  purpose: z.literal(FILE_PURPOSE),
  mime_type: text,
  bytes: int,
  status: z.enum(['pending', 'completed', 'cancelled', 'expired']),
  part_ids: json(z.array(z.string())).nullable(),
  file_id: text.nullable(),
  created_ms: int,
  expires_ms: int,
});
export type UploadRow = z.infer<typeof UploadRow>;
export type NewUpload = Omit<UploadRow, 'status' | 'part_ids' | 'file_id'>;

const PartRow = z.object({ id: text, upload_id: text, blob_key: text, bytes: int, created_ms: int });
export type PartRow = z.infer<typeof PartRow>;

const COLUMNS = sql`id, org_id, filename, purpose, mime_type, bytes, status, part_ids, file_id, created_ms, expires_ms`;
const PART_COLUMNS = sql`id, upload_id, blob_key, bytes, created_ms`;

export async function insertUpload(tx: Tx, upload: NewUpload): Promise<void> {
  const { id, org_id, filename, purpose, mime_type, bytes, created_ms, expires_ms } = upload;
  await tx.run(
    sql`insert into uploads (id, org_id, filename, purpose, mime_type, bytes, status, created_ms, expires_ms)
        values (${id}, ${org_id}, ${filename}, ${purpose}, ${mime_type}, ${bytes}, 'pending', ${created_ms}, ${expires_ms})`,
  );
}

/** Undefined if the organisation has no such upload. */
export function findUpload(query: Query, orgId: string, id: string): Promise<UploadRow | undefined> {
  return query.one(UploadRow, sql`select ${COLUMNS} from uploads where id = ${id} and org_id = ${orgId}`);
}

/** Only `move` of `states.ts` may call this. False if the status is another one. */
export async function setStatus(
  tx: Tx,
  id: string,
  { from, to, made }: { from: UploadState; to: UploadState; made?: { fileId: string; partIds: readonly string[] } },
): Promise<boolean> {
  const changed = await tx.run(
    sql`update uploads
        set status = ${to}, file_id = ${made?.fileId ?? null}, part_ids = ${made === undefined ? null : JSON.stringify(made.partIds)}
        where id = ${id} and status = ${from}`,
  );
  return changed === 1;
}

const OwnedRow = z.object({ id: text, org_id: text });

/** At most `count` pending uploads that have expired by `nowMs`. */
export function lateUploads(query: Query, nowMs: number, count: number): Promise<{ id: string; org_id: string }[]> {
  return query.all(
    OwnedRow,
    sql`select id, org_id from uploads where status = 'pending' and expires_ms <= ${nowMs} order by expires_ms limit ${count}`,
  );
}

export async function insertPart(tx: Tx, { id, upload_id, blob_key, bytes, created_ms }: PartRow): Promise<void> {
  await tx.run(
    sql`insert into upload_parts (${PART_COLUMNS}) values (${id}, ${upload_id}, ${blob_key}, ${bytes}, ${created_ms})`,
  );
}

export function partsOf(query: Query, uploadId: string): Promise<PartRow[]> {
  return query.all(PartRow, sql`select ${PART_COLUMNS} from upload_parts where upload_id = ${uploadId}`);
}

const Sent = z.object({ count: int, bytes: int });

/** How many parts the upload has, and their total size. */
export async function sentOf(query: Query, uploadId: string): Promise<z.infer<typeof Sent>> {
  const row = await query.one(
    Sent,
    sql`select count(*) as count, cast(coalesce(sum(bytes), 0) as bigint) as bytes from upload_parts where upload_id = ${uploadId}`,
  );
  return row ?? { count: 0, bytes: 0 };
}

/** Deletes at most `count` parts of uploads that have ended, and returns the keys of their blobs. */
export async function takeUnneededParts(tx: Tx, count: number): Promise<string[]> {
  const rows = await tx.all(
    blobKeyRow,
    sql`delete from upload_parts where id in (
          select p.id from upload_parts p join uploads u on u.id = p.upload_id where u.status <> 'pending' limit ${count})
        returning blob_key`,
  );
  return rows.map(({ blob_key: key }) => key);
}

/** Deletes uploads that have ended and have no parts any more. Returns their number. */
export function forgetUploads(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from uploads where id in (
          select u.id from uploads u
          where u.status <> 'pending' and u.expires_ms <= ${untilMs}
            and not exists (select 1 from upload_parts p where p.upload_id = u.id)
          order by u.expires_ms limit ${limit})`,
  );
}
