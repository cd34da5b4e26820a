// Statements that a driver keeps prepared: the ones that were used last, up to a limit.
import { beforeEach, describe, expect, test } from 'vitest';
import { keepPrepared } from '../../../../control-plane/base/db/statements.ts';

/** A generation has 4 characters. */
const CHARS_MAX = 8;
let prepared: string[];
let use: (text: string) => object;
beforeEach(() => {
  prepared = [];
  use = keepPrepared((text) => ({ count: prepared.push(text) }), CHARS_MAX);
});
const useAll = (texts: string): void => {
  for (const text of texts) use(text);
};

describe('statements', () => {
  test('are prepared once while all of them have half of the characters', () => {
    const first = use('a');
    useAll('bcdabcd');
    expect(use('a')).toBe(first);
    expect(prepared).toEqual(['a', 'b', 'c', 'd']);
  });

  test('are dropped when twice as many characters were used since', () => {
    // The fifth and the ninth character begin a generation.
    useAll('abcdefgh');
    expect(prepared.join('')).toBe('abcdefgh');
    useAll('ia');
    expect(prepared.join('')).toBe('abcdefghia');
  });

  test('of the generation before are not prepared again', () => {
    useAll('abcdea');
    expect(prepared.join('')).toBe('abcde');
  });

  test('that are used again and again stay, however many others come', () => {
    const others = Array.from({ length: 1_000 }, (_, i) => String.fromCodePoint(0x4e00 + i));
    for (const other of others) useAll(`x${other}`);
    expect(prepared.filter((text) => text === 'x')).toHaveLength(1);
    expect(prepared).toHaveLength(1_001);
  });

  test('count by their length: one of half the characters is kept, and a longer one is not and drops nothing', () => {
    use('a');
    use('bbbbb');
    use('bbbbb');
    expect(prepared).toEqual(['a', 'bbbbb', 'bbbbb']);
    use('cccc');
    use('cccc');
    use('a');
    expect(prepared.slice(3)).toEqual(['cccc']);
  });
});
