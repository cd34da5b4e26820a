// The log of a container: the engine's frames, however they are cut, become one JSON line each.
import { once } from 'node:events';
import { duplexPair, PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { logLines, sendLines } from '../../../agent/runtime/docker-answers.ts';

function frame(kind: number, text: string): Buffer {
  const header = Buffer.alloc(8);
  header[0] = kind;
  header.writeUInt32BE(Buffer.byteLength(text), 4);
  return Buffer.concat([header, Buffer.from(text)]);
}
async function linesOf(...chunks: Buffer[]): Promise<unknown[]> {
  const lines: unknown[] = [];
  for await (const line of logLines(Readable.from(chunks))) {
    expect(line.endsWith('\n')).toBe(true);
    lines.push(JSON.parse(line));
  }
  return lines;
}

const FRAMES = Buffer.concat([frame(1, 'T1 out\n'), frame(2, 'T2 err \r\n'), frame(1, 'T3 \n'), frame(1, 'T4 a b')]);
const LINES = [
  { at: 'T1', stream: 'stdout', line: 'out' },
  { at: 'T2', stream: 'stderr', line: 'err ' },
  { at: 'T3', stream: 'stdout', line: '' },
  { at: 'T4', stream: 'stdout', line: 'a b' },
];

test.each([1, 3, 8, 9, 1_000])('frames that arrive in pieces of %d bytes are whole lines', async (size) => {
  const pieces = Array.from({ length: Math.ceil(FRAMES.length / size) }, (_, i) =>
    FRAMES.subarray(i * size, (i + 1) * size),
  );
  expect(await linesOf(...pieces)).toEqual(LINES);
});

test('a frame without its end is left out', async () => {
  expect(await linesOf(frame(1, 'T1 out\n'), frame(1, 'T2 cut').subarray(0, 10))).toEqual(LINES.slice(0, 1));
});

test('a frame of up to a MiB is read, and a longer one is a fault', async () => {
  const header = (length: number): Buffer => {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt32BE(length, 4);
    return bytes;
  };
  expect(await linesOf(header(1024 ** 2))).toEqual([]);
  await expect(linesOf(header(1024 ** 2 + 1))).rejects.toThrow('impossible length');
});

test('a stream has all lines of a log, and ends with it', async () => {
  const [near, far] = duplexPair();
  sendLines(Readable.from([FRAMES]), near);
  far.end();
  expect(await text(far)).toBe(LINES.map((line) => `${JSON.stringify(line)}\n`).join(''));
});

test.each([0, 1])(
  'the log of a silent container is closed when its reader disconnects after %d lines',
  async (lines) => {
    const [near, far] = duplexPair();
    const raw = new PassThrough();
    sendLines(raw, near);
    if (lines > 0) {
      raw.write(frame(1, 'T1 out\n'));
      await once(far, 'data');
    }
    const closed = once(raw, 'close');
    near.destroy();
    await closed;
  },
);
