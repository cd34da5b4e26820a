// POST /v1/chat/completions without a stream (specification 2.11, 4.8, 7.3): what is asked of the server, what comes back, what is refused.
import { describe, expect, test } from 'vitest';
import { CHAT_NOTHINGS } from '../../shared/api/nothings.ts';
import { ChatCompletion } from '../../shared/api/chat.ts';
import { HELLO } from '../kit/fake-upstream.ts';
import { someModels } from '../kit/models.ts';
import { type Answer, openApi } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest, receiptOf, upstream } from './models-of-test.ts';
import { expectRefused } from './refusals.ts';

const PATH = '/v1/chat/completions';
const HI = [{ role: 'user', content: 'hi' }];

openModelsForEachTest();

const ask = (body: object = {}): Promise<Answer> =>
  api.call('POST', PATH, { key: owner.key, body: { model: 'acme/small-chat', messages: HI, ...body } });
/** `member` is a path as in the lists of values that ask for nothing. */
const bodyWith = (member: string, value: unknown): object => {
  const [name = '', inner] = member.split('.');
  if (inner === undefined) return { [name]: value };
  if (name === 'messages[]') return { messages: [{ ...HI[0], [inner]: value }] };
  return { stream: true, [name]: { [inner]: value } };
};
const beyond = (): object[] => api.world.rooms.gateway.counts.beyondContexts();
const spentUcents = async (): Promise<bigint> => {
  const { postedUcents, heldUcents } = await api.world.rooms.ledger.balance(api.world.db.read, {
    kind: 'customer_wallet',
    ownerId: owner.orgId,
  });
  expect(heldUcents).toBe(0n);
  return 1_000_000_000_000n - postedUcents;
};

