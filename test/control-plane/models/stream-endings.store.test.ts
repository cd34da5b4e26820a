// Every way in which a stream ends: what the caller reads last, what it pays, and that nothing stays held.
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findReceipt, type Receipt } from '../../../control-plane/models/gateway/store.ts';
import { STREAM_PING_MS } from '../../../shared/limits.ts';
import { type FakeAnswer, type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { someModels } from '../../kit/models.ts';
import { BEGIN, dataOf, DONE, say, stop, usage } from '../../kit/stream-chunks.ts';
import { openWorld, type World } from '../../kit/world.ts';

let upstream: FakeUpstream;
let world: World;
let orgId: string;
let principalId: string;
beforeEach(async () => {
  upstream = await openFakeUpstream();
  const upstreams = [{ base_url: upstream.baseUrl, model: 'm', engine: 'vllm', idle_ms: 20_000 }];
  world = await openWorld(1, { settings: { models: someModels(undefined, { upstreams }) } });
  ({ orgId, principalId } = await world.customer(100));
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await upstream.close();
});

interface Streaming {
  stream: Readable;
  receiptId: string;
  leave: AbortController;
  ended: Promise<unknown>;
  /** Everything that was read so far. */
  text(): string;
}

async function start(answer: FakeAnswer): Promise<Streaming> {
  upstream.next(answer);
  const leave = new AbortController();
  const reply = await world.rooms.gateway.completeChat({
    caller: { orgId, principalId, scopes: [] },
    requestId: 'req_test',
    gone: leave.signal,
    body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], stream: true },
  });
  const { stream } = reply;
  if (stream === undefined) throw new Error('no stream');
  const pieces: Buffer[] = [];
  stream.on('data', (piece: Buffer) => pieces.push(piece));
  const text = (): string => Buffer.concat(pieces).toString();
  return { stream, receiptId: reply.headers?.['x-receipt-id'] ?? '', leave, ended: once(stream, 'end'), text };
}
const error = (code: string): object => ({ error: expect.objectContaining({ code }) as object });
const content = (text: string): object => ({
  choices: [{ index: 0, delta: expect.objectContaining({ content: text }) as object, finish_reason: null }],
});
const closed = async ({ receiptId }: Streaming): Promise<Receipt | undefined> => {
  await world.rooms.gateway.close();
  const { heldUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
  expect(heldUcents).toBe(0n);
  return findReceipt(world.db.read, receiptId);
};
const read = async (streaming: Streaming, count: number): Promise<void> => {
  while (dataOf(streaming.text()).length < count) await once(streaming.stream, 'data');
};

const FREE = { state: 'released', ending: 'upstream_failed', charged_ucents: 0n };
/** Running counts: after `Hello`, 6 tokens of prompt and 2 of answer. */
const SAID = [BEGIN, say('Hello', { usage: { prompt_tokens: 6, completion_tokens: 2 } })];

describe('the server', () => {
  // Specification 6.5: Streaming chat ends with an SSE error event for an error mid-stream, and then [DONE].
  test.each([
    ['cuts the connection', { events: SAID, ending: 'cut' }],
    ['ends without a reason', { events: SAID }],
    ['says that it is done without a reason', { events: [...SAID, DONE] }],
    ['says an error', { events: [...SAID, { error: { message: 'secret: out of memory' } }] }],
    ['says what is no chunk', { events: [...SAID, 'data: {"broken\n\n'] }],
  ] as [string, FakeAnswer][])('%s: an error event, [DONE], and it costs nothing', async (_what, answer) => {
    const streaming = await start(answer);
    await streaming.ended;
    expect(dataOf(streaming.text())).toMatchObject([content(''), content('Hello'), error('upstream_error'), '[DONE]']);
    expect(streaming.text()).not.toContain('secret');
    expect(await closed(streaming)).toMatchObject(FREE);
  });

  test('is silent for longer than it may: an error event, [DONE], it costs nothing, and the server is left', async () => {
    const streaming = await start({ events: SAID, ending: 'stall' });
    await read(streaming, 2);
    await world.clock.advance(19_999);
    expect(dataOf(streaming.text())).toHaveLength(2);
    await world.clock.advance(1);
    await streaming.ended;
    expect(dataOf(streaming.text()).slice(2)).toMatchObject([error('upstream_timeout'), '[DONE]']);
    await upstream.wereLeft(1);
    expect(await closed(streaming)).toMatchObject(FREE);
  });

  test('sends what an error of our own meets: an error event, [DONE], it costs nothing, and the server is left', async () => {
    const streaming = await start({ events: SAID, ending: 'stall' });
    await read(streaming, 2);
    const { clock } = world;
    const { monotonicMs } = clock;
    clock.monotonicMs = () => {
      clock.monotonicMs = monotonicMs;
      throw new Error('nobody has foreseen this');
    };
    upstream.say(1, say(' there'));
    await streaming.ended;
    expect(dataOf(streaming.text()).slice(2)).toMatchObject([error('internal_error'), '[DONE]']);
    await upstream.wereLeft(1);
    expect(await closed(streaming)).toMatchObject(FREE);
  });

  test('keeps its stream open after [DONE]: it is left after two seconds', async () => {
    const streaming = await start({ events: [...SAID, stop(), usage(6, 3), DONE], ending: 'stall' });
    await streaming.ended;
    await world.clock.advance(1_999);
    expect(upstream.left()).toBe(0);
    await world.clock.advance(1);
    await upstream.wereLeft(1);
    expect(await closed(streaming)).toMatchObject({ ending: 'completed', completion_tokens: 3 });
  });

  test.each([
    ['cuts the connection after the reason', { events: [...SAID, stop()], ending: 'cut' }, 'upstream', 2],
    ['ends after the reason without [DONE]', { events: [...SAID, stop(), usage(6, 3)] }, 'upstream', 3],
    ['goes on after [DONE]', { events: [...SAID, stop(), usage(6, 3), DONE, say('more')] }, 'upstream', 3],
    ['never counts', { events: [BEGIN, say('Hello'), stop(), DONE] }, 'estimate', 2],
  ] as [string, FakeAnswer, string, number][])(
    '%s: the answer is whole, and costs its usage',
    async (_what, answer, counted_by, completion_tokens) => {
      const streaming = await start(answer);
      await streaming.ended;
      const data = dataOf(streaming.text());
      expect(data).toHaveLength(4);
      expect(data.at(-1)).toBe('[DONE]');
      const ended = { state: 'settled', ending: 'completed', counted_by, completion_tokens };
      expect(await closed(streaming)).toMatchObject(ended);
    },
  );
});

test('an answer of one piece goes out in one piece, with its end', async () => {
  const events = [...SAID, stop(), usage(6, 3)].map((event) => `data: ${JSON.stringify(event)}\n\n`);
  const streaming = await start({ pieces: [Buffer.from(events.join('') + DONE)] });
  let pieces = 0;
  streaming.stream.on('data', () => (pieces += 1));
  await streaming.ended;
  expect(dataOf(streaming.text())).toHaveLength(4);
  expect(pieces).toBe(1);
});

describe('the caller', () => {
  test('leaves during the answer: it pays for the prompt and what the server has counted so far, and the request is cancelled', async () => {
    const streaming = await start({ events: SAID, ending: 'stall' });
    await read(streaming, 2);
    streaming.leave.abort();
    await upstream.wereLeft(1);
    expect(await closed(streaming)).toMatchObject({
      state: 'settled',
      ending: 'client_left',
      prompt_tokens: 6,
      completion_tokens: 2,
      counted_by: 'running',
      charged_ucents: 6n * 15n + 2n * 60n,
    });
  });

  const THINK = { choices: [{ index: 0, delta: { reasoning_content: 'x'.repeat(4_000) } }] };
  test.each([
    ['it pays for the text that was sent so far', [BEGIN, say('Hello')], 2],
    ['it pays for the thoughts of the model too', [BEGIN, THINK, say('Hello')], 1_002],
  ])('leaves a server that does not count: %s', async (_what, events, completion_tokens) => {
    const streaming = await start({ events, ending: 'stall' });
    await read(streaming, 2);
    streaming.leave.abort();
    await upstream.wereLeft(1);
    expect(await closed(streaming)).toMatchObject({
      ending: 'client_left',
      counted_by: 'estimate',
      prompt_tokens: 1,
      completion_tokens,
    });
  });

  test('leaves before the first event: it pays nothing', async () => {
    upstream.next({ events: [], ending: 'stall' });
    const leave = new AbortController();
    const asking = world.rooms.gateway
      .completeChat({
        caller: { orgId, principalId, scopes: [] },
        requestId: 'req_test',
        gone: leave.signal,
        body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], stream: true },
      })
      .catch(() => undefined);
    await upstream.came(1);
    leave.abort();
    await upstream.wereLeft(1);
    await asking;
    const { postedUcents, heldUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
    expect([postedUcents, heldUcents]).toEqual([100_000_000n, 0n]);
  });

  test('that does not read slows the server down: little is read ahead, and everything arrives when it reads', async () => {
    const long = 'x'.repeat(10_000);
    const count = 2_000;
    upstream.next({ events: [BEGIN, ...Array.from({ length: count }, () => say(long)), stop(), usage(1, 1), DONE] });
    const reply = await world.rooms.gateway.completeChat({
      caller: { orgId, principalId, scopes: [] },
      requestId: 'req_test',
      gone: new AbortController().signal,
      body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], stream: true },
    });
    for (let turn = 0; turn < 1_000; turn += 1) await world.clock.nextTurn();
    expect(reply.stream?.readableLength).toBeLessThan(1_000_000);
    let bytes = 0;
    for await (const piece of reply.stream ?? []) bytes += (piece as Buffer).length;
    expect(bytes).toBeGreaterThan(count * long.length);
  });

  test('reads for half an hour: it is cut off, and pays for what was sent so far', async () => {
    const streaming = await start({ events: SAID, ending: 'stall' });
    await read(streaming, 2);
    for (let minute = 0; minute < 30; minute += 0.25) {
      upstream.say(1, say('.', { usage: { prompt_tokens: 6, completion_tokens: 3 } }));
      await once(streaming.stream, 'data');
      await world.clock.advance(15_000);
    }
    await streaming.ended;
    expect(dataOf(streaming.text()).slice(-2)).toMatchObject([error('upstream_timeout'), '[DONE]']);
    await upstream.wereLeft(1);
    expect(await closed(streaming)).toMatchObject({ ending: 'too_long', state: 'settled', completion_tokens: 3 });
  });

  test('that never reads is cut off after a minute, and pays what was sent', async () => {
    upstream.next({
      events: [BEGIN, ...Array.from({ length: 2_000 }, () => say('x'.repeat(10_000)))],
      ending: 'stall',
    });
    const reply = await world.rooms.gateway.completeChat({
      caller: { orgId, principalId, scopes: [] },
      requestId: 'req_test',
      gone: new AbortController().signal,
      body: { model: 'small', messages: [{ role: 'user', content: 'hi' }], stream: true },
    });
    for (let turn = 0; turn < 50; turn += 1) await world.clock.nextTurn();
    await world.clock.advance(59_999);
    expect([upstream.left(), reply.stream?.destroyed]).toEqual([0, false]);
    await world.clock.advance(STREAM_PING_MS);
    expect(reply.stream?.destroyed).toBe(true);
    await upstream.wereLeft(1);
    await world.rooms.gateway.close();
    const receipt = await findReceipt(world.db.read, reply.headers?.['x-receipt-id'] ?? '');
    expect(receipt).toMatchObject({ ending: 'client_left', state: 'settled', counted_by: 'estimate' });
  });

  test('receives a ping every 15 seconds, as a single line with one line end', async () => {
    const streaming = await start({ events: SAID, ending: 'stall' });
    await read(streaming, 2);
    await world.clock.advance(14_999);
    expect(streaming.text()).not.toContain('ping');
    await world.clock.advance(1);
    expect(streaming.text().endsWith('\n\n: ping\n')).toBe(true);
    streaming.leave.abort();
    await closed(streaming);
  });
});

test('a process that stops lets streams go on for a while, then sends their callers an error, and they pay nothing', async () => {
  const streaming = await start({ events: SAID, ending: 'stall' });
  await read(streaming, 2);
  const drained = world.rooms.gateway.drain(5_000);
  await world.clock.advance(4_999);
  expect(dataOf(streaming.text())).toHaveLength(2);
  await world.clock.advance(1);
  await Promise.all([streaming.ended, drained]);
  expect(dataOf(streaming.text()).slice(2)).toMatchObject([error('unavailable'), '[DONE]']);
  expect(await closed(streaming)).toMatchObject({ state: 'released', ending: 'process_ended', charged_ucents: 0n });
});

test('a process that dies within a stream leaves nothing held, and charges nothing', async () => {
  const streaming = await start({ events: SAID, ending: 'stall' });
  await read(streaming, 2);
  const next = await world.restart();
  expect(await next.rooms.gateway.sweep(new AbortController().signal)).toBe(1);
  streaming.leave.abort();
  expect(await closed(streaming)).toMatchObject({ state: 'released', ending: 'process_ended', charged_ucents: 0n });
  await next.rooms.gateway.close();
});
