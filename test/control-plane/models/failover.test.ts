// Failover before the first byte: which server answers a chat, when another one is asked, and the error if none can answer.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findReceipt } from '../../../control-plane/models/gateway/store.ts';
import { CHAT_ANSWER_BYTES_MAX } from '../../../shared/limits.ts';
import { type Answer, type Api, openApi } from '../../contract/api.ts';
import { expectRefused } from '../../contract/refusals.ts';
import { dripping, type FakeAnswer, type FakeUpstream, HELLO, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { someModels } from '../../kit/models.ts';
import { whileTimePasses } from '../../kit/virtual-clock.ts';
import { BEGIN, say } from '../../kit/stream-chunks.ts';

const PATH = '/v1/chat/completions';

let servers: FakeUpstream[];
let api: Api;
let key: string;
beforeEach(async () => {
  servers = await Promise.all(Array.from({ length: 4 }, openFakeUpstream));
});
afterEach(async () => {
  await api.world.verify();
  await api.close();
  for (const server of servers) await server.close();
});

/** Idle servers are asked in this order. */
async function serve(...upstreams: object[]): Promise<void> {
  const entries = upstreams.map((more, i) => ({ base_url: servers[i]?.baseUrl, model: `m${i}`, ...more }));
  api = await openApi({ settings: { models: someModels(undefined, { upstreams: entries }) } });
  ({ key } = await api.account());
}
const ask = (more: object = {}): Promise<Answer> =>
  api.call('POST', PATH, { key, body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], ...more } });
const askedOf = (): number[] => servers.map(({ asked }) => asked.length);

describe('another server is asked', () => {
  test.each([429, 502, 503])('if the first answers %d', async (status) => {
    await serve({}, {});
    servers[0]?.next({ status, body: 'no' });
    expect((await ask()).status).toBe(200);
    expect(askedOf().slice(0, 2)).toEqual([1, 1]);
    expect(servers[1]?.asked[0]?.body['model']).toBe('m1');
  });

  test('if the first cannot be connected to', async () => {
    await serve({ base_url: 'http://127.0.0.1:1/v1' }, {});
    expect((await ask()).status).toBe(200);
  });

  // Specification 7.3: upstream_unavailable is 503 with Retry-After: serving capacity degraded.
  test('two more at most, and then the answer is 503 with the Retry-After of the last one', async () => {
    await serve({}, {}, {}, {});
    for (const [i, server] of servers.entries())
      server.next({ status: 503, body: 'no', headers: { 'retry-after': String(10 + i) } });
    const answer = await ask();
    expectRefused(PATH, answer, 'upstream_unavailable');
    expect(answer.headers['retry-after']).toBe('12');
    expect(askedOf()).toEqual([1, 1, 1, 0]);
  });

  test.each([
    ['0', '1'],
    ['61', '60'],
    ['soon', '1'],
  ])('a Retry-After of %s is passed on as %s', async (said, expected) => {
    await serve({});
    servers[0]?.next({ status: 429, body: 'no', headers: { 'retry-after': said } });
    expect((await ask()).headers['retry-after']).toBe(expected);
  });
});

test('a caller who leaves is no failure of the server: it is asked first again', async () => {
  await serve({}, {});
  servers[0]?.next({ ending: 'stall' });
  const { orgId, principalId } = await api.world.customer(100);
  const leave = new AbortController();
  const left = api.world.rooms.gateway
    .completeChat({
      caller: { orgId, principalId, scopes: [] },
      requestId: 'req_test',
      gone: leave.signal,
      body: { model: 'small', messages: [{ role: 'user', content: 'hi' }] },
    })
    .catch(() => undefined);
  await servers[0]?.came(1);
  leave.abort();
  await left;
  await ask();
  expect(askedOf()).toEqual([2, 0, 0, 0]);
  const { counts } = api.world.rooms.gateway;
  expect(counts.failures()).toEqual([]);
  expect(counts.endings()).toEqual([
    { model: 'acme/small-chat', ending: 'client_left', count: 1 },
    { model: 'acme/small-chat', ending: 'completed', count: 1 },
  ]);
});

