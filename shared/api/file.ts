// Uploaded files and the reports on them (specification 2.15).
import { z } from 'zod';
import { FineTuningQuote } from './fine-tuning.ts';
import { FILES_PAGE_MAX, PAGE_DEFAULT } from '../limits.ts';

const unixSeconds = z.int();

/** The only purpose of a file that is supported. */
export const FILE_PURPOSE = 'fine-tune';

export const FileObject = z
  .strictObject({
    id: z.string().describe('The id of the file'),
    object: z.literal('file').describe('Always `file`'),
    bytes: z.int().describe('Its length'),
    created_at: unixSeconds.describe('When it was uploaded, in Unix seconds'),
    filename: z.string().describe('As it was sent'),
    purpose: z.literal(FILE_PURPOSE).describe('Always `fine-tune`'),
    status: z
      .enum(['processed', 'error'])
      .describe('`error` if it cannot be used for training; its report has the reason'),
    svc: z
      .strictObject({ quotes: z.array(FineTuningQuote).describe('One for each base model') })
      .optional()
      .describe('In the answer to an upload: what a fine-tuning job with the file would cost'),
    status_details: z.string().optional().describe('The first problem of a file whose status is `error`'),
  })
  .meta({ id: 'File' });
export type FileObject = z.infer<typeof FileObject>;

export const FileList = z.strictObject({
  object: z.literal('list').describe('Always `list`'),
  data: z.array(FileObject).describe('The files of this page'),
  first_id: z.string().nullable().describe('Null if the page is empty'),
  last_id: z.string().nullable().describe('What `after` of the next page is'),
  has_more: z.boolean().describe('Whether there is a next page'),
});

export const FilesQuery = z.strictObject({
  after: z.string().max(64).optional().describe('`last_id` of the page before'),
  limit: z.coerce.number().int().min(1).max(FILES_PAGE_MAX).default(PAGE_DEFAULT).describe('Files on a page'),
  order: z.enum(['asc', 'desc']).default('desc').describe('By the time of the upload'),
  purpose: z.string().max(64).optional().describe('Only files of this purpose'),
});
export type FilesQuery = z.infer<typeof FilesQuery>;

export const DeletedFile = z.strictObject({
  id: z.string().describe('The id of the file'),
  object: z.literal('file').describe('Always `file`'),
  deleted: z.literal(true).describe('Always true'),
});

export const TrainingProblem = z.strictObject({
  line: z.int().nullable().describe('Counted from 1; null if the problem concerns the whole file'),
  rule: z
    .enum([
      'not_utf8',
      'line_too_long',
      'empty_line',
      'not_json',
      'not_an_object',
      'missing_messages',
      'unrecognized_key',
      'message_not_an_object',
      'message_missing_key',
      'message_unrecognized_key',
      'unrecognized_role',
      'missing_content',
      'invalid_weight',
      'example_missing_assistant_message',
      'last_message_not_assistant',
      'too_many_values',
      'too_few_examples',
    ])
    .describe('Stable identifier of the rule that is broken'),
  message: z.string().describe('What is wrong there'),
});
export type TrainingProblem = z.infer<typeof TrainingProblem>;

/** The report on a training file, as it is stored with the file. */
export const TrainingReport = z.strictObject({
  valid: z.boolean().describe('Whether it can be trained with'),
  examples: z.int().describe('Lines that are valid examples'),
  estimated_tokens: z.int().describe('Of all messages of those, from their bytes'),
  problems_found: z.int().describe('All of them; after 10,000 the rest of the file is not looked at'),
  problems: z.array(TrainingProblem).describe('The first 20'),
  repeated_examples: z
    .int()
    .describe('Examples that are equal to an earlier one, among the first 100,000. They are trained with all the same'),
});
export type TrainingReport = z.infer<typeof TrainingReport>;

export const FileReport = z
  .strictObject({
    object: z.literal('file.report').describe('Always `file.report`'),
    file_id: z.string().describe('The id of the file'),
    ...TrainingReport.shape,
  })
  .meta({ id: 'FileReport' });
