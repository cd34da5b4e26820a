// JSON of strangers: how many values and levels a text may have, counted before it is parsed.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { JSON_LEVELS_MAX, parseJson } from '../../shared/json.ts';

const VALUES_MAX = 24_000;
const nested = (levels: number, inner = ''): string => '['.repeat(levels) + inner + ']'.repeat(levels);
const objects = (levels: number): string => '{"a":'.repeat(levels) + '0' + '}'.repeat(levels);

describe('a text', () => {
  test.each([
    ['arrays', nested],
    ['objects', objects],
    ['arrays in a long text', (levels: number) => nested(levels, `"${'x'.repeat(100_000)}"`)],
  ])('of %s may have a hundred levels and no more', (_what, make) => {
    expect(parseJson(make(JSON_LEVELS_MAX), VALUES_MAX)).toEqual(JSON.parse(make(JSON_LEVELS_MAX)));
    expect(() => parseJson(make(JSON_LEVELS_MAX + 1), VALUES_MAX)).toThrow(
      'more than 100 levels of arrays and objects',
    );
    expect(() => parseJson(make(30_000), VALUES_MAX)).toThrow(/more than (100 levels|24000 names)/);
  });

  test('may have many arrays beside each other, and any brackets in a string', () => {
    const beside = `[${Array.from({ length: 1_000 }, () => '[{}]').join()}]`;
    expect(parseJson(beside, VALUES_MAX)).toHaveLength(1_000);
    const quoted = JSON.stringify({ text: `\\"${'['.repeat(1_000)}` });
    expect(parseJson(quoted, VALUES_MAX)).toEqual({ text: `\\"${'['.repeat(1_000)}` });
  });

  test('is read past any string, however it is escaped', () => {
    const piece = fc.constantFrom('\\', '"', '[', '{', ',', 'x', '\u2028');
    fc.assert(
      fc.property(fc.array(fc.array(piece, { maxLength: 12 })), (texts) => {
        const value = [...texts.map((pieces) => pieces.join('')), '['.repeat(1_000)];
        expect(parseJson(JSON.stringify(value), VALUES_MAX)).toEqual(value);
      }),
      { seed: 7, numRuns: 300 },
    );
  });

  test('that is not JSON is refused as such', () => {
    expect(() => parseJson(']'.repeat(1_000), VALUES_MAX)).toThrow(SyntaxError);
    expect(() => parseJson('[', VALUES_MAX)).toThrow(SyntaxError);
  });
});