describe('the receipt lists', () => {
  const attempts = async (): Promise<unknown> =>
    (await api.call('GET', '/v1/receipts', { key })).json.data?.[0]?.['attempts'];
  const loading = { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } };

  test('every server that was asked, with what came of it and after how long, and no address', async () => {
    await serve({ base_url: 'http://127.0.0.1:1/v1' }, {}, {});
    const gate = Promise.withResolvers<void>();
    servers[1]?.next({ status: 503, body: 'no' });
    servers[2]?.next({ after: gate.promise });
    const asking = ask();
    await servers[2]?.came(1);
    await api.world.clock.advance(250);
    gate.resolve();
    const answer = await asking;
    expect(await attempts()).toEqual([
      { server: 1, outcome: 'unreachable', ms: 0 },
      { server: 2, outcome: 'unavailable', ms: 0 },
      { server: 3, outcome: 'answered', ms: 250 },
    ]);
    const stored = await findReceipt(api.world.db.read, answer.headers['x-receipt-id'] ?? '');
    expect(stored?.attempts?.map(({ upstream }) => upstream).slice(1)).toEqual([
      servers[1]?.baseUrl,
      servers[2]?.baseUrl,
    ]);
  });

  test.each([
    ['busy', { status: 429, body: 'no' }],
    ['busy', { status: 503, body: loading }],
    ['unavailable', { status: 502, body: 'no' }],
    ['refused', { status: 400, body: 'no' }],
    ['failed', { status: 500, body: 'no' }],
    ['failed', { body: 'hello' }],
    ['failed', { body: '', ending: 'cut' }],
  ] as const)('a server as %s: %j', async (outcome, answer) => {
    await serve({});
    servers[0]?.next(answer);
    expect((await ask()).status).toBeGreaterThanOrEqual(400);
    expect(await attempts()).toEqual([{ server: 1, outcome, ms: 0 }]);
  });

  test('a server as timed_out if it was silent for too long', async () => {
    await serve({ answer_ms: 5_000 });
    servers[0]?.next({ ending: 'stall' });
    const asking = ask();
    await servers[0]?.came(1);
    await api.world.clock.advance(5_000);
    await asking;
    expect(await attempts()).toEqual([{ server: 1, outcome: 'timed_out', ms: 5_000 }]);
  });

  test('a server as cancelled if the service restarts', async () => {
    await serve({});
    servers[0]?.next({ ending: 'stall' });
    const asking = ask();
    await servers[0]?.came(1);
    expect(await attempts()).toEqual([]);
    await api.world.rooms.gateway.drain(0);
    await asking;
    expect(await attempts()).toEqual([{ server: 1, outcome: 'cancelled', ms: 0 }]);
  });

  test('a server that breaks a stream off as failed', async () => {
    await serve({});
    servers[0]?.next({ events: [BEGIN, say('Hel')], ending: 'cut' });
    await api.call('POST', PATH, {
      key,
      body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], stream: true },
    });
    expect(await attempts()).toEqual([{ server: 1, outcome: 'failed', ms: 0 }]);
  });

  test('the last 64 attempts of a request that needs more', async () => {
    await serve({});
    const embedders = someModels(servers[0]?.baseUrl);
    const other = await openApi({ settings: { models: embedders } });
    const account = await other.account();
    const usual = { data: [0, 1, 2].map((index) => ({ index, embedding: [1] })), usage: { prompt_tokens: 3 } };
    const first = servers[0];
    if (first !== undefined) first.usual = () => ({ body: usual });
    const body = { model: 'acme/embedder', input: Array.from({ length: 65 * 3 }, () => 'a') };
    await other.call('POST', '/v1/embeddings', { key: account.key, body });
    const { json } = await other.call('GET', '/v1/receipts', { key: account.key });
    await other.close();
    expect(first?.asked).toHaveLength(65);
    expect(json.data?.[0]?.['attempts']).toEqual(
      Array.from({ length: 64 }, () => ({ server: 1, outcome: 'answered', ms: 0 })),
    );
  });
});

