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
    .describe('Length of the clip, within the bounds of the model, else its default; as digits only in a form'),
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
    seconds: z.int().describe('Length of the clip'),
    cost_cents: z
      .int()
      .describe('What was charged: whole cents, rounded up once for the job; 0 unless it was completed'),
    cost: z.string().describe('The same charge in dollars'),
    created_at: unixSeconds.describe('Unix seconds'),
    completed_at: unixSeconds.nullable().describe('Unix seconds; null unless it was completed'),
    expires_at: unixSeconds.nullable().describe('Unix seconds: so long its file is kept; null unless it was completed'),
    error: z
      .strictObject({
        code: z.string().describe('Stable identifier of the error; branch on this one'),
        message: z.string().describe('What went wrong'),
      })
      .nullable()
      .describe('Null unless it failed, or expired before a server began with it'),
  })
  .meta({ id: 'VideoJob' });
export type VideoJob = z.infer<typeof VideoJob>;

export const VideosQuery = z.strictObject({
  ...pageParameters,
  after: z.string().min(1).max(256).optional().describe('Id of the last job of the page before, in place of `cursor`'),
  order: z.enum(['asc', 'desc']).default('desc').describe('By time of creation; `desc` begins with the newest'),
});

/** A page for two kinds of clients: some send `last_id` as `after`, others send `next_cursor` as `cursor`. */
export const VideoPage = z.strictObject({
  object: z.literal('list').describe('Always `list`'),
  data: z.array(VideoJob).describe('The jobs of this page'),
  first_id: z.string().nullable().describe('Null on an empty page'),
  last_id: z.string().nullable().describe('The same'),
  has_more: z.boolean().describe('Whether there is a page after this one'),
  next_cursor: z.string().nullable().describe('Null when no further page exists'),
});
export type VideoPage = z.infer<typeof VideoPage>;

export const VideoDeleted = z.strictObject({
  id: z.string().describe('Of the video'),
  object: z.literal('video.deleted').describe('Always `video.deleted`'),
  deleted: z.literal(true).describe('Always true'),
});
