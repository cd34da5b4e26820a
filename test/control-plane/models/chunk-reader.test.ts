// The chunks of one stream are read without parsing what they have in common, and exactly as each would be read alone.
import { describe, expect, test, vi } from 'vitest';
import { readChunk } from '../../../control-plane/models/gateway/chat-wire.ts';
import { openChunkReader } from '../../../control-plane/models/gateway/chunk-reader.ts';
import { say, stop, usage } from '../../kit/stream-chunks.ts';

const saying = (content: string): string => JSON.stringify(say(content));
/** What the reader of one stream says of each, and what each says alone. */
function both(chunks: readonly string[]): { inStream: unknown[]; alone: unknown[] } {
  const read = openChunkReader();
  return { inStream: chunks.map(read), alone: chunks.map(readChunk) };
}
/** How often JSON is parsed for the last of these chunks. */
function parsesOfLast(chunks: readonly string[]): number {
  const read = openChunkReader();
  for (const chunk of chunks.slice(0, -1)) read(chunk);
  const parse = vi.spyOn(JSON, 'parse');
  read(chunks.at(-1) ?? '');
  const parses = parse.mock.calls.length;
  parse.mockRestore();
  return parses;
}

test('a chunk that differs from one before it only in its text is not parsed', () => {
  expect(parsesOfLast([saying('Hello')])).toBe(2);
  expect(parsesOfLast([saying('Hello'), saying(' there')])).toBe(0);
  expect(parsesOfLast([saying('Hello'), JSON.stringify(stop()), saying(' there')])).toBe(0);
});

const FRAME = saying('text').split('"text"');
const framed = (literal: string): string => FRAME.join(literal);

describe('after a chunk whose frame is known', () => {
  test.each([
    ['no text', '""'],
    ['letters of all kinds', '"né 你 🙂 \u2028 \u007f"'],
    ['an escaped quote', String.raw`"a \"quote\""`],
    ['an escaped letter', String.raw`"\u0041"`],
    ['an escape that is none', String.raw`"\x"`],
    ['half a letter', String.raw`"\ud83d"`],
    ['a line end within its text', '"a\nb"'],
    ['a tab within its text', '"a\tb"'],
    ['no quotes', 'text'],
    ['one quote', '"'],
    ['null as text', 'null'],
    ['a number as text', '1'],
    ['an object as text', '{"a":"b"}'],
    ['an end beside its text', '"x"},"finish_reason":"stop","y":{"z":"z"'],
    ['a second text', '"x","content":"y"'],
    ['a thought beside its text', '"x","reasoning":"y"'],
  ])('one with %s in the same frame is read as alone', (_what, literal) => {
    const { inStream, alone } = both([saying('Hello'), framed(literal), saying('!')]);
    expect(inStream).toEqual(alone);
  });

  test.each([
    ['the end', JSON.stringify(stop())],
    ['usage', JSON.stringify(usage(6, 3))],
    ['a text with usage', JSON.stringify(say('x', { usage: { prompt_tokens: 6, completion_tokens: 2 } }))],
    ['a text of another second', JSON.stringify(say('x', { created: 2 }))],
    ['an error', JSON.stringify({ error: { message: 'no' } })],
    ['a part of a chunk', saying('x').slice(0, -1)],
    ['what is before its text', FRAME[0] ?? ''],
    ['less than the frame', '"'],
    ['nothing', ''],
  ])('%s is read as alone', (_what, chunk) => {
    const { inStream, alone } = both([saying('Hello'), chunk, saying('!')]);
    expect(inStream).toEqual(alone);
  });
});

describe('a frame is not kept', () => {
  const named = (id: string, content: string, more: object = {}): string =>
    JSON.stringify({ id, choices: [{ delta: { content, ...more } }] });

  test('around a text that occurs elsewhere in its chunk first', () => {
    const { inStream, alone } = both([named('x', 'x'), named('y', 'x'), named('x', 'z')]);
    expect(inStream).toEqual(alone);
  });

  test('around the first of two texts, of which the last one counts', () => {
    const twice = (first: string, last: string): string =>
      `{"choices":[{"delta":{"content":${first},"content":${last}}}]}`;
    const { inStream, alone } = both([twice('"x"', '"x"'), twice('"y"', '"x"'), twice('"x"', '"z"')]);
    expect(inStream).toEqual(alone);
  });

  test.each([
    ['has a thought', named('a', 'x', { reasoning_content: 'h' }), named('a', 'y', { reasoning_content: 'h' })],
    ['counts', JSON.stringify(say('x', { usage: { prompt_tokens: 6 } })), saying('y')],
    ['escapes its text', framed(String.raw`"\u00e9"`), framed('"e"')],
  ])('of a chunk that %s', (_what, first, second) => {
    const { inStream, alone } = both([first, second]);
    expect(inStream).toEqual(alone);
  });

  test('of a server whose chunks all differ, so that each is parsed once after a few', () => {
    const chunks = Array.from({ length: 10 }, (_, i) => JSON.stringify(say(`text ${i}`, { created: i })));
    expect(parsesOfLast(chunks)).toBe(1);
    expect(both(chunks).inStream).toEqual(both(chunks).alone);
  });

  test('for ever: a server whose chunks change every second has another frame each time', () => {
    const second = (created: number): string[] => ['a', 'b'].map((text) => JSON.stringify(say(text, { created })));
    const chunks = Array.from({ length: 10 }, (_, i) => second(i)).flat();
    expect(parsesOfLast(chunks)).toBe(0);
  });
});
