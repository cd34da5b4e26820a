// POST /v1/videos (specification 2.13, 4.8, 7.3): what is taken and at which price, how a job goes on, and what is refused.
import { describe, expect, test } from 'vitest';
import { findJob } from '../../control-plane/models/videos/store.ts';
import { wallet } from '../../control-plane/money/ledger/accounts.ts';
import type { WireReply } from '../../control-plane/base/http/route.ts';
import { VideoJob } from '../../shared/api/videos.ts';
import type { Answer, JsonObject } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { expectRefused } from './refusals.ts';
import {
  completed,
  driveFor,
  FOUR_SECONDS,
  money,
  openVideosForEachTest,
  read,
  server,
  submit,
  submitted,
  VIDEOS,
} from './videos-of-test.ts';

const ALL = 1_000_000_000_000n;
const OPEN_MAX = 5;

openVideosForEachTest({ openVideosPerOrg: OPEN_MAX });

const get = (path: string): Promise<Answer> => api.call('GET', `${VIDEOS}${path}`, { key: owner.key });
const cancel = (id: string): Promise<Answer> => api.call('POST', `${VIDEOS}/${id}/cancel`, { key: owner.key });

describe('a job', () => {
  // Specification 2.13: A job has model, status, progress, seconds, created_at, completed_at and expires_at.
  // Specification 2.13: A video job has the members of the specification; id is vid_<id>, object video, times are Unix seconds.
  test('has the fields of the specification, is answered at once with 202, and its server receives the request', async () => {
    const answer = await submit({ seconds: 6, size: '1280x720' });
    expect(answer.status).toBe(202);
    const nowS = Math.floor(api.world.clock.now() / 1000);
    expect(VideoJob.parse(answer.json)).toEqual({
      id: expect.stringMatching(/^vid_[0-9a-z]{26}$/) as string,
      object: 'video',
      model: 'acme/director',
      status: 'queued',
      progress: 0,
      prompt: 'a cat',
      seconds: 6,
      size: '1280x720',
      cost_cents: 0,
      cost: '0.00',
      created_at: nowS,
      completed_at: null,
      expires_at: null,
      error: null,
    });
    expect(server.asked).toEqual([]);
    await api.world.drive();
    expect(server.jobs[0]?.fields).toEqual({
      model: 'upstream/secret-name',
      prompt: 'a cat',
      seconds: '6',
      size: '1280x720',
    });
  });

  // Specification 2.13: status is queued, in_progress or completed; progress goes up to 100.
  // Specification 3.3: POST /v1/videos is accepted as queued with 202; queued to in_progress to completed, retained 24 hours.
  test('goes from queued by in_progress to completed, and shows nothing of its server', async () => {
    const { id } = await submitted();
    await driveFor(1);
    expect(await read({ id })).toMatchObject({ status: 'queued', progress: 0 });
    Object.assign(server.jobs[0] ?? {}, { status: 'in_progress', progress: 40 });
    await driveFor(2);
    expect(await read({ id })).toMatchObject({ status: 'in_progress', progress: 40, completed_at: null });
    Object.assign(server.jobs[0] ?? {}, { status: 'completed', progress: 100 });
    await driveFor(1);
    const answer = await get(`/${id}`);
    const nowS = Math.floor(api.world.clock.now() / 1000);
    expect(VideoJob.parse(answer.json)).toMatchObject({ status: 'completed', progress: 100, completed_at: nowS });
    expect(answer.json['expires_at']).toBe(nowS + 24 * 3_600);
    expect(answer.body).not.toMatch(/secret|video_gen|127\.0\.0\.1/);
  });

  // Specification 2.13: status is failed.
  // Specification 3.3: queued or in_progress to failed: never billed.
  test('that fails says why in our words, and costs nothing', async () => {
    const { id } = await submitted();
    await api.world.drive();
    Object.assign(server.jobs[0] ?? {}, { status: 'failed' });
    await driveFor(1);
    const job = await read({ id });
    expect(job).toMatchObject({ status: 'failed', cost_cents: 0, error: { code: 'upstream_error' } });
    expect(job.error?.message).toBe('The model could not make this video. Nothing was charged.');
    expect(await money()).toEqual({ posted: ALL, held: 0n });
  });
});