describe('an answer', () => {
  // Specification 2.11: A choice has index, message and finish_reason.
  // Specification 2.11: A chat completion has id, object, created, model, choices and usage; model is the canonical id, never an upstream path.
  // Specification 4.8: POST /v1/chat/completions answers a completion.
  test("has the members of the specification, and no member of the server's own", async () => {
    const answer = await ask();
    expect(answer.status).toBe(200);
    expect(ChatCompletion.parse(answer.json)).toEqual({
      id: expect.stringMatching(/^chatcmpl-[0-9a-z]{26}$/) as string,
      object: 'chat.completion',
      created: Math.floor(api.world.clock.now() / 1000),
      model: 'acme/small-chat',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'Hello there.', refusal: null },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: { prompt_tokens: 6, completion_tokens: 3, total_tokens: 9 },
    });
    expect(answer.body).not.toMatch(/secret|cmpl-of-the-server|timings/);
  });

  // Specification 1: Billing is per token.
  test('costs its tokens exactly, and leaves a receipt', async () => {
    const answer = await ask();
    expect(await spentUcents()).toBe(6n * 15n + 3n * 60n);
    expect(await receiptOf(answer)).toMatchObject({
      org_id: owner.orgId,
      api_key_id: owner.principalId,
      model_id: 'acme/small-chat',
      tier: 'serverless',
      state: 'settled',
      ending: 'completed',
      charged_ucents: 270n,
      prompt_tokens: 6,
      completion_tokens: 3,
      counted_by: 'upstream',
      upstream: upstream.baseUrl,
    });
  });

  test('has a receipt to the microcent, which a key that reads bills can see', async () => {
    const answer = await ask();
    const id = answer.headers['x-receipt-id'];
    const { json } = await api.call('GET', `/v1/receipts/${id}`, { key: owner.key });
    const now = new Date(api.world.clock.now()).toISOString();
    expect(json).toEqual({
      id,
      request_id: answer.headers['x-request-id'],
      api_key_id: owner.principalId,
      model: 'acme/small-chat',
      tier: 'serverless',
      user: null,
      metadata: {},
      state: 'settled',
      ending: 'completed',
      prompt_tokens: 6,
      completion_tokens: 3,
      images: null,
      counted_by: 'upstream',
      attempts: [{ server: 1, outcome: 'answered', ms: 0 }],
      cost: '0.0000027',
      held: '0.0006555',
      created_at: now,
      closed_at: now,
    });
    const { json: list } = await api.call('GET', '/v1/receipts', { key: owner.key });
    expect(list.data).toEqual([json]);
  });

  // Specification 1: The bare model id is serverless, :economy the economy tier at its own price.
  test.each([
    ['small', 270n],
    ['acme/tiny', 270n],
    ['acme/small-chat:economy', 90n],
    ['small:economy', 90n],
  ])('of the model named %s has its canonical id and costs the price of its tier', async (model, expected) => {
    expect((await ask({ model })).json['model']).toBe('acme/small-chat');
    expect(upstream.asked[0]?.body['model']).toBe('upstream/secret-name');
    expect(await spentUcents()).toBe(expected);
  });

  // Specification 2.11: finish_reason is stop, length, content_filter or tool_calls.
  test.each(['stop', 'length', 'content_filter', 'tool_calls'])('may have the finish reason %s', async (reason) => {
    upstream.next({ body: { ...HELLO, choices: [{ ...HELLO.choices[0], finish_reason: reason }] } });
    expect(ChatCompletion.parse((await ask()).json).choices[0]?.finish_reason).toBe(reason);
  });

  test('is estimated if the server counts no tokens, and its receipt says so', async () => {
    upstream.next({ body: { ...HELLO, usage: undefined } });
    const answer = await ask();
    // 2 and 12 bytes at 4 a token, rounded up.
    expect(answer.json['usage']).toEqual({ prompt_tokens: 1, completion_tokens: 3, total_tokens: 4 });
    expect(await receiptOf(answer)).toMatchObject({ counted_by: 'estimate', charged_ucents: 15n + 180n });
  });

  test('costs no more than its hold if the server counts more tokens than the request allowed', async () => {
    upstream.next({ body: { ...HELLO, usage: { prompt_tokens: 8_000, completion_tokens: 1_000_000 } } });
    const answer = await ask({ max_tokens: 5 });
    // 256 tokens for the template, 16 for the message, 2 bytes.
    expect(answer.json['usage']).toEqual({ prompt_tokens: 274, completion_tokens: 5, total_tokens: 279 });
    const receipt = await receiptOf(answer);
    expect(receipt).toMatchObject({ prompt_tokens: 274, completion_tokens: 5, held_ucents: 274n * 15n + 5n * 60n });
    expect(receipt?.charged_ucents).toBe(receipt?.held_ucents);
  });

  test('is refused and costs nothing if the prompt is longer than the context, although the server has answered', async () => {
    upstream.next({ body: { ...HELLO, usage: { prompt_tokens: 8_193, completion_tokens: 3 } } });
    const refused = expectRefused(PATH, await ask(), 'context_length_exceeded');
    expect(refused.text).toContain('What was sent has 8193 tokens');
    expect(await spentUcents()).toBe(0n);
    expect(beyond()).toEqual([{ model: 'acme/small-chat', count: 1 }]);
  });

  test.each([
    [8_192, 0],
    [8_193, 1],
  ])(
    'that takes %d tokens of a context of 8192 with its prompt, from any engine and in both forms: counted %d times',
    async (tokens, times) => {
      const usage = { prompt_tokens: 8_000, completion_tokens: tokens - 8_000 };
      upstream.next({ body: { ...HELLO, usage } });
      expect((await ask()).status).toBe(200);
      expect(beyond()).toEqual(times === 0 ? [] : [{ model: 'acme/small-chat', count: times }]);
      const last = { choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }] };
      upstream.next({ events: [last, { choices: [], usage }, '[DONE]'] });
      await ask({ stream: true });
      expect(beyond()).toEqual(times === 0 ? [] : [{ model: 'acme/small-chat', count: 2 * times }]);
    },
  );

  test('may be sent back unchanged in the next request, with its null members', async () => {
    const { message } = ChatCompletion.parse((await ask()).json).choices[0] ?? {};
    const messages = [{ role: 'user', content: 'hi' }, message, { role: 'user', content: 'more' }];
    expect((await ask({ messages })).status).toBe(200);
    expect(upstream.asked.at(-1)?.body['messages']).toEqual([
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: 'Hello there.' },
      { role: 'user', content: 'more' },
    ]);
    expectRefused(PATH, await ask({ messages: [{ role: 'user', content: null }] }), 'validation_failed');
  });

  test('shows no figures of the cache of its server, which other customers fill too', async () => {
    const cached = { prompt_tokens: 6, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 5 } };
    upstream.next({ body: { ...HELLO, usage: cached } });
    expect((await ask()).body).not.toContain('cached');
    upstream.next({
      events: [{ choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }] }, { choices: [], usage: cached }],
    });
    const stream = await ask({ stream: true, stream_options: { include_usage: true } });
    expect(stream.body).not.toContain('cached');
  });
});

