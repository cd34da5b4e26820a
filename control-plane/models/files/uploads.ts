// Files that come in parts: create, add a part, complete, cancel, for the organisation that owns them. Every fact is in the database or the blob
// store, so each request may reach another control plane.
import type { CreateUpload, UploadPart } from '../../../shared/api/upload.ts';
import { failField } from '../../../shared/errors.ts';
import { FILES_PER_ORG_MAX, UPLOAD_MS, UPLOAD_PARTS_AT_ONCE_MAX } from '../../../shared/limits.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import { type AtOnce, openAtOnce, failNoRoom, type FilesDeps } from './upload.ts';
import { complete, type CompleteCall } from './complete.ts';
import { addPart, type PartCall } from './parts.ts';
import { assertPending, move, statusOf } from './states.ts';
import { storedOf } from './store.ts';
import { findUpload, insertUpload, lateUploads, takeUnneededParts } from './uploads-store.ts';
import { failNoUpload, uploadReply } from './view.ts';

type CreateCall = Pick<Call<undefined, undefined, CreateUpload>, 'caller' | 'body' | 'settle'>;
type CancelCall = Pick<Call<{ id: string }, undefined, undefined>, 'caller' | 'params' | 'settle'>;

export interface Uploads {
  /** @throws ServiceError `validation_failed`, `conflict` above the organisation's limits */
  create(call: CreateCall): Promise<Reply>;
  /** @throws ServiceError `not_found`, `conflict`, `expired`, `validation_failed`, `body_too_large`, `storage_full`, `rate_limit_exceeded` */
  addPart(call: PartCall): Promise<UploadPart>;
  /** @throws ServiceError `not_found`, `conflict`, `expired`, `validation_failed`, `storage_full` */
  complete(call: CompleteCall): Promise<Reply>;
  /** @throws ServiceError `not_found`, `conflict` if the upload is completed */
  cancel(call: CancelCall): Promise<Reply>;
  /** Ends the uploads that have expired, and removes the parts of all uploads that have ended. `again` if there may be more of them. */
  clean(signal: AbortSignal): Promise<'again' | undefined>;
}

/** Time to finish for an upload that is being completed when its own time is over. */
const COMPLETING_MS = 30 * 60_000;
const EXPIRED_ROWS = 100;
/** S3 takes long for each part, so some are removed side by side. */
const REMOVED_AT_ONCE = 16;
/** One run ends long before its loop counts as hanging. */
const CLEAN_MS_MAX = 30_000;

/** `wholeFiles` limits how many whole files of an organisation are written at the same time. */
export function openUploads(deps: FilesDeps, wholeFiles: AtOnce): Uploads {
  const { db, blobs, clock, ids } = deps;
  const parts = openAtOnce('parts', UPLOAD_PARTS_AT_ONCE_MAX);
  return {
    create: async ({ caller: { orgId }, body, settle }) => {
      const { bytes, filename, mime_type, purpose } = body;
      if (bytes > deps.bytesMax) failField('bytes', `must be at most ${deps.bytesMax}, the limit of one file`);
      const nowMs = clock.now();
      const times = { created_ms: nowMs, expires_ms: nowMs + UPLOAD_MS };
      const upload = { id: ids.prefixed('upload'), org_id: orgId, filename, purpose, mime_type, bytes, ...times };
      return db.tx('uploads.create', async (tx) => {
        await tx.lock('org', orgId);
        const stored = await storedOf(tx, orgId);
        if (stored.count >= FILES_PER_ORG_MAX || stored.bytes + bytes > deps.bytesPerOrgMax) failNoRoom(deps);
        await insertUpload(tx, upload);
        const reply = uploadReply({ ...upload, status: 'pending', part_ids: null, file_id: null }, nowMs);
        await settle(tx, reply);
        return reply;
      });
    },
    addPart: (call) => parts.run(call.caller.orgId, () => addPart(call, deps)),
    complete: (call) => wholeFiles.run(call.caller.orgId, () => complete(call, deps)),
    cancel: ({ caller: { orgId }, params: { id }, settle }) =>
      db.tx('uploads.cancel', async (tx) => {
        await tx.lock('org', orgId);
        const upload = (await findUpload(tx, orgId, id)) ?? failNoUpload(id);
        if (upload.status === 'completed') assertPending(upload, clock.now());
        if (statusOf(upload, clock.now()) === 'pending') await move(tx, upload, 'cancelled');
        const reply = uploadReply((await findUpload(tx, orgId, id)) ?? failNoUpload(id), clock.now());
        await settle(tx, reply);
        return reply;
      }),
    clean: async (signal) => {
      const late = await lateUploads(db.read, clock.now() - COMPLETING_MS, EXPIRED_ROWS);
      for (const { id, org_id: orgId } of late) {
        await db.tx('uploads.expire', async (tx) => {
          await tx.lock('org', orgId);
          await move(tx, { id, status: 'pending' }, 'expired');
        });
      }
      const untilMs = clock.monotonicMs() + CLEAN_MS_MAX;
      while (!signal.aborted && clock.monotonicMs() < untilMs) {
        const keys = await db.tx('uploads.clean', (tx) => takeUnneededParts(tx, REMOVED_AT_ONCE));
        // If the process dies here, the sweep of blobs removes the rest.
        await Promise.all(keys.map((key) => blobs.remove(key)));
        // An upload counts for the limits of its organisation until its end is written.
        if (keys.length < REMOVED_AT_ONCE) return late.length < EXPIRED_ROWS ? undefined : 'again';
      }
      return 'again';
    },
  };
}
