// The routes of /v1/uploads: files that come in parts, as official clients send them.
import { z } from 'zod';
import { CompleteUpload, CreateUpload, Upload, UploadPart } from '../../../shared/api/upload.ts';
import { type Route, route, uploadRoute } from '../../base/http/route.ts';
import type { Uploads } from './uploads.ts';

const params = z.strictObject({ id: z.string().describe('The id of the upload') });

/** The schema is only for the API description. The handler reads the part as a stream. */
const PartForm = z.strictObject({ data: z.file().describe('The bytes of the part, at most 64 MiB') });

const common = { method: 'POST', tag: 'Files', scope: 'files:write' } as const;

export function uploadRoutes(uploads: Uploads): Route[] {
  return [
    route({
      ...common,
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
      ...common,
      path: '/v1/uploads/{id}/parts',
      operationId: 'addUploadPart',
      summary: 'Add a part',
      description: PART_TEXT,
      idempotency: 'none',
      params,
      upload: { mediaTypes: { 'multipart/form-data': PartForm } },
      responses: { 200: { description: 'The part', schema: UploadPart } },
      errors: ['not_found', 'conflict', 'expired', 'storage_full', 'unsupported_parameter'],
      handler: async (call) => ({ status: 200, body: await uploads.addPart(call) }),
    }),
    route({
      ...common,
      path: '/v1/uploads/{id}/complete',
      operationId: 'completeUpload',
      summary: 'Complete an upload: join its parts to a file',
      description: COMPLETE_TEXT,
      idempotency: 'optional',
      params,
      body: CompleteUpload,
      responses: { 200: { description: 'The upload, completed, with its file', schema: Upload } },
      errors: ['not_found', 'conflict', 'expired', 'storage_full'],
      handler: (call) => uploads.complete(call),
    }),
    route({
      ...common,
      path: '/v1/uploads/{id}/cancel',
      endsSomething: true,
      operationId: 'cancelUpload',
      summary: 'Cancel an upload',
      description:
        'The parts of the upload are removed. An upload that is already cancelled or expired is returned unchanged. A completed upload cannot be cancelled.',
      idempotency: 'optional',
      params,
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