describe('the request to the server', () => {
  test('has the parameters of the caller, and always a limit of the answer', async () => {
    await ask({ temperature: 0.5, top_p: 0.9, stop: ['x'] });
    expect(upstream.asked[0]).toMatchObject({ path: '/v1/chat/completions' });
    expect(upstream.asked[0]?.body).toEqual({
      model: 'upstream/secret-name',
      messages: HI,
      max_tokens: 1_024,
      temperature: 0.5,
      top_p: 0.9,
      stop: ['x'],
    });
    expect(upstream.asked[0]?.headers.authorization).toBeUndefined();
  });

  // Specification 4.8: max_tokens is at least 1.
  test('has the max_tokens of the caller, up to the limit of the model', async () => {
    expect((await ask({ max_tokens: 1 })).status).toBe(200);
    expect((await ask({ max_tokens: 1_024 })).status).toBe(200);
    expect(upstream.asked.map(({ body }) => body['max_tokens'])).toEqual([1, 1_024]);
    const refused = expectRefused(PATH, await ask({ max_tokens: 1_025 }), 'validation_failed');
    expect(refused).toMatchObject({ fields: ['max_tokens'], text: expect.stringContaining('1024') as string });
    expectRefused(PATH, await ask({ max_tokens: 0 }), 'validation_failed');
  });

  test('asks for fewer tokens if a long prompt leaves less of the context, and never for fewer than a quarter of it', async () => {
    const models = someModels(upstream.baseUrl, { max_output_tokens: 8_192 });
    const roomy = await openApi({ settings: { models } });
    const { key } = await roomy.account();
    for (const bytes of [2_000, 30_000]) {
      const messages = [{ role: 'user', content: 'x'.repeat(bytes) }];
      await roomy.call('POST', PATH, { key, body: { model: 'small', messages } });
    }
    await roomy.close();
    expect(upstream.asked.map(({ body }) => body['max_tokens'])).toEqual([8_192 - 1_000, 2_048]);
  });

  test.each(
    Object.entries(CHAT_NOTHINGS).flatMap(([member, values]) => values.map((value) => [member, value] as const)),
  )('leaves out parameters without an effect: %s %j', async (member, value) => {
    const body = bodyWith(member, value);
    const last = { choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }] };
    if ('stream' in body) upstream.next({ events: [last, 'data: [DONE]\n\n'] });
    expect((await ask(body)).status).toBe(200);
    const asked = Object.keys(upstream.asked[0]?.body ?? {});
    const always = ['max_tokens', 'messages', 'model', 'stream', 'stream_options'];
    expect(asked.filter((each) => !always.includes(each))).toEqual([]);
    expect(upstream.asked[0]?.body['messages']).toEqual(HI);
    expect(JSON.stringify(upstream.asked[0]?.body)).not.toContain('obfuscation');
  });

  test('has the defaults of a parameter if the model supports it, and leaves them out otherwise', async () => {
    await ask({ top_p: 1, presence_penalty: 0, frequency_penalty: 0 });
    expect(upstream.asked[0]?.body).toEqual({
      model: 'upstream/secret-name',
      messages: HI,
      max_tokens: 1_024,
      top_p: 1,
    });
  });

  test.each([
    [{ max_completion_tokens: 7 }, 7],
    [{ max_completion_tokens: 7, max_tokens: 9 }, 7],
    [{ max_completion_tokens: 9, max_tokens: 7 }, 7],
    [{ max_completion_tokens: 7, max_tokens: null }, 7],
    [{ max_completion_tokens: 7, max_tokens: 100_000 }, 7],
  ])('has the smaller one of max_tokens and max_completion_tokens: %j', async (limits, expected) => {
    const answer = await ask(limits);
    expect(upstream.asked[0]?.body).toMatchObject({ max_tokens: expected });
    expect(upstream.asked[0]?.body).not.toHaveProperty('max_completion_tokens');
    // 256 tokens for the template, 16 for the message, 2 bytes.
    expect(await receiptOf(answer)).toMatchObject({ held_ucents: 274n * 15n + BigInt(expected) * 60n });
  });

  test('has the role system for developer, joined text parts, and the names of speakers, which count as bytes', async () => {
    const parts = ['one', 'two'].map((text) => ({ type: 'text', text }));
    const messages = [
      { role: 'developer', content: 'be brief' },
      { role: 'user', name: 'ann', content: parts },
      { role: 'assistant', content: 'yes', refusal: null, parsed: null, annotations: [], audio: null },
    ];
    const answer = await ask({ messages });
    expect(upstream.asked[0]?.body['messages']).toEqual([
      { role: 'system', content: 'be brief' },
      { role: 'user', name: 'ann', content: 'one\ntwo' },
      { role: 'assistant', content: 'yes' },
    ]);
    const bytes = BigInt('be brief'.length + 'ann'.length + 'one\ntwo'.length + 'yes'.length);
    expect(await receiptOf(answer)).toMatchObject({ held_ucents: (256n + 3n * 16n + bytes) * 15n + 1_024n * 60n });
  });

  // Specification 4.8: temperature and max_tokens may be null.
  test('leaves out members that are null, known or not', async () => {
    const members = { temperature: null, max_tokens: null, seed: null, tools: null, made_up: null, stream: false };
    expect((await ask(members)).status).toBe(200);
    expect(Object.keys(upstream.asked[0]?.body ?? {}).toSorted()).toEqual(['max_tokens', 'messages', 'model']);
  });
});

