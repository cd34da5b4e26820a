// Server-sent events as servers write them: whatever their line ends are, and wherever the connection splits them.
import { describe, expect, test } from 'vitest';
import { BadEvents, eventData } from '../../../control-plane/models/gateway/chat-wire.ts';
import { STREAM_EVENT_BYTES_MAX } from '../../../shared/limits.ts';

/** The data of the events of each piece that ends one. */
async function read(...pieces: string[]): Promise<string[][]> {
  async function* body(): AsyncGenerator<Buffer> {
    for (const piece of pieces) yield Buffer.from(piece, 'latin1');
  }
  const groups: string[][] = [];
  for await (const group of eventData(body())) groups.push(group);
  return groups;
}
/** UTF-8, to be cut between its bytes. */
const bytes = (text: string): string => Buffer.from(text).toString('latin1');

describe('an event', () => {
  test.each<[string, string, string[]]>([
    ['with a line of data', 'data: a\n\n', ['a']],
    ['without the space', 'data:a\n\n', ['a']],
    ['with two spaces, of which one belongs to it', 'data:  a\n\n', [' a']],
    ['with two lines of data', 'data: a\ndata:b\n\n', ['a\nb']],
    ['with other fields', 'event: x\nid: 7\ndata: a\nretry: 5\n\n', ['a']],
    ['with a comment before it', ': ping\ndata: a\n\n', ['a']],
    ['that is a comment alone', ': ping\n\n', []],
    ['without a text', 'data: \n\n', []],
    ['with the line ends of Windows', 'data: a\r\n\r\ndata: b\r\n\r\n', ['a', 'b']],
    ['with two lines and the line ends of Windows', 'data: a\r\ndata: b\r\n\r\n', ['a\nb']],
    ['with both kinds of line ends', 'data: a\r\n\ndata: b\n\r\n', ['a', 'b']],
    ['that ends within a line end of Windows', 'data: a\r\n\r\n\r\ndata: b\n\r\n\r', ['a', 'b']],
    ['without its end', 'data: a\n\ndata: b\n', ['a']],
  ])('%s is read', async (_what, text, data) => {
    expect((await read(text)).flat()).toEqual(data);
    // The same, byte by byte.
    expect((await read(...text.split(''))).flat()).toEqual(data);
  });

  test('comes with the other events that its piece ends, and a piece that ends none yields nothing', async () => {
    expect(await read('data: a\n\ndata: b\n\ndata: c', '\n', '\n', ': ping\n\n', 'data: d\n\n')).toEqual([
      ['a', 'b'],
      ['c'],
      ['d'],
    ]);
  });

  test('may be split within a character', async () => {
    const text = bytes('data: ä€😀\n\n');
    for (let at = 1; at < text.length; at += 1)
      expect(await read(text.slice(0, at), text.slice(at))).toEqual([['ä€😀']]);
  });

  test('may have as many bytes as the limit allows, and no more', async () => {
    const whole = `data: ${'x'.repeat(STREAM_EVENT_BYTES_MAX - 6)}`;
    expect((await read(whole, '\n\n')).flat()).toHaveLength(1);
    await expect(read(`${whole}x`, '\n\n')).rejects.toThrow(BadEvents);
  });
});
