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
    bytes: z.int().describe('Length of the file, in bytes'),
    created_at: unixSeconds.describe('When it was uploaded, in Unix seconds'),
    filename: z.string().describe('Name of the file, as it was sent'),
    purpose: z.literal(FILE_PURPOSE).describe('Always `fine-tune`'),
    status: z
      .enum(['processed', 'error'])
      .describe('`error` if it cannot be used for training; its report has the reason'),
    svc: z
      .strictObject({ quotes: z.array(FineTuningQuote).describe('One for each base model') })
      .optional()
      .describe('What a fine-tuning job with the file would cost. Present only in the answer to an upload'),
    status_details: z.string().optional().describe('The first problem of a file whose status is `error`'),
  })
  .meta({ id: 'File' });
export type FileObject = z.infer<typeof FileObject>;

export const FileList = z.strictObject({
  object: z.literal('list').describe('Always `list`'),
  data: z.array(FileObject).describe('The files of this page'),
  first_id: z.string().nullable().describe('Id of the first file of this page. Null if the page is empty'),
  last_id: z
    .string()
    .nullable()
    .describe('Id of the last file of this page: send it as `after` to get the next page. Null if the page is empty'),
  has_more: z.boolean().describe('Whether there is a next page'),
});

export const FilesQuery = z.strictObject({
  after: z.string().max(64).optional().describe('`last_id` of the page before'),
  limit: z.coerce.number().int().min(1).max(FILES_PAGE_MAX).default(PAGE_DEFAULT).describe('Files on a page'),
  order: z
    .enum(['asc', 'desc'])
    .default('desc')
    .describe('Order by the time of the upload; `desc` begins with the newest file'),
  purpose: z.string().max(64).optional().describe('Only files of this purpose'),
});
export type FilesQuery = z.infer<typeof FilesQuery>;

export const DeletedFile = z.strictObject({
  id: z.string().describe('The id of the file'),
  object: z.literal('file').describe('Always `file`'),
  deleted: z.literal(true).describe('Always true'),
});

export const TrainingProblem = z.strictObject({
  line: z.int().nullable().describe('Number of the line, counted from 1. Null if the problem concerns the whole file'),
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
  valid: z.boolean().describe('Whether the file can be used for training'),
  examples: z.int().describe('Lines that are valid examples'),
  estimated_tokens: z
    .int()
    .describe('Estimated tokens of all messages of the valid examples, computed from their bytes'),
  problems_found: z
    .int()
    .describe('Number of problems found. After 10,000 problems the rest of the file is not checked'),
  problems: z.array(TrainingProblem).describe('The first 20'),
  repeated_examples: z
    .int()
    .describe(
      'Number of examples that are equal to an earlier one, among the first 100,000 examples. They are used for training nevertheless',
    ),
});
export type TrainingReport = z.infer<typeof TrainingReport>;

export const FileReport = z
  .strictObject({
    object: z.literal('file.report').describe('Always `file.report`'),
    file_id: z.string().describe('The id of the file'),
    ...TrainingReport.shape,
  })
  .meta({ id: 'FileReport' });