describe('a request is refused', () => {
  // Specification 7.3: 402 insufficient balance.
  test('if the balance does not cover its longest answer: the message says how to need less, and what others hold', async () => {
    const { db, rooms } = api.world;
    const account = { kind: 'customer_wallet', ownerId: owner.orgId } as const;
    const hold = (id: string, leaveUcents: bigint): Promise<void> =>
      db.tx('test', async (tx) => {
        const { availableUcents } = await rooms.ledger.balance(tx, account);
        await rooms.ledger.setHold(tx, id, account, availableUcents - leaveUcents);
      });
    await hold('test:1', 20_000n);
    const refused = expectRefused(PATH, await ask(), 'insufficient_balance');
    expect(refused.text).toMatch(
      /^This needs \$0\.\d+ and \$0\.0002 is available\. \$9999\.\d+ is held for other requests/,
    );
    expect(refused.text).toContain(
      'It is for an answer of at most 1024 tokens: a smaller max_tokens (or max_completion_tokens) lowers it. Add funds, or try again then.',
    );
    expect((await ask({ max_completion_tokens: 5 })).status).toBe(200);
  });

  // Specification 9: An unsupported-parameter error message refers to v1.1 of the inference surface.
  // Specification 1: Tool calling, JSON mode and structured outputs are rejected and never silently ignored.
  test.each([
    [{ tools: [{ type: 'function' }] }, 'tools'],
    [{ tool_choice: 'required' }, 'tool_choice'],
    [{ response_format: { type: 'json_object' } }, 'response_format'],
    [{ n: 2 }, 'n'],
    [{ messages: [{ role: 'user', content: 'hi', mood: 'good' }] }, 'messages[0].mood'],
    [
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: {} }] }] },
      'messages[0].content[0].image_url',
    ],
    [{ seed: 5 }, 'seed'],
    [{ presence_penalty: 0.1 }, 'presence_penalty'],
    [{ made_up: false }, 'made_up'],
  ])('by name for an unsupported parameter: %j', async (body, field) => {
    const refused = expectRefused(PATH, await ask(body), 'unsupported_parameter');
    expect(refused.fields).toEqual([field]);
    // Specification 9.
    expect(refused.text).toContain('v1.1 of the inference API');
    expect(upstream.asked).toEqual([]);
  });

  // Specification 1: What asks for nothing is accepted by a list, whatever else of the kind is refused by its name.
  test.each(Object.keys(CHAT_NOTHINGS))('by name for %s with any value that has an effect', async (member) => {
    for (const value of ['something', 7, [1], { a: 1 }, [[]], { type: 'text', more: 1 }]) {
      const refused = expectRefused(PATH, await ask(bodyWith(member, value)), 'unsupported_parameter');
      expect(refused.fields).toEqual([member.replace('[]', '[0]')]);
    }
    expect(upstream.asked).toEqual([]);
  });

  // Specification 2.11: role is system, user or assistant, content a string.
  test.each([
    [{ messages: [] }, 'messages'],
    [{ messages: [{ role: 'tool', content: 'x' }] }, 'messages[0].role'],
    [{ messages: [{ role: 'user', content: [] }] }, 'messages[0].content'],
    [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 'messages[0].content[0].text'],
    [{ messages: [{ role: 'user', content: 5 }] }, 'messages[0].content'],
    [{ max_completion_tokens: 1_025 }, 'max_completion_tokens'],
    [{ max_completion_tokens: 0 }, 'max_completion_tokens'],
    [{ user: 5 }, 'user'],
    [{ metadata: { a: 1 } }, 'metadata.a'],
    [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, ''])) }, 'metadata'],
    [{ temperature: 2.1 }, 'temperature'],
    [{ temperature: -0.1 }, 'temperature'],
    [{ max_tokens: 1.5 }, 'max_tokens'],
    [{ model: 5 }, 'model'],
    [{ stop: ['a', 'b', 'c', 'd', 'e'] }, 'stop'],
  ])('for an invalid value: %j', async (body, field) => {
    expect(expectRefused(PATH, await ask(body), 'validation_failed').fields).toEqual([field]);
  });

  // Specification 7.3: model_not_found for a model that is absent, coming soon, or not for chat.
  test.each(['nobody/knows', 'acme/painter', 'acme/vectors', 'nobody/knows:economy'])(
    'for the model %s, which cannot be called: 404 model_not_found',
    async (model) => {
      expect(expectRefused(PATH, await ask({ model }), 'model_not_found').fields).toEqual(['model']);
    },
  );

  // Specification 4.8: stream_options: include_usage tells the usage, and only a stream takes it.
  test('for stream_options without a stream', async () => {
    const answer = await ask({ stream_options: { include_usage: true } });
    expect(expectRefused(PATH, answer, 'invalid_request').fields).toEqual(['stream_options']);
  });

  test('for more than 2048 messages, and answered for 2048', async () => {
    const messages = (count: number): object => ({ messages: Array.from({ length: count }, () => HI[0]) });
    expect((await ask(messages(2_048))).status).toBe(200);
    expect(expectRefused(PATH, await ask(messages(2_049)), 'validation_failed').fields).toEqual(['messages']);
  });
});
