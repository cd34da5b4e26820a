// Server-sent events of an answer, however its bytes arrive, and how much of one event is read.
import { expect, test } from 'vitest';
import { EVENT_CHARS_MAX, eventsOf, type ReceivedEvent } from '../../shared/event-reader.ts';

async function read(pieces: readonly string[]): Promise<ReceivedEvent[]> {
  const bytes = pieces.map((piece) => new TextEncoder().encode(piece));
  const events: ReceivedEvent[] = [];
  for await (const event of eventsOf(new Response(ReadableStream.from(bytes)))) events.push(event);
  return events;
}

test('events arrive whole, in pieces and several at once; comments are left out', async () => {
  const events = await read([
    ': hello\n\nda',
    'ta: {"a":1}\n',
    '\nevent: x\r\nid: 7\r\ndata: 2\r\n\r\ndata: [DONE]\n\n',
  ]);
  expect(events).toEqual([
    { type: 'message', id: undefined, data: { a: 1 } },
    { type: 'x', id: '7', data: 2 },
    { type: 'message', id: undefined, data: undefined },
  ]);
});

test('a line end of two characters that comes in two pieces ends one line', async () => {
  const events = await read(['data: 1\r', '\n\r', '\ndata: 2\r\n', '\r\n']);
  expect(events.map(({ data }) => data)).toEqual([1, 2]);
});

test('an event of the largest size is read, and one that does not end is given up', async () => {
  const largest = 'x'.repeat(EVENT_CHARS_MAX - 'data: ""'.length);
  expect(await read([`data: "${largest}"`, '\n\n'])).toEqual([{ type: 'message', id: undefined, data: largest }]);
  await expect(read([`data: "${largest}"`, 'x'])).rejects.toThrow('an event has more than 4 MiB');
});