describe('no other server is asked', () => {
  // Specification 7.3: upstream_error is 502: a malformed response.
  test.each([
    ['answers 500', { status: 500, body: 'secret trace' }, 'upstream_error'],
    ['does not know the model', { status: 404, body: { error: { message: 'no m0 at /models/m0' } } }, 'upstream_error'],
    ['does not take our key', { status: 401, body: 'no' }, 'upstream_error'],
    ['answers with no JSON', { body: 'hello' }, 'upstream_error'],
    ['answers without a choice', { body: { ...HELLO, choices: [] } }, 'upstream_error'],
    [
      'answers for no reason that we know',
      { body: { ...HELLO, choices: [{ ...HELLO.choices[0], finish_reason: 'eos' }] } },
      'upstream_error',
    ],
    ['breaks its answer off', { body: '', ending: 'cut' }, 'upstream_error'],
    [
      'refuses the request',
      { status: 400, body: { error: { message: 'roles of m0 must alternate' } } },
      'invalid_request',
    ],
  ] as const)('where the first %s', async (_what, answer, code) => {
    await serve({}, {});
    servers[0]?.next(answer);
    const refused = await ask();
    expectRefused(PATH, refused, code);
    expect(refused.body).not.toMatch(/secret|m0|\/models\/m/);
    expect(askedOf().slice(0, 2)).toEqual([1, 0]);
  });

  test.each([
    [
      'llama.cpp',
      { error: { code: 400, type: 'exceed_context_size_error', message: 'x', n_prompt_tokens: 9000, n_ctx: 8192 } },
      'What was sent has 9000 tokens.',
    ],
    [
      'vLLM',
      { error: { message: "This model's maximum context length is 8192 tokens. However, you requested 9000" } },
      '8192 tokens of acme/small-chat',
    ],
    [
      'a server that says it by its code',
      { error: { message: 'too long', code: 'context_length_exceeded' } },
      '8192 tokens of acme/small-chat',
    ],
  ])('if the prompt is too long for %s: context_length_exceeded', async (_engine, body, expected) => {
    await serve({}, {});
    servers[0]?.next({ status: 400, body });
    expect(expectRefused(PATH, await ask(), 'context_length_exceeded').text).toContain(expected);
  });

  // Specification 7.3: upstream_response_too_large is 502 and not retryable.
  test('if the answer is too large: 502, not to be sent again; at the bound it is read', async () => {
    await serve({}, {});
    const sized = (bytes: number): object => {
      const [choice] = HELLO.choices;
      const around = JSON.stringify({
        ...HELLO,
        choices: [{ ...choice, message: { role: 'assistant', content: '' } }],
      });
      const content = 'x'.repeat(bytes - around.length);
      return { ...HELLO, choices: [{ ...choice, message: { role: 'assistant', content } }] };
    };
    servers[0]?.next({ body: sized(CHAT_ANSWER_BYTES_MAX) }, { body: sized(CHAT_ANSWER_BYTES_MAX + 1) });
    expect((await ask()).status).toBe(200);
    const answer = await ask();
    expectRefused(PATH, answer, 'upstream_response_too_large');
    expect(answer.headers['x-should-retry']).toBe('false');
  });

  test('if the answer is too large and has no end: the rest is not read, and the request to the server is cancelled', async () => {
    await serve({}, {});
    servers[0]?.next({ pieces: [Buffer.alloc(CHAT_ANSWER_BYTES_MAX + 1, ' ')], ending: 'stall' });
    expectRefused(PATH, await ask(), 'upstream_response_too_large');
    await servers[0]?.wereLeft(1);
  });

  // Specification 7.3: 504: the upstream exceeded the deadline.
  test('if the server is silent: 504 at its time limit, not to be sent again, and the request to the server is cancelled', async () => {
    await serve({ answer_ms: 5_000 }, {});
    servers[0]?.next({ ending: 'stall' });
    const asking = ask();
    await servers[0]?.came(1);
    await api.world.clock.advance(4_999);
    expect(servers[0]?.left()).toBe(0);
    await api.world.clock.advance(1);
    const answer = await asking;
    expectRefused(PATH, answer, 'upstream_timeout');
    expect(answer.headers['x-should-retry']).toBe('false');
    await servers[0]?.wereLeft(1);
  });

  test.each<[string, object, FakeAnswer, object]>([
    ['an answer', {}, { status: 200 }, {}],
    ['an answer that is gathered', { engine: 'llama_cpp' }, { status: 200 }, {}],
    ['a refusal', {}, { status: 400 }, {}],
    ['a stream before its first event', {}, { status: 200 }, { stream: true }],
  ])('if the server says %s byte by byte: 504 at its time limit', async (_what, server, answer, more) => {
    await serve({ answer_ms: 5_000, first_byte_ms: 5_000, ...server });
    const { clock } = api.world;
    servers[0]?.next(dripping(clock, ':\n\n', answer));
    const startMs = clock.monotonicMs();
    expectRefused(PATH, await whileTimePasses(clock, ask(more), 250), 'upstream_timeout');
    expect(clock.monotonicMs() - startMs).toBeLessThan(8_000);
    await servers[0]?.wereLeft(1);
  });

  test('if the server says byte by byte why it takes no request: 503 at its time limit', async () => {
    await serve({ answer_ms: 5_000 });
    const { clock } = api.world;
    servers[0]?.next(dripping(clock, ' ', { status: 503 }));
    const startMs = clock.monotonicMs();
    expectRefused(PATH, await whileTimePasses(clock, ask(), 250), 'upstream_unavailable');
    expect(clock.monotonicMs() - startMs).toBeLessThan(8_000);
  });

  test('after the time for all of them together', async () => {
    await serve({ answer_ms: 5_000 }, { answer_ms: 5_000 });
    const gate = Promise.withResolvers<void>();
    servers[0]?.next({ status: 503, body: 'no', after: gate.promise });
    servers[1]?.next({ ending: 'stall' });
    const asking = ask();
    await servers[0]?.came(1);
    await api.world.clock.advance(4_000);
    gate.resolve();
    await servers[1]?.came(1);
    await api.world.clock.advance(1_000);
    expectRefused(PATH, await asking, 'upstream_timeout');
  });
});

