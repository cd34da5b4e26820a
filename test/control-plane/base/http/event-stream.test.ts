// Server-sent events: their text, keep-alive comments, and the end of the source if the reader leaves.
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { eventStream, type ServerSentEvent } from '../../../../control-plane/base/http/event-stream.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

const EVENTS: ServerSentEvent[] = [{ data: { text: 'two\nlines' } }, { event: 'end', id: '7', data: null }];

async function* from(events: ServerSentEvent[]): AsyncGenerator<ServerSentEvent> {
  yield* events;
}

test('the stream begins with a comment; each event is its lines and an empty line; data is JSON, so it never contains a line break', async () => {
  expect(await text(eventStream(from(EVENTS), virtualClock()))).toBe(
    ': open\n\ndata: {"text":"two\\nlines"}\n\nevent: end\nid: 7\ndata: null\n\n',
  );
});

test('comments are sent every 15 seconds of silence while somebody reads', async () => {
  const clock = virtualClock();
  const silent = Promise.withResolvers<IteratorResult<ServerSentEvent>>();
  const stream = eventStream({ [Symbol.asyncIterator]: () => ({ next: () => silent.promise }) }, clock);
  let got = '';
  stream.on('data', (chunk: Buffer) => (got += chunk.toString()));
  await clock.advance(14_999);
  expect(got).toBe(': open\n\n');
  await clock.advance(15_001);
  expect(got).toBe(': open\n\n: keep-alive\n\n: keep-alive\n\n');
  stream.destroy();
  await clock.advance(60_000);
  expect(got).toBe(': open\n\n: keep-alive\n\n: keep-alive\n\n');
});

test('a reader that disconnects ends the source', async () => {
  const ended = Promise.withResolvers<void>();
  async function* endless(): AsyncGenerator<ServerSentEvent> {
    try {
      for (;;) yield { data: 'x'.repeat(1024) };
    } finally {
      ended.resolve();
    }
  }
  const stream = eventStream(endless(), virtualClock());
  for await (const _ of stream) break;
  await ended.promise;
});

test('a source that fails aborts the stream instead of ending it normally', async () => {
  async function* failing(): AsyncGenerator<ServerSentEvent> {
    yield { data: 1 };
    throw new Error('the host is gone');
  }
  await expect(text(eventStream(failing(), virtualClock()))).rejects.toThrow('the host is gone');
});

test('a reader that leaves before the next event comes leaves no timer behind', async () => {
  const clock = virtualClock();
  const first = Promise.withResolvers<IteratorResult<ServerSentEvent>>();
  const stream = eventStream({ [Symbol.asyncIterator]: () => ({ next: () => first.promise }) }, clock);
  stream.destroy();
  await clock.advance(0);
  first.resolve({ value: { data: 1 } });
  await clock.advance(0);
  expect(clock.waiting()).toBe(0);
});

test('a reader that takes the last events later than the next comment would come gets all of them', async () => {
  const clock = virtualClock();
  const data = 'x'.repeat(100_000);
  const stream = eventStream(from([{ data }, { data: 'last' }]), clock);
  await clock.advance(0);
  expect(String(stream.read())).toContain(data);
  await clock.advance(60_000);
  expect(await text(stream)).toMatch(/data: "last"\n\n$/);
});
