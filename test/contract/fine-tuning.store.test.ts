// Fine-tuning over the API: every refusal with its field and rule, the forms of answers, idempotency, and files in use.
import { beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import { MachineRental } from '../../shared/api/community.ts';
import { FineTuningJob } from '../../shared/api/fine-tuning.ts';
import { isoTime } from '../../shared/clock.ts';
import type { ErrorCode } from '../../shared/errors.ts';
import { FINE_TUNING_OPEN_PER_ORG_MAX } from '../../shared/limits.ts';
import { tunableModels } from '../kit/models.ts';
import { NOTHING_OBSERVED } from '../kit/world.ts';
import type { Answer, ApiAccount } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { postForm, trainingLines, uploadForm } from './forms.ts';
import { expectRefused } from './refusals.ts';
import { bringMachine } from './suppliers.ts';

const JOBS = '/v1/fine_tuning/jobs';
openApiForEachTest(() => ({ settings: { models: tunableModels() } }));

let fileId: string;
beforeEach(async () => {
  fileId = await uploaded(trainingLines(12));
});

async function uploaded(content: string, account: ApiAccount = owner): Promise<string> {
  return String((await postForm(api, account, uploadForm(content))).json['id']);
}

const body = (more: object = {}): object => ({
  model: 'tiny-base',
  training_file: fileId,
  method: { type: 'lora' },
  svc: { max_budget_usd: 6 },
  ...more,
});
const post = (more: object = {}, account: ApiAccount = owner, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', JOBS, { key: account.key, body: body(more), headers });
async function created(more: object = {}): Promise<FineTuningJob> {
  const answer = await post(more);
  expect(answer.status).toBe(200);
  return FineTuningJob.parse(answer.json);
}

describe('POST /v1/fine_tuning/jobs', () => {
  // Specification 1: Managed fine-tuning jobs (LoRA or QLoRA) over uploaded training files.
  // Specification 2.15: FineTuningJob: id, object (fine_tuning.job), model, created_at, status, training_file, result_files, error,
  // fine_tuned_model, finished_at, metadata, method, seed, suffix.
  // Specification 3.4: Fine-tuning job status: validating first.
  // Specification 4.8: POST /v1/fine_tuning/jobs takes svc.max_budget_usd.
  // Specification 4.8: Fine-tuning create takes model, training_file, method, seed, suffix and svc, and answers with the FineTuningJob.
  test('answers with the job, all of its fields, and holds the budget', async () => {
    const job = await created({
      method: { type: 'qlora', lora: { lora_alpha: 64, lora_dropout: 0.1, lora_r: 8 } },
      seed: 7,
      suffix: 'my-bot',
      metadata: { team: 'a' },
    });
    expect(job).toEqual({
      id: expect.stringMatching(/^ftjob_/),
      object: 'fine_tuning.job',
      model: 'tiny-base',
      created_at: Math.floor(api.world.clock.now() / 1000),
      finished_at: null,
      status: 'validating',
      training_file: fileId,
      result_files: [],
      error: null,
      fine_tuned_model: null,
      metadata: { team: 'a' },
      method: { type: 'qlora', lora: { lora_alpha: 64, lora_dropout: 0.1, lora_r: 8 } },
      seed: 7,
      suffix: 'my-bot',
      svc: { max_budget_usd: 6, gpu_preference: null, cost_usd: 0 },
    });
    const { json } = await api.call('GET', '/v1/balance', { key: owner.key });
    expect(json['held_cents']).toBe(600);
  });

  // Specification 4.8: svc is not required.
  test.each([
    ['no svc', undefined],
    ['no budget', {}],
    ['null as its budget', { max_budget_usd: null }],
  ])('holds what the quote names at most if it has %s', async (_what, svc) => {
    const quotes = await api.call('POST', `/v1/files/${fileId}/quote`, { key: owner.key });
    const quote = quotes.json.data?.find(({ model }) => model === 'tiny-base');
    const job = await created({ svc });
    const usd = Math.max(Number(quote?.['max_usd']), Number(quote?.['min_budget_usd']));
    expect(job.svc.max_budget_usd).toBe(usd);
    const { json } = await api.call('GET', '/v1/balance', { key: owner.key });
    expect(json['held_cents']).toBe(Math.round(usd * 100));
  });

  test.each([
    ['an unknown base model', { model: 'nothing' }, 'model_not_found', 'model'],
    ['a model by its id instead of its base model', { model: 'acme/tunable' }, 'validation_failed', 'model'],
    ['a model that cannot be tuned', { model: 'acme/fixed' }, 'validation_failed', 'model'],
    ['a file that does not exist', { training_file: 'file_nothing' }, 'not_found', 'training_file'],
    ['no method', { method: undefined }, 'validation_failed', 'method'],
    ['another method', { method: { type: 'supervised' } }, 'validation_failed', 'method.type'],
    ['a rank of 0', { method: { type: 'lora', lora: { lora_r: 0 } } }, 'validation_failed', 'method.lora.lora_r'],
    [
      'a rank that is too high',
      { method: { type: 'lora', lora: { lora_r: 257 } } },
      'validation_failed',
      'method.lora.lora_r',
    ],
    [
      'an alpha of 0',
      { method: { type: 'lora', lora: { lora_alpha: 0 } } },
      'validation_failed',
      'method.lora.lora_alpha',
    ],
    [
      'a dropout of 1',
      { method: { type: 'lora', lora: { lora_dropout: 1 } } },
      'validation_failed',
      'method.lora.lora_dropout',
    ],
    ['a negative seed', { seed: -1 }, 'validation_failed', 'seed'],
    ['a suffix with a slash', { suffix: 'a/b' }, 'validation_failed', 'suffix'],
    ['a suffix that is too long', { suffix: 'a'.repeat(65) }, 'validation_failed', 'suffix'],
    ['a budget of 0', { svc: { max_budget_usd: 0 } }, 'validation_failed', 'svc.max_budget_usd'],
    ['a budget below the minimum', { svc: { max_budget_usd: 5.99 } }, 'validation_failed', 'svc.max_budget_usd'],
    [
      'a budget finer than a microcent',
      { svc: { max_budget_usd: 7.000000001 } },
      'validation_failed',
      'svc.max_budget_usd',
    ],
    ['a budget beyond all bounds', { svc: { max_budget_usd: 1e7 } }, 'validation_failed', 'svc.max_budget_usd'],
    [
      'an unknown GPU',
      { svc: { max_budget_usd: 6, gpu_preference: 'GTX' } },
      'validation_failed',
      'svc.gpu_preference',
    ],
    ['a member that does not exist', { hyperparameters: { n_epochs: 1 } }, 'unsupported_parameter', 'hyperparameters'],
  ] satisfies [string, object, ErrorCode, string][])('refuses %s', async (_what, more, code, field) => {
    const answer = await post(more);
    expect(expectRefused(JOBS, answer, code).fields).toEqual([field]);
    const { json } = await api.call('GET', '/v1/balance', { key: owner.key });
    expect(json['held_cents']).toBe(0);
  });

  test('states the smallest budget in its refusal', async () => {
    const { text } = expectRefused(JOBS, await post({ svc: { max_budget_usd: 1 } }), 'validation_failed');
    expect(text).toContain('from 6.00 to 1000000 dollars');
  });

  test('refuses a file of another organisation as if it did not exist, and one with faults by its first fault', async () => {
    const stranger = await api.account();
    const foreign = await uploaded(trainingLines(12), stranger);
    expect(expectRefused(JOBS, await post({ training_file: foreign }), 'not_found').fields).toEqual(['training_file']);
    const short = await uploaded(trainingLines(3));
    const { text, fields } = expectRefused(JOBS, await post({ training_file: short }), 'validation_failed');
    expect(fields).toEqual(['training_file']);
    expect(text).toContain('10');
  });

  test('refuses a budget that the balance does not cover, and official clients do not repeat it', async () => {
    const answer = await post({ svc: { max_budget_usd: 100_000 } });
    expectRefused(JOBS, answer, 'insufficient_balance');
    expect(answer.headers['x-should-retry']).toBe('false');
  });

  test('refuses more jobs than an organisation may have open', async () => {
    for (let i = 0; i < FINE_TUNING_OPEN_PER_ORG_MAX; i += 1) await created();
    const answer = await post();
    expectRefused(JOBS, answer, 'rate_limit_exceeded');
    expect(answer.headers['retry-after']).toBe('60');
  });

  test('does nothing twice under one Idempotency-Key', async () => {
    const key = { 'idempotency-key': 'once' };
    const [first, second] = [await post({}, owner, key), await post({}, owner, key)];
    expect(second.body).toBe(first.body);
    expect(second.headers['idempotent-replayed']).toBe('true');
    const { json } = await api.call('GET', JOBS, { key: owner.key });
    expect(json.data).toHaveLength(1);
    expectRefused(JOBS, await post({ seed: 9 }, owner, key), 'idempotency_key_reused');
  });
});

describe('a file that a job reads', () => {
  test('cannot be deleted before the job has ended, and official clients do not repeat that', async () => {
    const job = await created();
    const path = `/v1/files/${fileId}`;
    const refused = await api.call('DELETE', path, { key: owner.key });
    expect(expectRefused(path, refused, 'conflict').text).toContain(job.id);
    expect(refused.headers['x-should-retry']).toBe('false');
    expect((await api.call('POST', `${JOBS}/${job.id}/cancel`, { key: owner.key })).json['status']).toBe('cancelled');
    expect((await api.call('DELETE', path, { key: owner.key })).status).toBe(200);
  });
});

describe('a quote', () => {
  test('is a range for each base model, in the answer to the upload and on request', async () => {
    const { json } = await api.call('POST', `/v1/files/${fileId}/quote`, { key: owner.key });
    const tokens = Number(json.data?.[0]?.['estimated_tokens']);
    expect(json).toEqual({
      object: 'list',
      data: [
        {
          object: 'fine_tuning.quote',
          model: 'tiny-base',
          estimated_tokens: tokens,
          min_usd: Math.ceil(tokens / 100) / 100,
          max_usd: Math.ceil(tokens / 10) / 100,
          min_budget_usd: 6,
        },
      ],
    });
    const upload = await postForm(api, owner, uploadForm(trainingLines(12)));
    expect(upload.json['svc']).toEqual({ quotes: json.data });
  });

  test('is refused for a file with faults', async () => {
    const short = await uploaded(trainingLines(3));
    const path = `/v1/files/${short}/quote`;
    expectRefused(path, await api.call('POST', path, { key: owner.key }), 'conflict');
  });
});

describe('the lists', () => {
  test('page with `after`, newest first, and refuse a job of somebody else', async () => {
    const ids = [];
    for (let i = 0; i < 3; i += 1) ids.unshift((await created()).id);
    const first = await api.call('GET', `${JOBS}?limit=2`, { key: owner.key });
    expect(first.json).toMatchObject({ object: 'list', has_more: true });
    expect(first.json.data?.map(({ id }) => id)).toEqual(ids.slice(0, 2));
    const second = await api.call('GET', `${JOBS}?limit=2&after=${ids[1]}`, { key: owner.key });
    expect(second.json.data?.map(({ id }) => id)).toEqual(ids.slice(2));
    expect(second.json['has_more']).toBe(false);
    const stranger = await api.account();
    const foreign = await api.call('GET', `${JOBS}?after=${ids[0]}`, { key: stranger.key });
    expect(expectRefused(JOBS, foreign, 'validation_failed').fields).toEqual(['after']);
  });

  // Specification 2.15: FineTuningJobEvent: id, object, created_at, level, message. Lists of jobs and of events: {object, data, has_more}.
  // Specification 6.5: The events of fine-tuning jobs are a list.
  test('contain the events of a job', async () => {
    const { id } = await created();
    const { json } = await api.call('GET', `${JOBS}/${id}/events`, { key: owner.key });
    expect(json).toEqual({
      object: 'list',
      data: [
        {
          id: expect.stringMatching(/^ftevent_/),
          object: 'fine_tuning.job.event',
          created_at: expect.any(Number),
          level: 'info',
          message: 'The job was created. $6.00 are held for it.',
          type: 'message',
          data: {},
        },
      ],
      has_more: false,
    });
    const checkpoints = await api.call('GET', `${JOBS}/${id}/checkpoints`, { key: owner.key });
    expect(checkpoints.json).toEqual({ object: 'list', data: [], first_id: null, last_id: null, has_more: false });
  });
});

describe('a model', () => {
  // Specification 2.10: fine_tunable; fine_tune_base_model is present only if it is true, and distinct from the id.
  test('shows whether and for which price it can be tuned', async () => {
    const { json } = await api.call('GET', '/v1/models', { key: owner.key });
    const [fixed, tunable] = json.data ?? [];
    expect(fixed).toMatchObject({ id: 'acme/fixed', fine_tunable: false });
    expect(fixed).not.toHaveProperty('fine_tune_base_model');
    expect(tunable).toMatchObject({
      id: 'acme/tunable',
      fine_tunable: true,
      fine_tune_base_model: 'tiny-base',
      pricing: { training_gpu_second_microcents: 1_000_000, training_gpus: 1 },
    });
  });
});

test('the supplier reads when its GPU trained a job: charged while it goes on, and as far as it was paid afterwards', async () => {
  const { rooms, db, clock } = api.world;
  const machineId = await bringMachine(api, owner);
  await rooms.supply.setTrusted(machineId, true);
  const { id } = await created();
  await api.world.drive();
  const rentals = async (): Promise<MachineRental[]> => {
    const { json } = await api.call('GET', `/v1/community/machines/${machineId}/rentals`, { key: owner.key });
    return MachineRental.array().parse(json['data']);
  };
  const [placed] = await rentals();
  expect(placed).toMatchObject({ instance_id: id, until: null, charged: [] });
  expect(placed?.gpu_uuids).toHaveLength(1);
  const report = async (phase: 'running' | 'stopped'): Promise<void> => {
    const workload = { ...NOTHING_OBSERVED, workload_id: placed?.rental_id ?? '', phase };
    const observed = { type: 'observed' as const, held: null, unknown_workload_ids: [], workloads: [workload] };
    await rooms.workloads.observe(machineId, observed);
    await api.world.drive();
  };
  await report('running');
  const startedAt = isoTime(clock.now());
  expect((await rentals())[0]?.charged).toEqual([{ from: startedAt, until: null }]);
  await clock.advance(60_000);
  expect((await api.call('POST', `${JOBS}/${id}/cancel`, { key: owner.key })).status).toBe(200);
  await report('stopped');
  expect((await rentals())[0]?.charged).toEqual([]);
  const paidMs = Date.parse(startedAt) + 40_000;
  await db.tx('test.paid', (tx) => tx.run(sql`update finetuning_attempts set charged_through_ms = ${paidMs}`));
  expect((await rentals())[0]?.charged).toEqual([{ from: startedAt, until: isoTime(paidMs) }]);
});
