// The stream of events to a caller has pings while no event comes. They do not pile up if the caller does not read.
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { eventOf, openEventWriter } from '../../../control-plane/models/gateway/event-writer.ts';
import { STREAM_PING_MS } from '../../../shared/limits.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const open = () => {
  const clock = virtualClock();
  return { clock, writer: openEventWriter({ clock }) };
};

test('a caller receives a ping for each period without an event, and none after the end', async () => {
  const { clock, writer } = open();
  await clock.advance(STREAM_PING_MS - 1);
  await writer.send(eventOf({ a: 1 }), AbortSignal.timeout(60_000));
  await clock.advance(STREAM_PING_MS - 1);
  expect(String(writer.stream.read())).toBe('data: {"a":1}\n\n');
  await clock.advance(2 * STREAM_PING_MS);
  expect(String(writer.stream.read())).toBe(': ping\n: ping\n');
  writer.end();
  await clock.advance(STREAM_PING_MS);
  expect(writer.stream.read()).toBeNull();
});

test('a caller who does not read receives no pings behind the events that wait for it', async () => {
  const { clock, writer } = open();
  const sent = writer.send(eventOf('x'.repeat(1_000_000)), AbortSignal.timeout(60_000));
  await clock.advance(10 * STREAM_PING_MS);
  const read: string[] = [];
  writer.stream.on('data', (piece) => read.push(String(piece)));
  await sent;
  writer.end();
  await once(writer.stream, 'end');
  expect(read.join('')).toMatch(/^data: x+\n\n$/);
});
