// Submits a new video job: reads its parameters as its model declares them, and holds the price before it is queued.
import type { VideoRequest } from '../../../shared/api/videos.ts';
import { fail, failField } from '../../../shared/errors.ts';
import { ceilToCents } from '../../../shared/money.ts';
import type { Tx } from '../../base/db/db.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import { wallet } from '../../money/ledger/accounts.ts';
import type { CatalogModel, Pricing } from '../catalog/models.ts';
import { holdId } from './states.ts';
import * as store from './store.ts';
import type { VideosDeps } from './deps.ts';
import { videoView } from './view.ts';
import { brokenRule, type ParameterValue } from '../catalog/parameters.ts';

export type SubmitCall = Pick<
  Call<undefined, undefined, VideoRequest>,
  'caller' | 'requestId' | 'body' | 'isForm' | 'settle'
>;

/** @throws ServiceError `model_not_found`, `invalid_request`, `validation_failed`, `rate_limit_exceeded`, `insufficient_balance` */
export async function submit(call: SubmitCall, deps: VideosDeps): Promise<Reply> {
  const { caller, isForm, requestId } = call;
  const { model: name, prompt, ...members } = call.body;
  const { model, pricing } = deps.catalog.callable(name, 'video');
  const parameters = readParameters({ members, isForm }, model);
  const nowMs = deps.clock.now();
  const job: store.NewJob = {
    id: deps.ids.prefixed('vid'),
    org_id: caller.orgId,
    api_key_id: caller.principalId,
    request_id: requestId,
    model_id: model.id,
    seconds: secondsOf(parameters, model),
    held_ucents: videoUcents(secondsOf(parameters, model), pricing),
    request: { prompt, parameters },
    created_ms: nowMs,
  };
  const reply = await deps.db.tx('videos.submit', async (tx) => {
    await tx.lock('org', caller.orgId);
    await refuseTooMany(tx, caller.orgId, deps);
    await deps.ledger.setHold(tx, holdId(job.id), wallet(caller.orgId), job.held_ucents);
    await store.insertJob(tx, job);
    const row = await store.findJob(tx, job.id);
    if (row === undefined) throw new Error(`the video job ${job.id} is not there`);
    const made: Reply = { status: 202, body: videoView(row) };
    await call.settle(tx, made);
    return made;
  });
  deps.nudge();
  return reply;
}

export interface Given {
  /** The fields of the body without model and prompt. */
  members: Record<string, unknown>;
  /** True if the fields are texts of a form. */
  isForm: boolean;
}

/**
 * The values of all parameters: from the request, otherwise the default of the model.
 * @throws ServiceError `invalid_request` for a parameter that the model does not declare, `validation_failed` for a wrong value
 */
function readParameters({ members, isForm }: Given, model: CatalogModel): Record<string, ParameterValue> {
  const { parameters } = model;
  for (const name of Object.keys(members)) {
    if (!parameters.some((parameter) => parameter.name === name)) refuseUndeclared(name, model);
  }
  const values: Record<string, ParameterValue> = {};
  for (const parameter of parameters) {
    const { name, default: standard } = parameter;
    const sent = Object.hasOwn(members, name) ? members[name] : null;
    // A null in a form stands for a file, which is not a valid value.
    const isMissing = sent === null && !(isForm && Object.hasOwn(members, name));
    if (isMissing) {
      if (standard !== undefined) values[name] = standard;
      continue;
    }
    // The official Python client sends `seconds` as a text, also in JSON.
    const value = isForm || name === 'seconds' ? typed(parameter.type, sent) : sent;
    const rule = brokenRule(parameter, value);
    if (rule !== undefined) failField(name, `${rule} for ${model.id}`);
    values[name] = value as ParameterValue;
  }
  return values;
}

/** The charge, which is known before the clip is made: rounded up once to whole cents, so that `cost_cents` is exact (specification 2.13). */
function videoUcents(seconds: number, { per_video_second_microcents: perSecond = 0 }: Pricing): bigint {
  return ceilToCents(BigInt(seconds) * BigInt(perSecond));
}

function secondsOf({ seconds }: store.Wanted['parameters'], { id }: CatalogModel): number {
  if (typeof seconds !== 'number') throw new Error(`the catalog has let ${id} in without seconds`);
  return seconds;
}

async function refuseTooMany(tx: Tx, orgId: string, { openPerOrgMax }: VideosDeps): Promise<void> {
  const max = openPerOrgMax();
  if ((await store.countOpen(tx, orgId)) < max) return;
  fail('rate_limit_exceeded', {
    detail: `This organisation may have ${max} videos in progress at once. A cancelled one counts until its server has stopped. Try again when one of them has ended.`,
    retryAfterSeconds: 10,
  });
}

/** Converts a text to the type of its parameter; unchanged if that is not possible. */
function typed(type: string, text: unknown): unknown {
  if (typeof text !== 'string') return text;
  if (type === 'int' && /^-?[0-9]{1,15}$/.test(text)) return Number(text);
  if (type === 'bool' && ['true', 'false'].includes(text)) return text === 'true';
  return text;
}

function refuseUndeclared(name: string, { id, parameters }: CatalogModel): never {
  const declared = parameters.map((parameter) => parameter.name).join(', ');
  return fail('invalid_request', {
    detail: `${name} is no parameter of ${id}, which takes ${declared}. Leave it out.`,
    errors: [{ field: name, rule: 'is not a parameter of the model' }],
  });
}