describe('a server', () => {
  test('with twice the weight gets twice the requests', async () => {
    await serve({ weight: 2 }, { weight: 1 });
    const gate = Promise.withResolvers<void>();
    for (const server of servers) server.usual = () => ({ after: gate.promise });
    const asking = Array.from({ length: 6 }, () => ask());
    await Promise.all([servers[0]?.came(4), servers[1]?.came(2)]);
    gate.resolve();
    await Promise.all(asking);
    expect(askedOf().slice(0, 2)).toEqual([4, 2]);
  });

  test('gets no more requests than it takes at once; one more is 503', async () => {
    await serve({ max_open_requests: 2 });
    const gate = Promise.withResolvers<void>();
    servers[0]?.next({ after: gate.promise }, { after: gate.promise });
    const asking = [ask(), ask()];
    await servers[0]?.came(2);
    const answer = await ask();
    expectRefused(PATH, answer, 'upstream_unavailable');
    expect(answer.headers['retry-after']).toBe('1');
    gate.resolve();
    expect((await Promise.all(asking)).map(({ status }) => status)).toEqual([200, 200]);
    expect((await ask()).status).toBe(200);
  });

  test('that requires a key receives it', async () => {
    await serve({});
    const [model] = someModels(servers[0]?.baseUrl);
    const upstreams = (model?.upstreams ?? []).map((each) => ({ ...each, apiKey: 'sk-of-the-server' }));
    const keyed = await openApi({ settings: { models: model === undefined ? [] : [{ ...model, upstreams }] } });
    const account = await keyed.account();
    const body = { model: 'small', messages: [{ role: 'user', content: 'hi' }] };
    await keyed.call('POST', PATH, { key: account.key, body });
    await keyed.close();
    expect(servers[0]?.asked[0]?.headers.authorization).toBe('Bearer sk-of-the-server');
  });
});
