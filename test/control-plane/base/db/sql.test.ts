// Statements as templates, and the texts that drivers keep of them.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { join, openTexts, raw, type Sql, sql, templateOf } from '../../../../control-plane/base/db/sql.ts';

const withMarks = (strings: readonly string[]): string => strings.join('?');

/** Also counts how often a text is joined. */
function openCounted(charsMax = 1_000_000): { textOf(statement: Sql): string; joined(): number } {
  let joined = 0;
  const textOf = openTexts((strings) => ((joined += 1), withMarks(strings)), charsMax);
  return { textOf, joined: () => joined };
}

describe('a statement', () => {
  test('has a text with its parts, and the values in the order of the text', () => {
    const isFree = sql`held_by is null and usable = ${1}`;
    const statement = sql`select ${raw('gpu_uuid')} from gpus where id in (${join(['a', 'b'])}) and ${isFree} limit ${5}`;
    expect(withMarks(statement.strings)).toBe(
      'select gpu_uuid from gpus where id in (?,?) and held_by is null and usable = ? limit ?',
    );
    expect(statement.values).toEqual(['a', 'b', 1, 5]);
  });

  test('of values alone is known by its template, and one with parts or without a template is not', () => {
    const make = (id: string): Sql => sql`select ${id}`;
    expect(templateOf(make('a'))).toBe(templateOf(make('b')));
    expect(templateOf(make('a'))).toBeDefined();
    expect(templateOf(sql`select ${raw('1')}`)).toBeUndefined();
    expect(templateOf(raw('select 1'))).toBeUndefined();
  });

  test('takes a list of statements with a separator, and no empty list', () => {
    const union = join([sql`select ${1}`, sql`select ${2}`], ' union all ');
    expect([withMarks(union.strings), union.values]).toEqual(['select ? union all select ?', [1, 2]]);
    expect(() => join([])).toThrow('at least one member');
  });
});

describe('the text of a statement', () => {
  test('is joined once for the same templates, whatever the values', () => {
    const { textOf, joined } = openCounted();
    const make = (id: string): Sql => sql`select a from t where ${sql`id = ${id}`} and b = ${id}`;
    expect([textOf(make('x')), textOf(make('y'))]).toEqual(Array(2).fill('select a from t where id = ? and b = ?'));
    expect(joined()).toBe(1);
  });

  test('differs if a part is a value or a statement, and with the length and the separator of a list', () => {
    const { textOf } = openCounted();
    const two = (first: unknown, second: unknown): Sql => sql`${first} and ${second}`;
    const inner = (part: unknown): Sql => sql`(${part})`;
    const none = sql`x`;
    const statements = [
      two(1, 2),
      two(none, 1),
      two(1, none),
      two(inner(1), 2),
      two(inner(none), 2),
      two(inner(1), none),
      two(inner(none), none),
      two(1, inner(none)),
      two(raw(','), 1),
      ...[2, 3, 4].map((length) => two(join(Array(length).fill(1)), 1)),
      two(join([1, 1], ' or '), 1),
      two(join([none, 1]), 1),
    ];
    const texts = statements.map((statement) => withMarks(statement.strings));
    expect(new Set(texts)).toHaveLength(statements.length);
    expect(statements.map(textOf)).toEqual(texts);
    expect(statements.toReversed().map(textOf)).toEqual(texts.toReversed());
  });

  test('is the joined text for any nesting, in any order, also after the kept texts were dropped', () => {
    const templates = [0, 1, 2, 3].map((parts) => Object.assign(namesOf(parts), { raw: namesOf(parts) }));
    const { statement } = fc.letrec<{ statement: Sql; part: unknown }>((tie) => ({
      part: fc.oneof({ depthSize: 'small' }, fc.nat(9), tie('statement')),
      statement: fc.oneof(
        { depthSize: 'small' },
        fc.constantFrom('a', 'b', ',').map(raw),
        fc
          .tuple(fc.array(tie('part'), { minLength: 1, maxLength: 3 }), fc.constantFrom(',', 'a'))
          .map(([parts, by]) => join(parts, by)),
        fc.array(tie('part'), { maxLength: 3 }).map((parts) => sql(templates[parts.length] ?? never(), ...parts)),
      ),
    }));
    fc.assert(
      fc.property(fc.array(statement, { maxLength: 30 }), fc.constantFrom(500, 1_000_000), (statements, charsMax) => {
        const { textOf } = openCounted(charsMax);
        for (const each of [...statements, ...statements]) expect(textOf(each)).toBe(withMarks(each.strings));
      }),
      { numRuns: 300, seed: 7 },
    );
  });

  test('of lists of all lengths takes no more memory than allowed', () => {
    const { textOf, joined } = openCounted(20_000);
    const make = (length: number): Sql => sql`select a from t where id in (${join(Array(length).fill(1))})`;
    for (let length = 1; length <= 500; length += 1) textOf(make(length));
    expect(joined()).toBe(500);
    textOf(make(1));
    expect(joined()).toBe(501);
  });
});

function namesOf(parts: number): string[] {
  return Array.from({ length: parts + 1 }, (_, i) => `<${parts}.${i}>`);
}

function never(): never {
  throw new Error('there is no such template');
}
