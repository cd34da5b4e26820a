// The routes of /v1/videos (specification 2.13, 4.8): submit, follow, cancel and download asynchronous jobs.
import { z } from 'zod';
import { VideoDeleted, VideoJob, VideoPage, VideoRequest, VideosQuery } from '../../../shared/api/videos.ts';
import { fail, failField } from '../../../shared/errors.ts';
import { blobReply } from '../../base/blobs/content.ts';
import type { Blobs } from '../../base/blobs/blobs.ts';
import { byCreation, type Cursors } from '../../base/http/cursors.ts';
import { type Reply, type Route, route } from '../../base/http/route.ts';
import type { Job } from './store.ts';
import type { Videos } from './videos.ts';
import { videoView } from './view.ts';

const tag = 'Inference';
/** Reading needs this scope too, because `serverless:read` is for models only (specification 5). */
const scope = 'serverless:write';
const params = z.strictObject({ id: z.string().describe('The id of the video') });

interface RoutesDeps {
  videos: Videos;
  cursors: Cursors;
  blobs: Blobs;
}

export function videoRoutes(deps: RoutesDeps): Route[] {
  const { videos } = deps;
  return [
    route({
      method: 'POST',
      path: '/v1/videos',
      operationId: 'createVideo',
      tag,
      summary: 'Make a video',
      description: CREATE_TEXT,
      scope,
      idempotency: 'optional',
      spends: true,
      takesForm: true,
      body: VideoRequest,
      responses: { 202: { description: 'The job, in the queue', schema: VideoJob } },
      errors: ['model_not_found', 'insufficient_balance'],
      handler: (call) => videos.submit(call),
    }),
    listRoute(deps),
    route({
      method: 'GET',
      path: '/v1/videos/{id}',
      operationId: 'getVideo',
      tag,
      summary: 'Follow a video',
      scope,
      idempotency: 'none',
      params,
      responses: { 200: { description: 'The job', schema: VideoJob } },
      errors: ['not_found'],
      handler: async ({ caller, params: { id } }) => ({
        status: 200,
        body: videoView(await videos.get(caller.orgId, id)),
      }),
    }),
    contentRoute(deps),
    cancelRoute(deps),
    route({
      method: 'DELETE',
      path: '/v1/videos/{id}',
      operationId: 'deleteVideo',
      tag,
      summary: 'Delete a video',
      description: 'Deletes a job that has ended, and its file. The charge for the job stays.',
      scope,
      idempotency: 'none',
      params,
      responses: { 200: { description: 'It is deleted', schema: VideoDeleted } },
      errors: ['not_found', 'conflict'],
      handler: async ({ caller, params: { id } }) => {
        await videos.remove(caller.orgId, id);
        return { status: 200, body: { id, object: 'video.deleted', deleted: true } };
      },
    }),
  ];
}

function listRoute({ videos, cursors }: RoutesDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/videos',
    operationId: 'listVideos',
    tag,
    summary: 'List the videos',
    description:
      'To get the next page, send the `last_id` of the page before as `after`, or its `next_cursor` as `cursor`.',
    scope,
    idempotency: 'none',
    query: VideosQuery,
    responses: { 200: { description: 'A page of jobs', schema: VideoPage } },
    errors: [],
    handler: async ({ caller: { orgId }, query }) => {
      const { after, cursor, limit, order } = query;
      if (after !== undefined && cursor !== undefined) failField('after', 'must not be sent with cursor');
      const list = `videos/${orgId}/${order}`;
      const from = after === undefined ? cursors.read(list, cursor) : await videos.positionOf(orgId, after);
      const jobs = await videos.list(orgId, { from, order, count: limit + 1 });
      const { data, next_cursor } = cursors.pageOf(list, jobs, limit, {
        at: byCreation,
        show: videoView,
      });
      const body: VideoPage = {
        object: 'list',
        data,
        first_id: data[0]?.id ?? null,
        last_id: data.at(-1)?.id ?? null,
        has_more: next_cursor !== null,
        next_cursor,
      };
      return { status: 200, body };
    },
  });
}

function cancelRoute({ videos }: RoutesDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/videos/{id}/cancel',
    endsSomething: true,
    operationId: 'cancelVideo',
    tag,
    summary: 'Cancel a video',
    description:
      'A cancelled job costs nothing. If the job has ended, or if its video is finished and being fetched, the job is returned unchanged.',
    scope,
    idempotency: 'optional',
    params,
    responses: { 200: { description: 'The job', schema: VideoJob } },
    errors: ['not_found'],
    handler: async ({ caller, params: { id }, settle }) => {
      const reply = (job: Job): Reply => ({ status: 200, body: videoView(job) });
      return reply(await videos.cancel(caller.orgId, id, (tx, job) => settle(tx, reply(job))));
    },
  });
}

function contentRoute({ videos, blobs }: RoutesDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/videos/{id}/content',
    // The file may be on the disk of the primary.
    everywhere: false,
    operationId: 'getVideoContent',
    tag,
    summary: 'Download a video',
    description: 'The MP4 file of a completed job, for 24 hours. A `Range` header asks for a part of it.',
    scope,
    idempotency: 'none',
    params,
    query: z.strictObject({
      variant: z
        .enum(['video'])
        .optional()
        .describe('Only `video` is accepted, which is the default. There are no previews'),
    }),
    responses: {
      200: { description: 'The file', mediaType: 'video/mp4' },
      206: { description: 'The requested bytes', mediaType: 'video/mp4' },
    },
    errors: ['not_found', 'conflict', 'expired', 'range_not_satisfiable'],
    handler: async ({ caller, params: { id }, range }) => {
      const job = await videos.get(caller.orgId, id);
      const { status, blob_key: key } = job;
      if (status === 'expired') return failExpired(job);
      if (status !== 'completed' || key === null) return failWithout(id, status);
      const blob = await blobs.open(key);
      // The file has expired since the row was read.
      if (blob === undefined) return failExpired(job);
      return blobReply(blob, range, { 'content-type': 'video/mp4', 'cache-control': 'private, no-store' });
    },
  });
}

function failExpired({ id, error_message: neverBegan }: Job): never {
  return fail(
    'expired',
    neverBegan === null
      ? `The file of the video ${id} is gone: it is kept for 24 hours. Make it again with a new request.`
      : `The video ${id} has no file. ${neverBegan}`,
  );
}

function failWithout(id: string, status: Job['status']): never {
  const isOnItsWay = status === 'queued' || status === 'in_progress';
  const advice = isOnItsWay ? `Ask GET /v1/videos/${id} until it is completed.` : 'There will be no file.';
  return fail('conflict', `The video ${id} is ${status}. ${advice}`);
}

const CREATE_TEXT = `The answer comes at once and is a job in the queue. Follow it with GET /v1/videos/{id}, and download the file when the job is
\`completed\`.

A request may also have the fields that \`parameters\` of the model lists. Any other field is refused, and the refusal names it. The cost of the
video is held until the job has ended. It is charged when the job is completed. It is given back if the job fails or is cancelled, or if no server
begins with it within two hours. The body may also be a form. In a form every value is a text.`;
