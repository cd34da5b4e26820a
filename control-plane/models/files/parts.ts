// POST /v1/uploads/{id}/parts: streams one part of a file to a blob of its own, and inserts its row when it is whole.
import type { UploadPart } from '../../../shared/api/upload.ts';
import { fail, failField, ServiceError } from '../../../shared/errors.ts';
import { FORM_BYTES_AROUND_MAX, UPLOAD_PART_BYTES_MAX, UPLOAD_PARTS_MAX } from '../../../shared/limits.ts';
import { removeUnnamed, type StoredBlob, writeForCaller } from '../../base/blobs/blobs.ts';
import type { Query } from '../../base/db/db.ts';
import { readForm } from '../../base/http/multipart.ts';
import type { Call, Upload } from '../../base/http/route.ts';
import { assertPending } from './states.ts';
import { failUnsupported, type FilesDeps } from './upload.ts';
import { findUpload, insertPart, sentOf, type UploadRow } from './uploads-store.ts';
import { failNoUpload } from './view.ts';

export type PartCall = Pick<Call<{ id: string }, undefined, Upload>, 'caller' | 'params' | 'body' | 'gone'>;

/** All parts of an upload together may have this number of times the bytes of the file, because a client repeats a part whose answer was lost. */
const REPEATED_MAX = 2;

/** If it throws, nothing is stored. Parts may arrive side by side and in any order. */
export async function addPart(call: PartCall, deps: FilesDeps): Promise<UploadPart> {
  const { caller, params, body, gone } = call;
  const { db, blobs, clock, ids } = deps;
  const pending = await pendingUpload(db.read, caller.orgId, params.id, clock.now());
  const bytesMax = await roomFor(db.read, pending);
  if (body.bytes !== undefined && body.bytes > UPLOAD_PART_BYTES_MAX + FORM_BYTES_AROUND_MAX) failPartTooLarge();
  const key = blobs.newKey('files');
  const spool = (stream: AsyncIterable<Uint8Array>): Promise<StoredBlob> =>
    writeForCaller(blobs, key, stream, { bytesMax, gone }).catch((error: unknown) => {
      if (!(error instanceof ServiceError) || error.code !== 'body_too_large') throw error;
      return bytesMax < UPLOAD_PART_BYTES_MAX ? failTooMany(pending) : failPartTooLarge();
    });
  const { bytes } = await readPart(body, spool).catch(async (error: unknown) => {
    await removeUnnamed(blobs, key);
    throw error;
  });
  const part = { id: ids.prefixed('part'), upload_id: pending.id, blob_key: key, bytes, created_ms: clock.now() };
  await db
    .tx('uploads.part', async (tx) => {
      await tx.lock('org', caller.orgId);
      // The upload is checked again: it may have ended meanwhile, or other parts have arrived.
      const upload = await pendingUpload(tx, caller.orgId, params.id, clock.now());
      if (bytes > (await roomFor(tx, upload))) failTooMany(upload);
      await insertPart(tx, part);
    })
    .catch(async (error: unknown) => {
      // After any other error it is unknown whether the row was committed, so the blob is left to the sweep.
      if (error instanceof ServiceError) await removeUnnamed(blobs, key);
      throw error;
    });
  return {
    id: part.id,
    object: 'upload.part',
    upload_id: pending.id,
    created_at: Math.floor(part.created_ms / 1000),
  };
}

async function pendingUpload(query: Query, orgId: string, id: string, nowMs: number): Promise<UploadRow> {
  const upload = (await findUpload(query, orgId, id)) ?? failNoUpload(id);
  assertPending(upload, nowMs);
  return upload;
}

/** The size in bytes of the largest part that the upload still accepts. @throws ServiceError `conflict` if it accepts none */
async function roomFor(query: Query, upload: UploadRow): Promise<number> {
  const sent = await sentOf(query, upload.id);
  const room = REPEATED_MAX * upload.bytes - sent.bytes;
  if (sent.count >= UPLOAD_PARTS_MAX || room <= 0) failTooMany(upload);
  return Math.min(UPLOAD_PART_BYTES_MAX, room);
}

/** The form has one part: `data`, a file. */
async function readPart(
  body: Upload,
  spool: (stream: AsyncIterable<Uint8Array>) => Promise<StoredBlob>,
): Promise<StoredBlob> {
  let stored: StoredBlob | undefined;
  let hasData = false;
  await readForm(body, {
    field: (name) => {
      if (name === 'data') failField('data', 'must be sent as a file, with a file name');
      failUnsupported(name);
    },
    file: async ({ name, stream }) => {
      if (name !== 'data') failUnsupported(name);
      if (hasData) failField('data', 'must be sent once');
      hasData = true;
      stored = await spool(stream);
    },
  });
  if (stored === undefined) return failField('data', 'is required');
  if (stored.bytes === 0) failField('data', 'must not be empty');
  return stored;
}

function failPartTooLarge(): never {
  return fail('body_too_large', {
    detail: `A part may have at most ${UPLOAD_PART_BYTES_MAX} bytes. Send the file in more parts.`,
    errors: [{ field: 'data', rule: `must have at most ${UPLOAD_PART_BYTES_MAX} bytes` }],
  });
}

function failTooMany({ id, bytes }: UploadRow): never {
  const limits = `at most ${UPLOAD_PARTS_MAX} parts with ${REPEATED_MAX * bytes} bytes together, twice the length of its file`;
  return fail('conflict', `The upload ${id} may have ${limits}. Complete it, or cancel it and begin anew.`);
}