describe('the prompt of a job', () => {
  test('tells videos apart while the file is kept, at most 500 characters of it, and is forgotten with the file', async () => {
    const { id } = await completed({ prompt: `x${'🦊'.repeat(250)}` });
    expect(await read({ id })).toMatchObject({ prompt: `x${'🦊'.repeat(249)}…`, size: '832x480' });
    await api.world.clock.advance(24 * 3_600_000);
    await api.world.drive();
    expect(await read({ id })).toMatchObject({ status: 'expired', prompt: null, size: '832x480' });
    expect((await findJob(api.world.db.read, id))?.request).toBeNull();
  });

  test('is forgotten at once if there will be no file', async () => {
    const { id } = await submitted({ model: 'acme/clips' });
    expect(await read({ id })).toMatchObject({ prompt: 'a cat', size: null });
    await cancel(id);
    expect(await read({ id })).toMatchObject({ status: 'cancelled', prompt: null });
  });
});

describe('the cost of a job', () => {
  // Specification 1: Billing is per second of output video.
  // Specification 2.13: cost_cents is the authoritative final charge: whole cents, rounded up once for the job, and cost the same sum.
  test.each<[string, object, bigint, number]>([
    ['director', {}, FOUR_SECONDS, 4],
    ['director', { seconds: 12 }, 12_000_000n, 12],
    // The price of a representative clip is shown and never billed.
    ['acme/clips', {}, 0n, 0],
  ])(
    'for %s with %j is %d microcents, whole cents rounded up once: held from the start, charged once it is completed',
    async (...[model, more, ucents, cents]) => {
      const { id } = await submitted({ model, ...more });
      expect(await money()).toEqual({ posted: ALL, held: ucents });
      server.usual = { status: 'completed', progress: 100 };
      await api.world.drive();
      const done = await read({ id });
      expect(done).toMatchObject({ status: 'completed', cost_cents: cents });
      // One sum in two units.
      expect(BigInt(done.cost.replace('.', ''))).toBe(BigInt(cents));
      expect(await money()).toEqual({ posted: ALL - ucents, held: 0n });
    },
  );

  test('must be covered by the balance: an exact cover is enough, and a microcent less is 402 and makes nothing', async () => {
    const { db, rooms } = api.world;
    const poor = await api.account();

    const leave = (ucents: bigint): Promise<void> =>
      db.tx('test', async (tx) => {
        const { availableUcents } = await rooms.ledger.balance(tx, wallet(poor.orgId));
        await rooms.ledger.setHold(tx, `test:${ucents}`, wallet(poor.orgId), availableUcents - ucents);
      });
    await leave(2n * FOUR_SECONDS - 1n);
    await submitted({}, poor);
    const answer = await submit({}, poor);
    expectRefused(VIDEOS, answer, 'insufficient_balance');
    expect(answer.headers['x-should-retry']).toBe('false');
    expect((await api.call('GET', VIDEOS, { key: poor.key })).json.data).toHaveLength(1);
  });

  test('never exceeds the balance, however many jobs are submitted at once', async () => {
    const poor = await api.world.customer(13);
    const { key } = await api.world.rooms.accounts.createKey({
      orgId: poor.orgId,
      name: 'x',
      scopes: ['serverless:write'],
      expiresMs: null,
    });
    const account = { ...poor, key };
    const statuses = (await Promise.all(Array.from({ length: 5 }, () => submit({}, account)))).map(
      ({ status }) => status,
    );
    // 13 cents are three videos of 4 cents.
    expect(statuses.toSorted((a, b) => a - b)).toEqual([202, 202, 202, 402, 402]);
    expect(await money(account)).toEqual({ posted: 13_000_000n, held: 3n * FOUR_SECONDS });
    server.usual = { status: 'completed', progress: 100 };
    await driveFor(1);
    expect(await money(account)).toEqual({ posted: 13_000_000n - 3n * FOUR_SECONDS, held: 0n });
  });

  // Specification 2.13: cost_cents is the final charge and stays after the artifact expires.
  test('stays with the job after its file has expired', async () => {
    const { id } = await completed();
    await api.world.clock.advance(24 * 3_600_000);
    await api.world.drive();
    expect(await read({ id })).toMatchObject({ status: 'expired', cost_cents: 4, cost: '0.04' });
    expect(await money()).toEqual({ posted: ALL - FOUR_SECONDS, held: 0n });
  });
});

