// Server-sent events: their text, keep-alives while there is nothing to say, and an end for whoever stops reading.
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { eventStream, type ServerSentEvent } from '../../../../control-plane/base/http/event-stream.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

const EVENTS: ServerSentEvent[] = [{ data: { text: 'two\nlines' } }, { event: 'end', id: '7', data: null }];

async function* from(events: ServerSentEvent[]): AsyncGenerator<ServerSentEvent> {
  yield* events;
}

test('each event is its lines and an empty one; data is JSON, so it never breaks a line', async () => {
  expect(await text(eventStream(from(EVENTS), virtualClock()))).toBe(
    'data: {"text":"two\\nlines"}\n\nevent: end\nid: 7\ndata: null\n\n',
  );
});

test('silence is filled with comments every 15 seconds, for as long as somebody reads', async () => {
  const clock = virtualClock();
  const silent = Promise.withResolvers<IteratorResult<ServerSentEvent>>();
  const stream = eventStream({ [Symbol.asyncIterator]: () => ({ next: () => silent.promise }) }, clock);
  let got = '';
  stream.on('data', (chunk: Buffer) => (got += chunk.toString()));
  await clock.advance(14_999);
  expect(got).toBe('');
  await clock.advance(15_001);
  expect(got).toBe(': keep-alive\n\n: keep-alive\n\n');
  stream.destroy();
  await clock.advance(60_000);
  expect(got).toBe(': keep-alive\n\n: keep-alive\n\n');
});

test('a reader that goes away ends the source', async () => {
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

test('a source that fails breaks the stream off, without an end', async () => {
  async function* failing(): AsyncGenerator<ServerSentEvent> {
    yield { data: 1 };
    throw new Error('the host is gone');
  }
  await expect(text(eventStream(failing(), virtualClock()))).rejects.toThrow('the host is gone');
});
