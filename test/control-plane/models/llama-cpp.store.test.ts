// Special cases of llama.cpp. Whole answers are requested as streams, so that a caller who leaves stops the work and pays for it.
// A text that is too long for its batch is the caller's mistake. The context length of the catalog is enforced.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { parseModels } from '../../../control-plane/models/catalog/models.ts';
import { findReceipt, pageOfReceipts, type Receipt } from '../../../control-plane/models/gateway/store.ts';
import { countRow } from '../../../control-plane/base/db/columns.ts';
import { type Asked, type FakeAnswer, type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { modelsFile } from '../../kit/models.ts';
import { BEGIN, DONE, HELLO_EVENTS, say, stop } from '../../kit/stream-chunks.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HI = [{ role: 'user' as const, content: 'hi' }];
const timed = (prompt: number, predicted: number): object => ({
  timings: { prompt_n: prompt, cache_n: 0, predicted_n: predicted },
});

let upstream: FakeUpstream;
let world: World;
let orgId: string;
let principalId: string;
beforeEach(async () => {
  upstream = await openFakeUpstream();
  const upstreams = [{ base_url: upstream.baseUrl, model: 'm', engine: 'llama_cpp' }];
  world = await openWorld(1, { settings: { models: parseModels(modelsFile(upstream.baseUrl, { upstreams }), 'm') } });
  ({ orgId, principalId } = await world.customer(100));
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await upstream.close();
});

const never = new AbortController().signal;
function ask(more: object = {}, gone = never): Promise<Reply> {
  const caller = { orgId, principalId, scopes: [] };
  const body = { model: 'small', messages: HI, ...more };
  return world.rooms.gateway.completeChat({ caller, requestId: 'req_test', gone, body });
}
/** Sends a request, waits for everything that the server sends, and leaves. */
async function leaveUnfinished(): Promise<void> {
  const leave = new AbortController();
  const asking = ask({}, leave.signal);
  await upstream.came(1);
  for (let turn = 0; turn < 200; turn += 1) await world.clock.nextTurn();
  leave.abort();
  await expect(asking).rejects.toMatchObject({ code: 'invalid_request' });
  await upstream.wereLeft(1);
}
const newest = async (): Promise<Receipt | undefined> =>
  (await pageOfReceipts(world.db.read, { orgId }, undefined, 1))[0];
const isOpen = async (): Promise<number> =>
  (await world.db.read.one(countRow, sql`select count(*) as count from request_receipts where state = 'open'`))
    ?.count ?? 0;

describe('a whole answer', () => {
  test('is requested as a stream with token counts, and returned whole', async () => {
    upstream.next({ events: HELLO_EVENTS });
    const reply = await ask();
    expect(reply.body).toMatchObject({
      object: 'chat.completion',
      choices: [{ message: { role: 'assistant', content: 'Hello there.' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 6, completion_tokens: 3, total_tokens: 9 },
    });
    expect(upstream.asked[0]?.body).toMatchObject({ stream: true, timings_per_token: true });
    const receipt = await findReceipt(world.db.read, reply.headers?.['x-receipt-id'] ?? '');
    expect(receipt).toMatchObject({ ending: 'completed', counted_by: 'upstream', charged_ucents: 6n * 15n + 3n * 60n });
  });

  test('stops at the server if its caller leaves, and the part that was generated is paid', async () => {
    upstream.next({ events: [BEGIN, say('Hel', timed(6, 1)), say('lo', timed(6, 2))], ending: 'stall' });
    await leaveUnfinished();
    expect(await newest()).toMatchObject({
      ending: 'client_left',
      counted_by: 'running',
      prompt_tokens: 6,
      completion_tokens: 2,
      charged_ucents: 6n * 15n + 2n * 60n,
    });
    expect(await isOpen()).toBe(0);
    expect(world.rooms.gateway.counts.failures()).toEqual([]);
  });

  test('is paid from its first token if its model thinks first and its caller leaves meanwhile', async () => {
    const thought = {
      choices: [{ index: 0, delta: { reasoning_content: 'hmm' }, finish_reason: null }],
      ...timed(6, 50),
    };
    upstream.next({ events: [BEGIN, thought], ending: 'stall' });
    await leaveUnfinished();
    expect(await newest()).toMatchObject({ ending: 'client_left', counted_by: 'running', completion_tokens: 50 });
  });

  test('costs nothing if its caller leaves before it began', async () => {
    upstream.next({ events: [BEGIN], ending: 'stall' });
    await leaveUnfinished();
    expect(await newest()).toMatchObject({ ending: 'client_left', charged_ucents: 0n });
  });

  test.each<[string, FakeAnswer, string]>([
    ['breaks off', { events: [BEGIN, say('Hel')], ending: 'cut' }, 'upstream_error'],
    ['ends without a reason', { events: [BEGIN, say('Hel')] }, 'upstream_error'],
    ['tells an error', { events: [BEGIN, { error: { message: 'no' } }] }, 'upstream_error'],
    ['is no stream', { body: 'hello' }, 'upstream_error'],
    [
      'is too large',
      { events: [say('x'.repeat(900_000)), ...Array.from({ length: 20 }, () => say('x'.repeat(900_000)))] },
      'upstream_response_too_large',
    ],
  ])('that %s is refused and costs nothing', async (_what, answer, code) => {
    upstream.next(answer);
    await expect(ask()).rejects.toMatchObject({ code });
    expect(await newest()).toMatchObject({ charged_ucents: 0n, ending: 'upstream_failed' });
  });

  test('that begins late has only the rest of the time', async () => {
    const began = Promise.withResolvers<void>();
    upstream.next({ events: [BEGIN, say('Hel')], ending: 'stall', after: began.promise });
    const refusal = ask().catch((error: unknown) => error);
    await upstream.came(1);
    await world.clock.advance(270_000);
    began.resolve();
    for (let turn = 0; turn < 100; turn += 1) await world.clock.nextTurn();
    upstream.say(1, say('l'));
    for (let turn = 0; turn < 100; turn += 1) await world.clock.nextTurn();
    await world.clock.advance(10_000);
    expect(await refusal).toMatchObject({ code: 'upstream_timeout' });
  });

  test('that is late is 504, and the request to the server is cancelled', async () => {
    upstream.next({ events: [BEGIN, say('Hel')], ending: 'stall' });
    const asking = ask();
    const refusal = asking.catch((error: unknown) => error);
    await upstream.came(1);
    for (let turn = 0; turn < 200; turn += 1) await world.clock.nextTurn();
    for (let second = 0; second < 280; second += 10) {
      await world.clock.advance(10_000);
      // A sign of life, so that not the silence ends the request.
      upstream.say(1, say('l'));
      for (let turn = 0; turn < 20; turn += 1) await world.clock.nextTurn();
    }
    expect(await refusal).toMatchObject({ code: 'upstream_timeout' });
    await upstream.wereLeft(1);
    expect(await newest()).toMatchObject({ charged_ucents: 0n });
  });
});

describe('an answer that its server has not counted', () => {
  test('is counted by the tokenizer, but never with more tokens than its limit', async () => {
    upstream.usual = ({ path }) => {
      if (path === '/apply-template') return { body: { prompt: 'user:hi' } };
      if (path === '/tokenize') return { body: { tokens: Array.from({ length: 228 }, (_, i) => i) } };
      return { events: [BEGIN, say('Hello'), stop(), DONE] };
    };
    const reply = await ask({ max_tokens: 60 });
    expect(reply.body).toMatchObject({ usage: { prompt_tokens: 228, completion_tokens: 60 } });
    const receipt = await newest();
    expect(receipt).toMatchObject({ counted_by: 'tokenizer', prompt_tokens: 228, completion_tokens: 60 });
    expect(receipt?.charged_ucents).toBe(228n * 15n + 60n * 60n);
  });
});

describe('the context of the catalogue', () => {
  /** 8,192 tokens; a byte is a token here, and the template adds none. */
  const byByte = (asked: Asked): FakeAnswer => {
    if (asked.path === '/apply-template')
      return {
        body: { prompt: (asked.body['messages'] as { content: string }[]).map(({ content }) => content).join('') },
      };
    if (asked.path === '/tokenize')
      return { body: { tokens: Array.from({ length: String(asked.body['content']).length }, (_, i) => i) } };
    return { events: HELLO_EVENTS };
  };
  const chats = (): Asked[] => upstream.asked.filter(({ path }) => path === '/v1/chat/completions');
  const words = (bytes: number): object => ({ messages: [{ role: 'user', content: 'w'.repeat(bytes) }] });

  test.each([false, true])(
    'refuses a prompt that leaves no room for the requested answer, as a stream %s',
    async (stream) => {
      upstream.usual = byByte;
      await expect(ask({ ...words(8_000), max_tokens: 193, stream })).rejects.toMatchObject({
        code: 'context_length_exceeded',
        details: { detail: expect.stringContaining('What was sent has 8000 tokens') },
      });
      expect(chats()).toEqual([]);
      expect(await newest()).toMatchObject({ ending: 'refused', charged_ucents: 0n });
      await ask({ ...words(8_000), max_tokens: 192, stream });
      expect(chats()[0]?.body['max_tokens']).toBe(192);
    },
  );

  test('lets an answer without max_tokens be as long as there is room for', async () => {
    upstream.usual = byByte;
    await ask(words(8_190));
    expect(chats()[0]?.body['max_tokens']).toBe(2);
    await expect(ask(words(8_192))).rejects.toMatchObject({ code: 'context_length_exceeded' });
  });

  test('is not checked by the tokenizer if a prompt fits however it is counted', async () => {
    upstream.usual = byByte;
    await ask(words(1_000));
    expect(upstream.asked.map(({ path }) => path)).toEqual(['/v1/chat/completions']);
  });

  test('refuses a stream whose server counts a longer prompt, before it begins', async () => {
    upstream.usual = ({ path }) =>
      path === '/v1/chat/completions'
        ? { events: [say('x', timed(8_193, 1)), stop(), DONE] }
        : { status: 404, body: {} };
    await expect(ask({ ...words(8_000), stream: true })).rejects.toMatchObject({ code: 'context_length_exceeded' });
    expect(await newest()).toMatchObject({ charged_ucents: 0n });
    expect(world.rooms.gateway.servers()).toMatchObject([{ isOut: false }]);
  });
});

test('a text that is too long for the batch is 400, and no failure of the server', async () => {
  const message =
    'input (5001 tokens) is too large to process. increase the physical batch size (current batch size: 4096)';
  upstream.usual = ({ path }) =>
    path === '/v1/embeddings' ? { status: 500, body: { error: { code: 500, message, type: 'server_error' } } } : {};
  const keys = [await world.key(orgId), await world.key(orgId)];
  const embed = (i: number) =>
    world.rooms.gateway.embed({
      caller: { orgId, principalId: keys[i % 2]?.principalId ?? '', scopes: [] },
      requestId: 'req_test',
      gone: never,
      body: { model: 'embedder', input: 'w'.repeat(5_000), encoding_format: 'float' },
    });
  for (let i = 0; i < 10; i += 1) await expect(embed(i)).rejects.toMatchObject({ code: 'context_length_exceeded' });
  expect(world.rooms.gateway.servers()).toMatchObject([{ isOut: false }]);
  expect(world.rooms.gateway.counts.failures()).toEqual([]);
});
