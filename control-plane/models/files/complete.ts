// POST /v1/uploads/{id}/complete: writes the parts one after another as one blob, checks it meanwhile, and makes it a file.
import { createHash } from 'node:crypto';
import type { CompleteUpload } from '../../../shared/api/upload.ts';
import { fail, failField, ServiceError } from '../../../shared/errors.ts';
import { type Blobs, removeUnnamed, writeForCaller } from '../../base/blobs/blobs.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import { openCheck } from './check.ts';
import { assertPending, move } from './states.ts';
import { type FileRow, insertFile } from './store.ts';
import { type FilesDeps, watched } from './upload.ts';
import { findUpload, type PartRow, partsOf, type UploadRow } from './uploads-store.ts';
import { completedReply, failNoUpload } from './view.ts';

export type CompleteCall = Pick<
  Call<{ id: string }, undefined, CompleteUpload>,
  'caller' | 'params' | 'body' | 'gone' | 'settle'
>;

/** A repeated request with the same parts gets the same answer, because official clients repeat one whose answer was lost. */
export async function complete(call: CompleteCall, deps: FilesDeps): Promise<Reply> {
  const { caller, params, body, settle } = call;
  const { db, clock } = deps;
  const upload = (await findUpload(db.read, caller.orgId, params.id)) ?? failNoUpload(params.id);
  if (!isSame(upload, body)) assertPending(upload, clock.now());
  const file = upload.status === 'completed' ? undefined : await writeUnlessCompleted(call, upload, deps);
  const keep = (): Promise<{ reply: Reply; isKept: boolean }> =>
    db.tx('uploads.complete', async (tx) => {
      await tx.lock('org', caller.orgId);
      const now = (await findUpload(tx, caller.orgId, params.id)) ?? failNoUpload(params.id);
      // Another request may have completed the upload meanwhile.
      const isKept = file !== undefined && now.status === 'pending';
      if (isKept) {
        await insertFile(tx, file);
        await move(tx, now, 'completed', { fileId: file.id, partIds: body.part_ids });
      } else if (!isSame(now, body)) assertPending(now, clock.now());
      const after = (await findUpload(tx, caller.orgId, params.id)) ?? failNoUpload(params.id);
      const reply = await completedReply(tx, after, clock.now());
      await settle(tx, reply);
      return { reply, isKept };
    });
  const { reply, isKept } = await keep().catch(async (error: unknown) => {
    // After any other error it is unknown whether the row was committed, so the blob is left to the sweep.
    if (file !== undefined && error instanceof ServiceError) await removeUnnamed(deps.blobs, file.blob_key);
    throw error;
  });
  if (!isKept && file !== undefined) await removeUnnamed(deps.blobs, file.blob_key);
  return reply;
}

/** Whether the upload was completed by an equal request. */
function isSame({ status, part_ids: partIds }: UploadRow, body: CompleteUpload): boolean {
  return status === 'completed' && JSON.stringify(partIds) === JSON.stringify(body.part_ids);
}

/** Undefined if an equal request has completed the upload meanwhile. Its parts are removed soon after, so this request may miss one. */
async function writeUnlessCompleted(
  call: CompleteCall,
  upload: UploadRow,
  deps: FilesDeps,
): Promise<FileRow | undefined> {
  try {
    return await writeFile(call, upload, deps);
  } catch (error) {
    const now = await findUpload(deps.db.read, upload.org_id, upload.id);
    if (now === undefined || !isSame(now, call.body)) throw error;
    return undefined;
  }
}

async function writeFile({ caller, body, gone }: CompleteCall, upload: UploadRow, deps: FilesDeps): Promise<FileRow> {
  const { db, blobs, ids, clock } = deps;
  const parts = namedParts(upload, await partsOf(db.read, upload.id), body.part_ids);
  const key = blobs.newKey('files');
  const [check, md5] = [openCheck(), createHash('md5')];
  const see = (piece: Uint8Array): void => {
    check.take(piece);
    md5.update(piece);
  };
  const source = watched(contentOf(parts, blobs), see);
  const stored = await writeForCaller(blobs, key, source, { bytesMax: upload.bytes, gone });
  const given = body.md5?.toLowerCase();
  const found = md5.digest('hex');
  if (given !== undefined && given !== found) {
    await removeUnnamed(blobs, key);
    failField('md5', `must be the MD5 of the whole file, and that of these parts is ${found}`);
  }
  return {
    id: ids.prefixed('file'),
    org_id: caller.orgId,
    blob_key: key,
    filename: upload.filename,
    purpose: upload.purpose,
    bytes: stored.bytes,
    sha256: stored.sha256,
    report: check.report(),
    created_ms: clock.now(),
  };
}

/** The parts in the order of the request. */
function namedParts({ id, bytes }: UploadRow, all: readonly PartRow[], partIds: readonly string[]): PartRow[] {
  const byId = new Map(all.map((part) => [part.id, part]));
  const parts = partIds.map((partId, i) => {
    if (partIds.indexOf(partId) < i) failField(`part_ids[${i}]`, 'must not name a part twice');
    return byId.get(partId) ?? failField(`part_ids[${i}]`, `must be a part of the upload ${id}`);
  });
  const sent = parts.reduce((sum, part) => sum + part.bytes, 0);
  if (sent !== bytes)
    failField('part_ids', `must have together the ${bytes} bytes of the upload, and have ${sent} bytes`);
  return parts;
}

async function* contentOf(parts: readonly PartRow[], blobs: Blobs): AsyncGenerator<Uint8Array> {
  for (const { id, upload_id: uploadId, blob_key: key } of parts) {
    const blob = await blobs.open(key);
    // The blob of a part is missing: the upload has just ended, or a restored database does not match the store.
    if (blob === undefined)
      return fail('conflict', `The part ${id} is gone. Create another upload in place of ${uploadId}.`);
    yield* blob.stream() as AsyncIterable<Uint8Array>;
  }
}
