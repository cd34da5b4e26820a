// Uploads of a file in parts, as official clients make them.
import { z } from 'zod';
import { FILENAME_CHARS_MAX, MEDIA_TYPE_CHARS_MAX, UPLOAD_BYTES_MAX, UPLOAD_PARTS_MAX } from '../limits.ts';
import { FILE_PURPOSE, FileObject } from './file.ts';

const unixSeconds = z.int();

export const CreateUpload = z.strictObject({
  bytes: z.int().min(1).max(UPLOAD_BYTES_MAX).describe('The length of the whole file'),
  filename: z
    .string()
    .min(1)
    .max(FILENAME_CHARS_MAX)
    .refine((name) => !/\p{Cc}/u.test(name), 'must have no control characters')
    .describe('The name of the file'),
  mime_type: z
    .string()
    .min(1)
    .max(MEDIA_TYPE_CHARS_MAX)
    .describe('Media type of the file, like `text/jsonl`. It has no effect'),
  purpose: z.literal(FILE_PURPOSE).describe('What the file is for'),
});
export type CreateUpload = z.infer<typeof CreateUpload>;

export const CompleteUpload = z.strictObject({
  part_ids: z
    .array(z.string().min(1).max(64))
    .min(1)
    .max(UPLOAD_PARTS_MAX)
    .describe('The parts of the file, in their order'),
  md5: z
    .string()
    .regex(/^[0-9a-fA-F]{32}$/, 'must be 32 hexadecimal characters')
    .optional()
    .describe('The MD5 of the whole file. If the MD5 of the received file differs, the request is refused'),
});
export type CompleteUpload = z.infer<typeof CompleteUpload>;

export const Upload = z
  .strictObject({
    id: z.string().describe('The id of the upload'),
    object: z.literal('upload').describe('Always `upload`'),
    bytes: z.int().describe('The length of the whole file'),
    created_at: unixSeconds.describe('When it was created, in Unix seconds'),
    expires_at: unixSeconds.describe(
      'Time in Unix seconds from which the upload takes no parts and cannot be completed',
    ),
    filename: z.string().describe('Name of the file, as it was sent'),
    purpose: z.literal(FILE_PURPOSE).describe('Always `fine-tune`'),
    status: z.enum(['pending', 'completed', 'cancelled', 'expired']).describe('Parts are taken while it is `pending`'),
    file: FileObject.nullable().describe('The file, once the upload is completed'),
  })
  .meta({ id: 'Upload' });
export type Upload = z.infer<typeof Upload>;

export const UploadPart = z
  .strictObject({
    id: z.string().describe('The id of the part, for `part_ids`'),
    object: z.literal('upload.part').describe('Always `upload.part`'),
    upload_id: z.string().describe('The upload that it belongs to'),
    created_at: unixSeconds.describe('When it was stored, in Unix seconds'),
  })
  .meta({ id: 'UploadPart' });
export type UploadPart = z.infer<typeof UploadPart>;
