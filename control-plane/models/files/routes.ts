// The routes of /v1/files and of a single file (specification 2.15 and 4.9), and those of files that come in parts.
import { z } from 'zod';
import { DeletedFile, FILE_PURPOSE, FileList, FileObject, FileReport, FilesQuery } from '../../../shared/api/file.ts';
import { attachment, blobReply } from '../../base/blobs/content.ts';
import { type Route, route, uploadRoute } from '../../base/http/route.ts';
import type { Files } from './files.ts';
import { fileView } from './view.ts';
import { CompleteUpload, CreateUpload, Upload, UploadPart } from '../../../shared/api/upload.ts';
import type { Uploads } from './uploads.ts';

const tag = 'Files';
const params = z.strictObject({ id: z.string().describe('The id of the file') });

/** The schema is only for the API description. The handler reads the parts as a stream. */
const UploadForm = z.strictObject({
  file: z.file().describe('The file with its name'),
  purpose: z.literal(FILE_PURPOSE).describe('What the file is for'),
});

export function fileRoutes({ files }: { files: Files }): Route[] {
  return [uploadFile(files), ...uploadRoutes(files.uploads), ...readRoutes(files), deleteRoute(files)];
}

function uploadFile(files: Files): Route {
  return uploadRoute({
    method: 'POST',
    path: '/v1/files',
    operationId: 'uploadFile',
    tag,
    summary: 'Upload a file',
    description: UPLOAD_TEXT,
    scope: 'files:write',
    idempotency: 'none',
    upload: { mediaTypes: { 'multipart/form-data': UploadForm } },
    responses: { 200: { description: 'The file', schema: FileObject } },
    errors: ['conflict', 'storage_full', 'unsupported_parameter'],
    handler: async (call) => ({ status: 200, body: files.uploadedView(await files.upload(call)) }),
  });
}

function readRoutes(files: Files): Route[] {
  const uploadCommon = { method: 'GET', tag, scope: 'files:read', idempotency: 'none' } as const;
  return [
    route({
      ...uploadCommon,
      path: '/v1/files',
      operationId: 'listFiles',
      summary: 'List the files of the organisation',
      query: FilesQuery,
      responses: { 200: { description: 'A page of files', schema: FileList } },
      errors: [],
      handler: async ({ caller, query }) => ({ status: 200, body: await files.page(caller.orgId, query) }),
    }),
    route({
      ...uploadCommon,
      path: '/v1/files/{id}',
      operationId: 'getFile',
      summary: 'Read the metadata of a file',
      params,
      responses: { 200: { description: 'The file', schema: FileObject } },
      errors: ['not_found'],
      handler: async ({ caller, params: { id } }) => ({
        status: 200,
        body: fileView(await files.get(caller.orgId, id)),
      }),
    }),
    route({
      ...uploadCommon,
      path: '/v1/files/{id}/report',
      operationId: 'getFileReport',
      summary: 'Read the report on a training file',
      params,
      responses: { 200: { description: 'The report', schema: FileReport } },
      errors: ['not_found'],
      handler: async ({ caller, params: { id } }) => {
        const { report } = await files.get(caller.orgId, id);
        return { status: 200, body: { object: 'file.report', file_id: id, ...report } };
      },
    }),
    route({
      ...uploadCommon,
      path: '/v1/files/{id}/content',
      // The file may be on the disk of the primary.
      everywhere: false,
      operationId: 'getFileContent',
      summary: 'Download a file',
      description: 'The file as it was uploaded, byte for byte. Accepts a `Range` of bytes.',
      params,
      responses: {
        200: { description: 'The content', mediaType: 'application/octet-stream' },
        206: { description: 'The requested range of bytes', mediaType: 'application/octet-stream' },
      },
      errors: ['not_found', 'range_not_satisfiable'],
      handler: async ({ caller, params: { id }, range }) => {
        const { file, blob } = await files.content(caller.orgId, id);
        return blobReply(blob, range, {
          'content-type': 'application/octet-stream',
          'content-disposition': attachment(file.filename),
        });
      },
    }),
  ];
}

