// Files and uploads as customers see them: without the place of their content (specification 2.15).
import type { FileObject } from '../../../shared/api/file.ts';
import type { Upload } from '../../../shared/api/upload.ts';
import { fail } from '../../../shared/errors.ts';
import type { Query } from '../../base/db/db.ts';
import type { Reply } from '../../base/http/route.ts';
import { statusOf } from './states.ts';
import { type FileRow, findFile } from './store.ts';
import type { UploadRow } from './uploads-store.ts';

/** The file as customers see it. */
export function fileView({ id, bytes, created_ms, filename, purpose, report }: FileRow): FileObject {
  const [problem] = report.problems;
  return {
    id,
    object: 'file',
    bytes,
    created_at: Math.floor(created_ms / 1000),
    filename,
    purpose,
    status: report.valid ? 'processed' : 'error',
    ...(problem === undefined
      ? {}
      : { status_details: problem.line === null ? problem.message : `Line ${problem.line}: ${problem.message}` }),
  };
}

/** The upload with its file, unless the file was deleted. */
export async function completedReply(query: Query, upload: UploadRow, nowMs: number): Promise<Reply> {
  const file = upload.file_id === null ? undefined : await findFile(query, upload.org_id, upload.file_id);
  return { status: 200, body: { ...uploadView(upload, nowMs), file: file === undefined ? null : fileView(file) } };
}

/** The answer for an upload that has no file yet. */
export function uploadReply(upload: UploadRow, nowMs: number): Reply {
  return { status: 200, body: { ...uploadView(upload, nowMs), file: null } };
}

export function failNoUpload(id: string): never {
  return fail('not_found', `There is no upload ${id}.`);
}

function uploadView(upload: UploadRow, nowMs: number): Omit<Upload, 'file'> {
  const { id, bytes, created_ms, expires_ms, filename, purpose } = upload;
  return {
    id,
    object: 'upload',
    bytes,
    created_at: Math.floor(created_ms / 1000),
    expires_at: Math.floor(expires_ms / 1000),
    filename,
    purpose,
    status: statusOf(upload, nowMs),
  };
}