describe('a request is refused', () => {
  // Specification 7.3: An undeclared video parameter is 400 invalid_request_error.
  test.each(['fps', 'n', 'input_reference', 'constructor'])(
    'for %s, which the model does not declare: 400 invalid_request_error, by its name',
    async (name) => {
      const refused = expectRefused(VIDEOS, await submit({ [name]: 1 }), 'invalid_request');
      expect(refused).toMatchObject({ code: 'invalid_request_error', fields: [name] });
      expect(refused.text).toContain('takes seconds, size, seed, generate_sound, negative_prompt');
    },
  );

  // Specification 4.8: Most video models take no size; undeclared parameters are rejected.
  test('for a size if the model declares none', async () => {
    const refused = expectRefused(VIDEOS, await submit({ model: 'acme/clips', size: '832x480' }), 'invalid_request');
    expect(refused.fields).toEqual(['size']);
  });

  // Specification 4.8: seconds has its bounds and default from the model.
  test.each([
    ['seconds', 1, 2, 'must be at least 2'],
    ['seconds', 13, 12, 'must be at most 12'],
    ['seconds', 'four', '4', 'must be an integer'],
    ['seconds', 2.5, 3, 'seconds'],
    ['seed', -1, 0, 'must be at least 0'],
    ['seed', 101, 100, 'must be at most 100'],
    ['seed', true, 1, 'must be an integer'],
    ['size', '640x480', '832x480', 'must be one of 832x480, 1280x720'],
    ['size', 1, '1280x720', 'must be one of'],
    ['generate_sound', 'true', true, 'must be true or false'],
    ['negative_prompt', 1, '', 'must be a string'],
  ])('for the %s %j, and %j is accepted', async (name, wrong, right, rule) => {
    const refused = expectRefused(VIDEOS, await submit({ [name]: wrong }), 'validation_failed');
    expect(refused.fields).toEqual([name]);
    expect(refused.text).toContain(rule);
    expect((await submit({ [name]: right })).status).toBe(202);
  });

  test.each(['nobody/knows', 'director:economy', ''])('for the model %j', async (model) => {
    const answer = await submit({ model });
    if (model === '') expectRefused(VIDEOS, answer, 'validation_failed');
    else expectRefused(VIDEOS, answer, 'model_not_found');
  });

  test('for a prompt that is missing, empty or too long; the longest one is accepted', async () => {
    for (const prompt of [undefined, '', 'x'.repeat(32_001)])
      expect(expectRefused(VIDEOS, await submit({ prompt }), 'validation_failed').fields).toEqual(['prompt']);
    expect((await submit({ prompt: 'x'.repeat(32_000) })).status).toBe(202);
  });

  test(`if ${OPEN_MAX} jobs of the organisation are open, until one is over; other organisations are not affected`, async () => {
    const jobs = [];
    for (let i = 0; i < OPEN_MAX; i += 1) jobs.push(await submitted());
    const answer = await submit();
    expectRefused(VIDEOS, answer, 'rate_limit_exceeded');
    expect(answer.headers['retry-after']).toBe('10');
    await submitted({}, await api.account());
    await cancel(jobs[2]?.id ?? '');
    await submitted();
  });
});

