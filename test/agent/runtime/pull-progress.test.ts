// The bytes of a pull, added up over the layers from the lines of the engine, and how those lines are read.
import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { PullNews } from '../../../agent/runtime/engine.ts';
import { countBytes, followPull, type PullEvent } from '../../../agent/runtime/docker-answers.ts';
import { isForgotten } from '../../kit/garbage.ts';

/** The news after each of the lines that make any. */
function newsOf(...events: PullEvent[]): PullNews[] {
  const news: PullNews[] = [];
  const count = countBytes((each) => void news.push(each));
  events.forEach(count);
  return news;
}
const downloading = (id: string, current: number, total?: number): PullEvent => ({
  id,
  status: 'Downloading',
  progressDetail: { current, ...(total === undefined ? {} : { total }) },
});

test('the layers of an image add up, and one that has arrived counts whole', () => {
  const news = newsOf(
    downloading('a', 10, 100),
    downloading('b', 5, 50),
    { id: 'a', status: 'Download complete' },
    downloading('b', 50),
    { id: 'b', status: 'Pull complete' },
  );
  expect(news.map((each) => [each.done_bytes, each.total_bytes])).toEqual([
    [10, 100],
    [15, 150],
    [105, 150],
    [150, 150],
    [150, 150],
  ]);
});

test('a layer has never more than its total, and nothing before the engine has told its size', () => {
  expect(newsOf(downloading('a', 120, 100))).toMatchObject([{ done_bytes: 100, total_bytes: 100 }]);
  expect(newsOf(downloading('a', 120))).toMatchObject([{ done_bytes: 0, total_bytes: 0 }]);
  expect(newsOf({ id: 'a', status: 'Downloading' })).toMatchObject([{ done_bytes: 0, total_bytes: 0 }]);
});

test.each([-1, 0.5, 2 ** 53, Number.NaN])('a size of %d does not count, so every report fits the protocol', (size) => {
  const news = newsOf(downloading('a', 10, 100), downloading('a', 20, size), downloading('a', size, 100));
  expect(news.map((each) => [each.done_bytes, each.total_bytes])).toEqual([
    [10, 100],
    [20, 100],
    [0, 100],
  ]);
});

test('layers whose sizes are too large together add up to the largest number that a report can have', () => {
  const most = Number.MAX_SAFE_INTEGER;
  expect(newsOf(downloading('a', most, most), downloading('b', 5, most)).at(-1)).toMatchObject({
    done_bytes: most,
    total_bytes: most,
  });
});

test.each([
  ['Pulling fs layer', true],
  ['Downloading', true],
  ['Waiting', false],
  ['Verifying Checksum', false],
  ['Download complete', false],
  ['Extracting', false],
  ['Pull complete', false],
  ['Already exists', false],
])('while a layer is %j the registry should be sending: %s', (status, isSending) => {
  expect(newsOf({ id: 'a', status })).toMatchObject([{ downloading: isSending }]);
  // Another layer that is asked for is still awaited.
  expect(newsOf({ id: 'b', status: 'Downloading' }, { id: 'a', status }).at(-1)?.downloading).toBe(true);
  expect(newsOf(downloading('a', 1, 2), { id: 'a', status }).at(-1)?.downloading).toBe(isSending);
});

test('other lines of the engine are no news', () => {
  expect(newsOf({ status: 'Downloading' }, { id: 'a', status: 'Retrying in 1 second' }, { id: 'a' })).toEqual([]);
});

test('lines are read wherever the stream cuts them, and none is kept while the pull goes on', async () => {
  const stream = new PassThrough();
  const seen: WeakRef<PullEvent>[] = [];
  const ids: (string | undefined)[] = [];
  const pulled = followPull(stream, (event) => {
    seen.push(new WeakRef(event));
    ids.push(event.id);
  });
  const bytes = Buffer.from('{"id":"é"}\r\n\n{"id":"b"}\n{"id":"c"');
  for (const byte of bytes) stream.write(Buffer.of(byte));
  await expect.poll(() => ids).toEqual(['é', 'b']);
  expect(await isForgotten(seen[0])).toBe(true);
  stream.end();
  await pulled;
});

test('a line that is no JSON or has no end fails the pull, and not the agent', async () => {
  const read = (text: string): Promise<void> => followPull(new PassThrough().end(text), () => undefined);
  await expect(read('{"id":\n')).rejects.toThrow('Unexpected end of JSON input');
  await expect(read('x'.repeat(1024 ** 2 + 1))).rejects.toThrow('a progress line of impossible length');
});
