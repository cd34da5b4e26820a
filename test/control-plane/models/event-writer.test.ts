// The stream of events to a caller has pings while no event comes. They do not pile up if the caller does not read.
import { getEventListeners, once } from 'node:events';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { finished } from 'node:stream/promises';
import { expect, test, vi } from 'vitest';
import { eventOf, openEventWriter } from '../../../control-plane/models/gateway/event-writer.ts';
import { STREAM_STALLED_MS_MAX, STREAM_PING_MS } from '../../../shared/limits.ts';
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
  await clock.advance(3 * STREAM_PING_MS);
  const read: string[] = [];
  writer.stream.on('data', (piece) => read.push(String(piece)));
  await sent;
  writer.end();
  await once(writer.stream, 'end');
  expect(read.join('')).toMatch(/^data: x+\n\n$/);
});

test('a caller that takes nothing for a minute is cut off, and one that reads in between is not', async () => {
  const { clock, writer } = open();
  const { signal } = new AbortController();
  const big = eventOf('x'.repeat(1_000_000));
  void writer.send(big, signal);
  await clock.advance(STREAM_STALLED_MS_MAX - 1);
  writer.stream.read();
  void writer.send(big, signal);
  await clock.advance(STREAM_STALLED_MS_MAX - 1);
  expect(writer.stream.destroyed).toBe(false);
  // The time is checked with the pings.
  await clock.advance(STREAM_PING_MS);
  expect(writer.stream.destroyed).toBe(true);
  writer.end();
  expect(clock.waiting()).toBe(0);
});

test('the last events are passed on together with the end of the response', async () => {
  const { writer } = open();
  const pieces: string[] = [];
  const response = new Writable({ write: (piece, _encoding, done) => (pieces.push(String(piece)), done()) });
  const end = vi.spyOn(response, 'end');
  writer.stream.pipe(response);
  await writer.send(eventOf('first'), AbortSignal.timeout(60_000));
  writer.end(eventOf('last'));
  await finished(response);
  expect(pieces).toEqual([eventOf('first'), eventOf('last')]);
  expect(end.mock.calls).toEqual([[eventOf('last')]]);
});

test('a stream that has ended before somebody reads it has its last events too', async () => {
  const { writer } = open();
  writer.end(eventOf('only'));
  expect(await text(writer.stream)).toBe(eventOf('only'));
});

test('an event that is sent waits for a caller that does not read, until it reads or leaves', async () => {
  const { writer } = open();
  const leave = new AbortController();
  const small = writer.send('data: a\n\n', leave.signal);
  expect(small).toBeUndefined();
  let waits = 0;
  const big = (): void => {
    void writer.send(eventOf('x'.repeat(1_000_000)), leave.signal)?.then(() => (waits += 1));
  };
  big();
  await new Promise(setImmediate);
  expect(waits).toBe(0);
  writer.stream.read();
  await new Promise(setImmediate);
  expect(waits).toBe(1);
  // A long stream waits thousands of times, and leaves nothing behind on its signal.
  expect(getEventListeners(leave.signal, 'abort')).toEqual([]);
  big();
  leave.abort();
  await new Promise(setImmediate);
  expect(waits).toBe(2);
  // A caller that has left is waited for no more.
  expect(writer.send(eventOf('x'.repeat(1_000_000)), leave.signal)).toBeUndefined();
});

test('nothing is sent without an event, after the end, or to a connection that is gone', () => {
  const { signal } = new AbortController();
  const { writer } = open();
  expect(writer.send('', signal)).toBeUndefined();
  expect(writer.stream.read()).toBeNull();
  writer.end();
  writer.end();
  expect(writer.send('data: late\n\n', signal)).toBeUndefined();
  expect(writer.stream.read()).toBeNull();
  const gone = open().writer;
  gone.stream.destroy();
  expect(gone.send(eventOf('x'.repeat(1_000_000)), signal)).toBeUndefined();
  expect(eventOf('[DONE]')).toBe('data: [DONE]\n\n');
});

test('a caller that has not read the rest within a minute after the end is cut off', async () => {
  const { clock, writer } = open();
  await writer.send('data: a\n\n', new AbortController().signal);
  writer.end();
  await clock.advance(59_999);
  expect(writer.stream.destroyed).toBe(false);
  await clock.advance(1);
  expect(writer.stream.destroyed).toBe(true);
  expect(clock.waiting()).toBe(0);
});

test('a caller that has read all leaves no timer behind', async () => {
  const { clock, writer } = open();
  await writer.send('data: a\n\n', new AbortController().signal);
  writer.end();
  writer.stream.resume();
  await once(writer.stream, 'close');
  expect(clock.waiting()).toBe(0);
});