describe('a form', () => {
  const post = async (
    fields: [string, string | Blob][],
    contentType?: string,
  ): Promise<WireReply & { json: JsonObject }> => {
    const form = new FormData();
    for (const [name, value] of fields) form.append(name, value);
    const encoded = new Response(form);
    const reply = await api.http.inject({
      method: 'POST',
      url: VIDEOS,
      headers: {
        authorization: `Bearer ${owner.key}`,
        'content-type': contentType ?? encoded.headers.get('content-type') ?? '',
      },
      payload: await encoded.text(),
    });
    return { ...reply, json: JSON.parse(reply.body) as JsonObject };
  };
  const CAT: [string, string][] = [
    ['model', 'director'],
    ['prompt', 'a cät'],
  ];

  test('is accepted with its numbers and flags as texts, and means the same as JSON', async () => {
    const reply = await post([...CAT, ['seconds', '8'], ['seed', '7'], ['generate_sound', 'true']]);
    expect(reply.status).toBe(202);
    expect(VideoJob.parse(reply.json)).toMatchObject({ seconds: 8 });
    await api.world.drive();
    expect(server.jobs[0]?.fields).toMatchObject({ prompt: 'a cät', seconds: '8', seed: '7', generate_sound: 'true' });
  });

  test.each<[string, [string, string | Blob][], string, string]>([
    ['seconds that are no digits', [['seconds', '4.5']], 'validation_failed', 'seconds'],
    ['seconds beyond the bound', [['seconds', '13']], 'validation_failed', 'seconds'],
    ['a seed that is no number', [['seed', 'x']], 'validation_failed', 'seed'],
    ['a flag that is none', [['generate_sound', '1']], 'validation_failed', 'generate_sound'],
    ['an undeclared field', [['fps', '4']], 'invalid_request_error', 'fps'],
    ['an undeclared file', [['input_reference', new Blob(['x'])]], 'invalid_request_error', 'input_reference'],
    ['a file in place of a text', [['negative_prompt', new Blob(['x'])]], 'validation_failed', 'negative_prompt'],
    [
      'a field that comes twice',
      [
        ['seconds', '4'],
        ['seconds', '4'],
      ],
      'validation_failed',
      'seconds',
    ],
  ])('with %s is refused by its name', async (_what, fields, code, param) => {
    expect((await post([...CAT, ...fields])).json).toMatchObject({ error: { code, param } });
  });

  test('is 400 if it does not match its Content-Type, and 415 on a route that takes only JSON', async () => {
    expect(await post(CAT, 'multipart/form-data')).toMatchObject({ status: 400 });
    expect(await post(CAT, 'multipart/form-data; boundary=other')).toMatchObject({ status: 400 });
    const headers = { authorization: `Bearer ${owner.key}`, 'content-type': 'multipart/form-data; boundary=x' };
    const reply = await api.http.inject({ method: 'POST', url: '/v1/embeddings', headers, payload: '--x--\r\n' });
    expect(reply.status).toBe(415);
  });
});

describe('an Idempotency-Key', () => {
  const body = { model: 'director', prompt: 'a cat' };
  const send = (url: string, key: string, sent: object = body): Promise<Answer> =>
    api.call('POST', url, { key: owner.key, body: sent, headers: { 'idempotency-key': key } });

  // Specification 4.8: POST /v1/videos takes an Idempotency-Key.
  test('makes one job and one hold of equal requests, answered alike', async () => {
    const first = await send(VIDEOS, 'once');
    const again = await send(VIDEOS, 'once');
    expect(again.body).toBe(first.body);
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(await money()).toMatchObject({ held: FOUR_SECONDS });
    expectRefused(VIDEOS, await send(VIDEOS, 'once', { ...body, seconds: 5 }), 'idempotency_key_reused');
  });

  test('keeps the answer of a cancel', async () => {
    const { id } = await submitted();
    const first = await send(`${VIDEOS}/${id}/cancel`, 'stop', {});
    expect(first.json).toMatchObject({ status: 'cancelled' });
    expect((await send(`${VIDEOS}/${id}/cancel`, 'stop', {})).body).toBe(first.body);
  });

  test('has at most 255 characters', async () => {
    expect((await send(VIDEOS, 'x'.repeat(255))).status).toBe(202);
    expectRefused(VIDEOS, await send(VIDEOS, 'x'.repeat(256)), 'idempotency_key_invalid');
  });
});
