// Reading a job's events file: whole lines only, garbage skipped and counted, every line at its own offset.
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { nextEvents } from '../../../agent/jobs/events.ts';
import { JOB_EVENT_LINE_BYTES_MAX, JOB_EVENTS_PER_MESSAGE_MAX } from '../../../shared/limits.ts';
import type { SentJobEvent } from '../../../shared/protocol/job.ts';

const file = (text: string, pieceBytes = 7): Readable => {
  const bytes = Buffer.from(text);
  const pieces = Array.from({ length: Math.ceil(bytes.length / pieceBytes) }, (_, i) =>
    bytes.subarray(i * pieceBytes, (i + 1) * pieceBytes),
  );
  return Readable.from(pieces, { objectMode: false });
};
const line = (step: number): string => `${JSON.stringify({ type: 'metrics', step, loss: 1 / (step + 1) })}\n`;

test('whole lines are read, and the last one is left until its end has come', async () => {
  const text = `${line(0)}${line(1)}{"type":"metr`;
  const read = await nextEvents(file(text), 0, false);
  expect(read.events.map(({ event }) => event.step)).toEqual([0, 1]);
  expect(read.end).toBe(line(0).length + line(1).length);
  expect(read.garbage).toEqual([]);
});

test('the last line is read without its end once the program is over', async () => {
  const text = `${line(0)}{"type":"message","message":"bye"}`;
  const read = await nextEvents(file(text), line(0).length, true);
  expect(read.events).toEqual([{ end: text.length, event: { type: 'message', level: 'info', message: 'bye' } }]);
});

test('garbage is skipped, and each line of it is counted once, by its offset', async () => {
  const long = 'x'.repeat(JOB_EVENT_LINE_BYTES_MAX + 1);
  const garbage = ['not json', '[]', '{"type":"unknown"}', '{"type":"metrics","loss":1e400}', long];
  const text = `${garbage.map((each) => `${each}\n`).join('')}\n${line(3)}`;
  const read = await nextEvents(file(text, 1000), 0, false);
  expect(read.events.map(({ event }) => event.step)).toEqual([3]);
  expect(read.garbage).toHaveLength(garbage.length);
  expect(read.end).toBe(text.length);
});

test('a read stops after as many events as a message may have, and the next one goes on there', async () => {
  const text = Array.from({ length: JOB_EVENTS_PER_MESSAGE_MAX + 5 }, (_, step) => line(step)).join('');
  const read = await nextEvents(file(text, 100), 0, false);
  expect(read.events).toHaveLength(JOB_EVENTS_PER_MESSAGE_MAX);
  const rest = await nextEvents(file(text, 100), read.end, false);
  expect(rest.events.map(({ event }) => event.step)).toEqual([100, 101, 102, 103, 104]);
});

test('the same events are found, however the file is cut and wherever the reader begins', async () => {
  const lines = fc.array(fc.oneof(fc.nat(1000).map(line), fc.constantFrom('junk\n', '\n', 'ü{\n')), { maxLength: 30 });
  await fc.assert(
    fc.asyncProperty(lines, fc.integer({ min: 1, max: 50 }), fc.nat(30), async (all, pieceBytes, from) => {
      const text = all.join('');
      const start = Buffer.byteLength(all.slice(0, from).join(''));
      const whole = await nextEvents(file(text, text.length + 1), start, false);
      const cut: SentJobEvent[] = (await nextEvents(file(text, pieceBytes), start, false)).events;
      expect(cut).toEqual(whole.events);
      expect(whole.end).toBe(Buffer.byteLength(text));
    }),
  );
});
