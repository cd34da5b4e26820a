// If a server does not report tokens, its own tokenizer counts them; if that fails, they are estimated from the text.
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { parseModels } from '../../../control-plane/models/catalog/models.ts';
import { findReceipt, type Receipt } from '../../../control-plane/models/gateway/store.ts';
import { type Asked, type FakeAnswer, type FakeUpstream, HELLO, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { modelsFile, someModels } from '../../kit/models.ts';
import { BEGIN, dataOf, DONE, HELLO_EVENTS, say, stop } from '../../kit/stream-chunks.ts';
import { openWorld, type World } from '../../kit/world.ts';

const MESSAGES = [{ role: 'user' as const, content: 'hi' }];
/** Answers whole, or as a stream if requested. For llama.cpp a stream is always requested. */
const uncounted = ({ body }: Pick<Asked, 'body'>): FakeAnswer =>
  body['stream'] === true
    ? { events: [BEGIN, say('Hello there.'), stop(), DONE] }
    : { body: { ...HELLO, usage: undefined } };
const UNCOUNTED = uncounted({ body: {} });

let upstream: FakeUpstream;
let world: World;
let orgId: string;
let principalId: string;
beforeEach(async () => {
  upstream = await openFakeUpstream();
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await upstream.close();
});

async function serve(engine: string): Promise<void> {
  const upstreams = [{ base_url: upstream.baseUrl, model: 'm', engine }];
  world = await openWorld(1, { settings: { models: someModels(undefined, { upstreams }) } });
  ({ orgId, principalId } = await world.customer(100));
}
/** `count` tokens for each character of a text, and 5 for what a template puts around a conversation. */
function tokenizer({ path, body }: Asked): FakeAnswer {
  const lengthOf = (text: unknown): number => String(text).length;
  if (path === '/apply-template') return { body: { prompt: 'user:hi' } };
  if (path !== '/tokenize') return uncounted({ body });
  if (body['messages'] !== undefined) return { body: { count: 7, max_model_len: 10, tokens: [] } };
  if (body['prompt'] !== undefined) return { body: { count: lengthOf(body['prompt']), max_model_len: 10 } };
  return { body: { tokens: Array.from({ length: lengthOf(body['content']) }, (_, i) => i) } };
}
function ask(more: object = {}, gone = new AbortController().signal): Promise<Reply> {
  const caller = { orgId, principalId, scopes: [] };
  const body = { model: 'small', messages: MESSAGES, ...more };
  return world.rooms.gateway.completeChat({ caller, requestId: 'req_test', gone, body });
}
const receiptOf = (reply: Reply): Promise<Receipt | undefined> =>
  findReceipt(world.db.read, reply.headers?.['x-receipt-id'] ?? '');
const counted = (prompt_tokens: number, completion_tokens: number, counted_by: string): object => ({
  state: 'settled',
  prompt_tokens,
  completion_tokens,
  counted_by,
  charged_ucents: BigInt(prompt_tokens * 15 + completion_tokens * 60),
});
/** The counts of `hi` and `Hello there.`. */
const ESTIMATED = counted(1, 3, 'estimate');
const askedFor = (): object[] => upstream.asked.slice(1).map(({ path, body }) => ({ path, body }));

const ENGINES: [string, object[]][] = [
  [
    'vllm',
    [
      { path: '/tokenize', body: { model: 'm', messages: MESSAGES } },
      { path: '/tokenize', body: { model: 'm', prompt: 'Hello there.', add_special_tokens: false } },
    ],
  ],
  [
    'llama_cpp',
    [
      { path: '/apply-template', body: { model: 'm', messages: MESSAGES } },
      { path: '/tokenize', body: { model: 'm', content: 'user:hi', add_special: true, parse_special: true } },
      { path: '/tokenize', body: { model: 'm', content: 'Hello there.', add_special: false } },
    ],
  ],
];

describe('a chat', () => {
  // Specification 1: Billing is per token, also if the server has not counted.
  test.each(ENGINES)(
    'that %s has not counted is counted by its tokenizer, and the receipt says so',
    async (engine, asked) => {
      await serve(engine);
      upstream.usual = tokenizer;
      const reply = await ask();
      expect(reply.body).toMatchObject({ usage: { prompt_tokens: 7, completion_tokens: 12, total_tokens: 19 } });
      expect(await receiptOf(reply)).toMatchObject(counted(7, 12, 'tokenizer'));
      expect(askedFor()).toEqual(asked);
    },
  );

  test.each(['sglang', 'tei', 'other'])(
    'that a server of the engine %s has not counted is estimated',
    async (engine) => {
      await serve(engine);
      upstream.usual = tokenizer;
      expect(await receiptOf(await ask())).toMatchObject(ESTIMATED);
      expect(askedFor()).toEqual([]);
    },
  );

  test.each(ENGINES)('that %s has counted is not counted again', async (engine) => {
    await serve(engine);
    upstream.usual = ({ body }) => (body['stream'] === true ? { events: HELLO_EVENTS } : {});
    expect(await receiptOf(await ask())).toMatchObject(counted(6, 3, 'upstream'));
    expect(askedFor()).toEqual([]);
  });

  test.each<[string, FakeAnswer]>([
    ['has none', { status: 404, body: { count: 7, tokens: [] } }],
    ['answers with no JSON', { body: 'seven' }],
    ['answers with something else', { body: { count: -1, tokens: 7 } }],
    ['cuts the connection', { body: { count: 7, tokens: [] }, ending: 'cut' }],
  ])('is estimated if the tokenizer %s', async (_what, answer) => {
    await serve('vllm');
    upstream.usual = (asked) => (asked.path === '/tokenize' ? answer : UNCOUNTED);
    expect(await receiptOf(await ask())).toMatchObject(ESTIMATED);
  });

  test('is streamed to its last word before the tokenizer counts it', async () => {
    await serve('vllm');
    upstream.usual = (asked) => (asked.path === '/tokenize' ? { ending: 'stall' } : uncounted(asked));
    const { stream } = await ask({ stream: true });
    if (stream === undefined) throw new Error('no stream');
    const ended = once(stream, 'end');
    let text = '';
    stream.on('data', (piece: Buffer) => (text += piece.toString()));
    await upstream.came(2);
    expect(dataOf(text)).toMatchObject([
      { choices: [{ delta: { content: '' } }] },
      { choices: [{ delta: { content: 'Hello there.' } }] },
      { choices: [{ finish_reason: 'stop' }] },
    ]);
    await world.clock.advance(2_000);
    await ended;
  });

  test('is estimated if the tokenizer has not counted all of it within two seconds', async () => {
    await serve('vllm');
    const gate = Promise.withResolvers<void>();
    upstream.usual = (asked) => {
      if (asked.path !== '/tokenize') return UNCOUNTED;
      return asked.body['messages'] === undefined ? { ending: 'stall' } : { ...tokenizer(asked), after: gate.promise };
    };
    const asking = ask();
    await upstream.came(2);
    await world.clock.advance(1_000);
    gate.resolve();
    await upstream.came(3);
    await world.clock.advance(999);
    expect(upstream.left()).toBe(0);
    await world.clock.advance(1);
    expect(await receiptOf(await asking)).toMatchObject(ESTIMATED);
    await upstream.wereLeft(1);
  });
});

describe('a stream', () => {
  const read = async (reply: Reply): Promise<string> => {
    let text = '';
    for await (const piece of reply.stream ?? []) text += String(piece);
    return text;
  };

  test('that ends without a count is counted by the tokenizer', async () => {
    await serve('vllm');
    upstream.usual = (asked) =>
      asked.path === '/tokenize' ? tokenizer(asked) : { events: [BEGIN, say('Hel'), say('lo'), stop(), DONE] };
    const reply = await ask({ stream: true, stream_options: { include_usage: true } });
    expect(dataOf(await read(reply)).slice(-2)).toMatchObject([
      { choices: [], usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } },
      '[DONE]',
    ]);
    expect(await receiptOf(reply)).toMatchObject({ ending: 'completed', ...counted(7, 5, 'tokenizer') });
  });

  test('costs what the tokenizer counts of the sent text, if its caller leaves before the server has counted', async () => {
    await serve('llama_cpp');
    upstream.usual = (asked) =>
      asked.path.startsWith('/v1') ? { events: [BEGIN, say('Hello')], ending: 'stall' } : tokenizer(asked);
    const leave = new AbortController();
    const reply = await ask({ stream: true }, leave.signal);
    if (reply.stream === undefined) throw new Error('no stream');
    let text = '';
    reply.stream.on('data', (piece: Buffer) => (text += piece.toString()));
    while (!text.includes('Hello')) await once(reply.stream, 'data');
    leave.abort();
    await upstream.came(4);
    await world.rooms.gateway.close();
    expect(await receiptOf(reply)).toMatchObject({ ending: 'client_left', ...counted(7, 5, 'tokenizer') });
  });

  test('that breaks off is not counted: it costs nothing', async () => {
    await serve('vllm');
    upstream.usual = () => ({ events: [BEGIN, say('Hel')], ending: 'cut' });
    const reply = await ask({ stream: true });
    await read(reply);
    expect(await receiptOf(reply)).toMatchObject({ state: 'released', counted_by: null });
    expect(askedFor()).toEqual([]);
  });
});

