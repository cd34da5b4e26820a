// The states of an upload in parts, the only function that changes them, and what a state allows.
import { fail } from '../../../shared/errors.ts';
import { mayMove, UPLOAD_STATES, type UploadState } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import { setStatus, type UploadRow } from './uploads-store.ts';

/** False if the table forbids the move, or if the status has changed since the upload was read. */
export async function move(
  tx: Tx,
  { id, status: from }: Pick<UploadRow, 'id' | 'status'>,
  to: UploadState,
  made?: { fileId: string; partIds: readonly string[] },
): Promise<boolean> {
  return mayMove(UPLOAD_STATES, from, to) && setStatus(tx, id, { from, to, ...(made === undefined ? {} : { made }) });
}

/** The status as customers see it. The loop writes `expired` a little later. */
export function statusOf({ status, expires_ms: expiresMs }: UploadRow, nowMs: number): UploadState {
  return status === 'pending' && expiresMs <= nowMs ? 'expired' : status;
}

/** @throws ServiceError `conflict`, `expired` if the upload takes no parts any more */
export function assertPending(upload: UploadRow, nowMs: number): void {
  const status = statusOf(upload, nowMs);
  if (status === 'pending') return;
  if (status === 'expired')
    fail('expired', `The upload ${upload.id} has expired an hour after it was created. Create another one.`);
  const next = status === 'completed' ? `Its file is ${upload.file_id}.` : 'Create another one.';
  fail('conflict', `The upload ${upload.id} is ${status}, so nothing can be added to it. ${next}`);
}