function deleteRoute(files: Files): Route {
  return route({
    method: 'DELETE',
    path: '/v1/files/{id}',
    operationId: 'deleteFile',
    tag,
    summary: 'Delete a file',
    description: 'A file that a fine-tuning job reads cannot be deleted before the job has ended.',
    scope: 'files:write',
    idempotency: 'none',
    params,
    responses: { 200: { description: 'It is gone', schema: DeletedFile } },
    errors: ['not_found', 'conflict'],
    handler: async ({ caller, params: { id } }) => {
      await files.remove(caller.orgId, id);
      return { status: 200, body: { id, object: 'file', deleted: true } };
    },
  });
}

const UPLOAD_TEXT = `The body is a form with the parts \`file\` and \`purpose\`, in any order. The only purpose is \`fine-tune\`. The file is JSON
lines: at least 10 lines, each at most 1 MiB long. Each line is an object with one field, \`messages\`: a list of \`{"role", "content"}\`. The roles
are system, user and assistant, and the last message must be from the assistant. A message may also have \`weight\` (0 or 1) and \`name\`.

The file is checked while it is received. A file that cannot be used for training is also stored. Its \`status\` is then \`error\`, \`status_details\`
is the first problem, and \`GET /v1/files/{id}/report\` lists the first 20 problems with their lines.`;

const uploadParams = z.strictObject({ id: z.string().describe('The id of the upload') });

/** The schema is only for the API description. The handler reads the part as a stream. */
const PartForm = z.strictObject({ data: z.file().describe('The bytes of the part, at most 64 MiB') });

const uploadCommon = { method: 'POST', tag: 'Files', scope: 'files:write' } as const;

/** The routes of /v1/uploads, as official clients use them. */
function uploadRoutes(uploads: Uploads): Route[] {
  return [
    route({
      ...uploadCommon,
      path: '/v1/uploads',
      operationId: 'createUpload',
      summary: 'Begin the upload of a file in parts',
      description: CREATE_TEXT,
      idempotency: 'optional',
      body: CreateUpload,
      responses: { 200: { description: 'The upload, pending', schema: Upload } },
      errors: ['conflict'],
      handler: (call) => uploads.create(call),
    }),
    uploadRoute({
      ...uploadCommon,
      path: '/v1/uploads/{id}/parts',
      operationId: 'addUploadPart',
      summary: 'Add a part',
      description: PART_TEXT,
      idempotency: 'none',
      params: uploadParams,
      upload: { mediaTypes: { 'multipart/form-data': PartForm } },
      responses: { 200: { description: 'The part', schema: UploadPart } },
      errors: ['not_found', 'conflict', 'expired', 'storage_full', 'unsupported_parameter'],
      handler: async (call) => ({ status: 200, body: await uploads.addPart(call) }),
    }),
    route({
      ...uploadCommon,
      path: '/v1/uploads/{id}/complete',
      operationId: 'completeUpload',
      summary: 'Complete an upload: join its parts to a file',
      description: COMPLETE_TEXT,
      idempotency: 'optional',
      params: uploadParams,
      body: CompleteUpload,
      responses: { 200: { description: 'The upload, completed, with its file', schema: Upload } },
      errors: ['not_found', 'conflict', 'expired', 'storage_full'],
      handler: (call) => uploads.complete(call),
    }),
    route({
      ...uploadCommon,
      path: '/v1/uploads/{id}/cancel',
      endsSomething: true,
      operationId: 'cancelUpload',
      summary: 'Cancel an upload',
      description:
        'The parts of the upload are removed. An upload that is already cancelled or expired is returned unchanged. A completed upload cannot be cancelled.',
      idempotency: 'optional',
      params: uploadParams,
      responses: { 200: { description: 'The upload, cancelled', schema: Upload } },
      errors: ['not_found', 'conflict'],
      handler: (call) => uploads.cancel(call),
    }),
  ];
}

const CREATE_TEXT = `After this request, add parts, and complete the upload within an hour. The file is then checked like a file of
\`POST /v1/files\`. The \`bytes\` of the upload count for the limits of the organisation from now on, until the upload is cancelled, or until half
an hour after it has expired.`;

const PART_TEXT = `The body is a form with one part, \`data\`. Parts may be sent in parallel and in any order. If the answer for a part was lost, send
the part again: only the parts that \`part_ids\` names count. All parts of an upload together may have at most twice its \`bytes\`.`;

const COMPLETE_TEXT = `\`part_ids\` names the parts in the order of the file. Together they must have the \`bytes\` of the upload. A repeated request with
the same parts gets the same answer.`;
