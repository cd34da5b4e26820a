// The routes of /v1/fine_tuning/jobs (specification 2.15, 4.8), and the quote for a file.
import { z } from 'zod';
import {
  CreateFineTuningJob,
  FineTuningCheckpointList,
  FineTuningEventList,
  FineTuningEventsQuery,
  FineTuningJob,
  FineTuningJobList,
  FineTuningQuery,
  FineTuningQuoteList,
} from '../../../shared/api/fine-tuning.ts';
import type { Db } from '../../base/db/db.ts';
import { type Reply, type Route, route } from '../../base/http/route.ts';
import { fail } from '../../../shared/errors.ts';
import { findFile } from '../files/store.ts';
import type { FineTuningRoom } from './finetuning.ts';

const tag = 'Fine-tuning';
const params = z.strictObject({ id: z.string().describe('The id of the job') });

interface RoutesDeps {
  db: Db;
  fineTuning: FineTuningRoom;
}

export function fineTuningRoutes(deps: RoutesDeps): Route[] {
  return [createRoute(deps), ...readRoutes(deps), cancelRoute(deps), quoteRoute(deps)];
}

function createRoute({ fineTuning }: RoutesDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/fine_tuning/jobs',
    operationId: 'createFineTuningJob',
    tag,
    summary: 'Start a fine-tuning job',
    description: CREATE_TEXT,
    scope: 'finetuning:write',
    idempotency: 'optional',
    spends: true,
    body: CreateFineTuningJob,
    responses: { 200: { description: 'The job', schema: FineTuningJob } },
    errors: ['model_not_found', 'not_found', 'insufficient_balance'],
    handler: (call) => fineTuning.create(call),
  });
}

function readRoutes({ fineTuning }: RoutesDeps): Route[] {
  const common = { method: 'GET', tag, scope: 'finetuning:read', idempotency: 'none' } as const;
  return [
    route({
      ...common,
      path: '/v1/fine_tuning/jobs',
      operationId: 'listFineTuningJobs',
      summary: 'List the fine-tuning jobs',
      description:
        'Jobs are listed newest first. To get the next page, send the id of the last job of this page as `after`.',
      query: FineTuningQuery,
      responses: { 200: { description: 'A page of jobs', schema: FineTuningJobList } },
      errors: [],
      handler: async ({ caller, query }) => ({ status: 200, body: await fineTuning.list(caller.orgId, query) }),
    }),
    route({
      ...common,
      path: '/v1/fine_tuning/jobs/{id}',
      operationId: 'getFineTuningJob',
      summary: 'Follow a fine-tuning job',
      params,
      responses: { 200: { description: 'The job', schema: FineTuningJob } },
      errors: ['not_found'],
      handler: async ({ caller, params: { id } }) => ({ status: 200, body: await fineTuning.get(caller.orgId, id) }),
    }),
    route({
      ...common,
      path: '/v1/fine_tuning/jobs/{id}/events',
      operationId: 'listFineTuningEvents',
      summary: 'List the events of a fine-tuning job',
      params,
      query: FineTuningEventsQuery,
      responses: { 200: { description: 'A page of events', schema: FineTuningEventList } },
      errors: ['not_found'],
      handler: async ({ caller, params: { id }, query }) => ({
        status: 200,
        body: await fineTuning.events(caller.orgId, id, query),
      }),
    }),
    route({
      ...common,
      path: '/v1/fine_tuning/jobs/{id}/checkpoints',
      operationId: 'listFineTuningCheckpoints',
      summary: 'List the checkpoints of a fine-tuning job',
      description: 'If a job loses its machine, it continues from the newest checkpoint.',
      params,
      query: FineTuningQuery,
      responses: { 200: { description: 'A page of checkpoints', schema: FineTuningCheckpointList } },
      errors: ['not_found'],
      handler: async ({ caller, params: { id }, query }) => ({
        status: 200,
        body: await fineTuning.checkpoints(caller.orgId, id, query),
      }),
    }),
  ];
}

function cancelRoute({ fineTuning }: RoutesDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/fine_tuning/jobs/{id}/cancel',
    endsSomething: true,
    operationId: 'cancelFineTuningJob',
    tag,
    summary: 'Cancel a fine-tuning job',
    description:
      'The status is `cancelled` once the machine has stopped the job. What was trained until its last checkpoint or result is charged, and `result_files` has it. A job that has ended is returned unchanged.',
    scope: 'finetuning:write',
    idempotency: 'optional',
    params,
    responses: { 200: { description: 'The job', schema: FineTuningJob } },
    errors: ['not_found'],
    handler: async ({ caller, params: { id }, settle }): Promise<Reply> => {
      const body = await fineTuning.cancel(caller.orgId, id, (tx, job) => settle(tx, { status: 200, body: job }));
      return { status: 200, body };
    },
  });
}

function quoteRoute({ db, fineTuning }: RoutesDeps): Route {
  return route({
    method: 'POST',
    path: '/v1/files/{id}/quote',
    operationId: 'quoteFile',
    tag,
    summary: 'Ask what a fine-tuning job with a file would cost',
    description: 'The answer has a range of costs for each base model. No money is held, and no job is started.',
    scope: 'files:read',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The id of the file') }),
    responses: { 200: { description: 'The quotes', schema: FineTuningQuoteList } },
    errors: ['not_found', 'conflict'],
    handler: async ({ caller, params: { id } }) => {
      const file = await findFile(db.read, caller.orgId, id);
      if (file === undefined) return fail('not_found', `There is no file ${id}.`);
      if (!file.report.valid)
        fail('conflict', `Nothing can be trained with the file ${id}. GET /v1/files/${id}/report lists its faults.`);
      return { status: 200, body: { object: 'list', data: fineTuning.quotes(file.report) } };
    },
  });
}

const CREATE_TEXT = `The answer comes at once. Follow the job with GET /v1/fine_tuning/jobs/{id} and its events. The budget is
\`svc.max_budget_usd\`. Without it, the budget is the \`max_usd\` of the quote, and at least \`min_budget_usd\`. The budget is held until the job ends. The
time of the GPUs that trained is charged by the second, up to the last stored checkpoint or result. If the job loses its machine, it continues from its
last checkpoint on another machine, and the lost time is not charged. When the budget is used up, the job stores a last checkpoint and is stopped. It is
then \`failed\` with \`budget_exceeded\`. If a job fails or is cancelled, \`result_files\` has what was trained until then, which is its last checkpoint if there
is no result.

Official clients do not know the field \`svc\`. They pass it on if it is in the body of the request.`;
