// The routes of /v1/files and of a single file (specification 2.15 and 4.9), and those of files that come in parts.
import { z } from 'zod';
import { DeletedFile, FILE_PURPOSE, FileList, FileObject, FileReport, FilesQuery } from '../../../shared/api/file.ts';
import { attachment, blobReply } from '../../base/blobs/content.ts';
import { type Route, route, uploadRoute } from '../../base/http/route.ts';
import type { Files } from './files.ts';
import { uploadRoutes } from './upload-routes.ts';
import { fileView } from './view.ts';

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
  const common = { method: 'GET', tag, scope: 'files:read', idempotency: 'none' } as const;
  return [
    route({
      ...common,
      path: '/v1/files',
      operationId: 'listFiles',
      summary: 'List the files of the organisation',
      query: FilesQuery,
      responses: { 200: { description: 'A page of files', schema: FileList } },
      errors: [],
      handler: async ({ caller, query }) => ({ status: 200, body: await files.page(caller.orgId, query) }),
    }),
    route({
      ...common,
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
      ...common,
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
      ...common,
      path: '/v1/files/{id}/content',
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
