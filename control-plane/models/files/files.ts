// Uploaded files: store, list, read and delete, for the organisation that owns them.
import type { FileList, FileObject, FilesQuery } from '../../../shared/api/file.ts';
import type { z } from 'zod';
import { fail, failField } from '../../../shared/errors.ts';
import { UPLOADS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { type OpenBlob, removeUnnamed } from '../../base/blobs/blobs.ts';
import { openAtOnce, type FilesDeps, upload, type UploadCall } from './upload.ts';
import { contentBlobs, deleteFile, type FileRow, findFile, namedBlobs, pageOfFiles } from './store.ts';
import { openUploads, type Uploads } from './uploads.ts';
import { fileView } from './view.ts';

export interface Files {
  upload(call: UploadCall): Promise<FileRow>;
  /** The answer to an upload: the file, and what training with it would cost. */
  uploadedView(file: FileRow): FileObject;
  page(orgId: string, query: FilesQuery): Promise<z.infer<typeof FileList>>;
  /** @throws ServiceError `not_found` */
  get(orgId: string, id: string): Promise<FileRow>;
  /** @throws ServiceError `not_found` */
  content(orgId: string, id: string): Promise<{ file: FileRow; blob: OpenBlob }>;
  /** @throws ServiceError `not_found`, `conflict` for a file that a fine-tuning job reads */
  remove(orgId: string, id: string): Promise<void>;
  /** The blob keys among `keys` that belong to files. The sweep of blobs removes only blobs that nobody names. */
  namedBlobs(keys: readonly string[]): Promise<string[]>;
  /** The same without parts of uploads. A part that is lost can be sent again. */
  contentBlobs(keys: readonly string[]): Promise<string[]>;
  /** Files that come in parts. */
  uploads: Uploads;
}

export function openFiles(deps: FilesDeps): Files {
  const { db, blobs } = deps;
  const atOnce = openAtOnce('uploads', UPLOADS_PER_ORG_MAX);
  const get: Files['get'] = async (orgId, id) => (await findFile(db.read, orgId, id)) ?? failMissing(id);
  return {
    upload: (call) => atOnce.run(call.caller.orgId, () => upload(call, deps)),
    uploadedView: (file) => {
      const quotes = file.report.valid ? deps.quotes(file.report) : [];
      return quotes.length === 0 ? fileView(file) : { ...fileView(file), svc: { quotes } };
    },
    page: async (orgId, query) => {
      if (query.after?.startsWith('file_') === false) failField('after', 'must be the last_id of a page');
      const rows = await pageOfFiles(db.read, orgId, query, query.limit + 1);
      const data = rows.slice(0, query.limit).map(fileView);
      return {
        object: 'list',
        data,
        first_id: data[0]?.id ?? null,
        last_id: data.at(-1)?.id ?? null,
        has_more: rows.length > query.limit,
      };
    },
    get,
    content: async (orgId, id) => {
      const file = await get(orgId, id);
      // The blob is missing if the file was just deleted, or if a restored database does not match the disk.
      return { file, blob: (await blobs.open(file.blob_key)) ?? failMissing(id) };
    },
    remove: async (orgId, id) => {
      const gone = await db.tx('files.remove', async (tx) => {
        await tx.lock('org', orgId);
        if ((await findFile(tx, orgId, id)) === undefined) return undefined;
        await deps.refuseInUse(tx, id);
        return deleteFile(tx, orgId, id);
      });
      await removeUnnamed(blobs, (gone ?? failMissing(id)).blob_key);
    },
    namedBlobs: (keys) => namedBlobs(db.read, keys),
    contentBlobs: (keys) => contentBlobs(db.read, keys),
    uploads: openUploads(deps, atOnce),
  };
}

function failMissing(id: string): never {
  return fail('not_found', `There is no file ${id}.`);
}