describe('embeddings', () => {
  const embed = (input: string[]): Promise<Reply> =>
    world.rooms.gateway.embed({
      caller: { orgId, principalId, scopes: [] },
      requestId: 'req_test',
      gone: new AbortController().signal,
      body: { model: 'embedder', input, encoding_format: 'float' },
    });
  const inputsOf = ({ body }: Asked): string[] => (body['input'] ?? body['inputs']) as string[];
  const vectors = (asked: Asked): FakeAnswer => ({
    body: { data: inputsOf(asked).map((_, index) => ({ index, embedding: [1] })) },
  });
  const tokens = (asked: Asked): FakeAnswer => ({
    body: inputsOf(asked).map((text) => text.split('').map((id) => ({ id }))),
  });
  beforeEach(async () => {
    const models = parseModels(
      modelsFile(upstream.baseUrl).replaceAll('"max_inputs":3', '"max_inputs":2,"engine":"tei"'),
      'x',
    );
    world = await openWorld(1, { settings: { models } });
    ({ orgId, principalId } = await world.customer(100));
  });

  test('that TEI has not counted are counted by its tokenizer, each batch by itself', async () => {
    upstream.usual = (asked) => (asked.path === '/tokenize' ? tokens(asked) : vectors(asked));
    const reply = await embed(['a', 'bb', 'ccc']);
    expect(reply.body).toMatchObject({ usage: { prompt_tokens: 6, total_tokens: 6 } });
    expect(await receiptOf(reply)).toMatchObject({ counted_by: 'tokenizer', prompt_tokens: 6 });
    expect(upstream.asked.filter(({ path }) => path === '/tokenize').map(inputsOf)).toEqual([['a', 'bb'], ['ccc']]);
  });

  test('with a token for each byte of a long text, whose characters have three bytes, are counted by the tokenizer', async () => {
    const text = '\u{1200}'.repeat(8_000);
    const bytes = Buffer.byteLength(text);
    const token = { id: 1, text: 'x', special: false, start: 0, stop: 1 };
    upstream.usual = (asked) =>
      asked.path === '/tokenize' ? { body: [Array.from({ length: bytes }, () => token)] } : vectors(asked);
    expect(await receiptOf(await embed([text]))).toMatchObject({ counted_by: 'tokenizer', prompt_tokens: bytes });
  });

  test('are estimated from the first batch on that the tokenizer does not count, and the tokenizer is not asked again', async () => {
    let asks = 0;
    upstream.usual = (asked) => {
      if (asked.path !== '/tokenize') return vectors(asked);
      asks += 1;
      return asks === 2 ? { body: [] } : tokens(asked);
    };
    const reply = await embed(['a', 'bb', 'ccc', 'd', 'eeeee']);
    // Two texts of 3 tokens together, then estimates of 1, 1 and 2.
    expect(await receiptOf(reply)).toMatchObject({ counted_by: 'estimate', prompt_tokens: 7 });
    expect(asks).toBe(2);
  });

  test('that are counted for some batches only count as the least exact of them', async () => {
    upstream.usual = (asked) => (asked.path === '/tokenize' ? tokens(asked) : vectors(asked));
    const usage = { prompt_tokens: 10 };
    upstream.next({
      body: { ...(vectors({ body: { input: ['a', 'b'] } } as unknown as Asked).body as object), usage },
    });
    expect(await receiptOf(await embed(['a', 'bb', 'ccc']))).toMatchObject({
      counted_by: 'tokenizer',
      prompt_tokens: 13,
    });
  });
});
