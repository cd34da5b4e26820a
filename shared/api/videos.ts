// Videos (specification 2.13, 4.8): the request, and the job that makes a video.
import { z } from 'zod';
import { pageParameters } from './page.ts';

/** All members except the listed ones are checked later against the model's `parameters`, when the model is known. */
export const VideoRequest = z.looseObject({
  model: z.string().min(1).max(256).describe('Id or alias of a video model'),
  prompt: z.string().min(1).max(32_000).describe('What the video shows'),
  seconds: z
    .union([z.int(), z.string().regex(/^[0-9]{1,9}$/, 'must be an integer')])
    .nullish()
    .describe(
      'Length of the clip, in seconds, within the limits of the model. If it is left out, the default of the model is used. It may be sent as a text of digits',
    ),
});
export type VideoRequest = z.infer<typeof VideoRequest>;

const unixSeconds = z.int();

export const VideoJob = z
  .strictObject({
    id: z.string().describe('`vid_...`'),
    object: z.literal('video').describe('Always `video`'),
    model: z.string().describe('Canonical id of the model'),
    status: z
      .enum(['queued', 'in_progress', 'completed', 'failed', 'cancelled', 'expired'])
      .describe('`expired` if the file is gone, or if no server began within two hours'),
    progress: z.int().min(0).max(100).describe('Percent; some models stay at 0 until the end'),
    prompt: z
      .string()
      .nullable()
      .describe(
        'The first 500 characters of the prompt. Null once the file is gone, and after the end of a job that made none: the prompt is not kept then',
      ),
    seconds: z.int().describe('Length of the clip, in seconds'),
    size: z.string().nullable().describe('Size of the picture, like `1280x720`. Null if the model has one size only'),
    cost_cents: z
      .int()
      .describe('The charge in whole cents, rounded up once for the job. 0 unless the job was completed'),
    cost: z.string().describe('The same charge in dollars'),
    created_at: unixSeconds.describe('When the job was created, in Unix seconds'),
    completed_at: unixSeconds
      .nullable()
      .describe('When the job was completed, in Unix seconds. Null unless it was completed'),
    expires_at: unixSeconds
      .nullable()
      .describe('Time in Unix seconds until which the file is kept. Null unless the job was completed'),
    error: z
      .strictObject({
        code: z.string().describe('Stable identifier of the error; branch on this one'),
        message: z.string().describe('What went wrong'),
      })
      .nullable()
      .describe('Why the job failed or expired. Null unless the job failed, or expired before a server began with it'),
  })
  .meta({ id: 'VideoJob' });
export type VideoJob = z.infer<typeof VideoJob>;

export const VideosQuery = z.strictObject({
  ...pageParameters,
  after: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe('Id of the last job of the page before; an alternative to `cursor`'),
  order: z.enum(['asc', 'desc']).default('desc').describe('By time of creation; `desc` begins with the newest'),
});

/** A page for two kinds of clients: some send `last_id` as `after`, others send `next_cursor` as `cursor`. */
export const VideoPage = z.strictObject({
  object: z.literal('list').describe('Always `list`'),
  data: z.array(VideoJob).describe('The jobs of this page'),
  first_id: z.string().nullable().describe('Id of the first job of this page. Null if the page is empty'),
  last_id: z.string().nullable().describe('Id of the last job of this page. Null if the page is empty'),
  has_more: z.boolean().describe('Whether there is a page after this one'),
  next_cursor: z.string().nullable().describe('Null when no further page exists'),
});
export type VideoPage = z.infer<typeof VideoPage>;

export const VideoDeleted = z.strictObject({
  id: z.string().describe('Id of the deleted video'),
  object: z.literal('video.deleted').describe('Always `video.deleted`'),
  deleted: z.literal(true).describe('Always true'),
});
