// The check of a training file: what it finds, however the file is cut into pieces, and how much memory it uses.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { openCheck } from '../../../control-plane/models/files/check.ts';
import { TrainingReport } from '../../../shared/api/file.ts';
import { TRAINING_LINE_BYTES_MAX } from '../../../shared/limits.ts';
import { trainingLines } from '../../contract/forms.ts';
import { collectGarbage } from '../../kit/garbage.ts';

function checked(...pieces: (string | Uint8Array)[]): TrainingReport {
  const check = openCheck();
  for (const piece of pieces) check.take(typeof piece === 'string' ? Buffer.from(piece) : piece);
  return TrainingReport.parse(check.report());
}
const GOOD = trainingLines(10);
const user = { role: 'user', content: 'hi' };
const said = { role: 'assistant', content: 'ho' };
const example = (...messages: unknown[]): string => JSON.stringify({ messages });

test('a good file is valid, with its examples and the tokens of their messages', () => {
  const line = example({ role: 'system', content: 'four' }, { role: 'user', content: 'eight888' }, said);
  expect(checked(`${line}\n`.repeat(12))).toEqual({
    valid: true,
    examples: 12,
    estimated_tokens: 12 * (1 + 2 + 1),
    problems_found: 0,
    problems: [],
    repeated_examples: 11,
  });
});

describe('a line is refused', () => {
  test.each<[string, string]>([
    ['not_json', '{"messages": ['],
    ['not_json', 'hello'],
    ['not_an_object', '[]'],
    ['not_an_object', 'null'],
    ['not_an_object', '"text"'],
    ['missing_messages', '{}'],
    ['missing_messages', '{"messages": []}'],
    ['missing_messages', '{"messages": "text"}'],
    ['missing_messages', '{"prompt": "a", "completion": "b"}'],
    ['unrecognized_key', JSON.stringify({ messages: [user, said], tools: [] })],
    ['message_not_an_object', example(user, 'ho')],
    ['message_not_an_object', example(user, null)],
    ['message_missing_key', example({ content: 'hi' }, said)],
    ['message_missing_key', example(user, { role: 'assistant' })],
    ['message_unrecognized_key', example(user, { ...said, tool_calls: [] })],
    ['unrecognized_role', example({ role: 'tool', content: 'x' }, said)],
    ['unrecognized_role', example({ role: 3, content: 'x' }, said)],
    ['missing_content', example(user, { ...said, content: '' })],
    ['missing_content', example(user, { ...said, content: ' \n' })],
    ['missing_content', example(user, { ...said, content: null })],
    ['missing_content', example(user, { ...said, content: [{ type: 'text', text: 'x' }] })],
    ['not_utf8', example(user, { ...said, content: `cut in two: ${'\ud83d'}` })],
    ['not_utf8', example({ ...user, name: '\udc00' }, said)],
    ['invalid_weight', example(user, { ...said, weight: 2 })],
    ['invalid_weight', example(user, { ...said, weight: '1' })],
    ['invalid_weight', example({ ...user, weight: 1 }, said)],
    ['example_missing_assistant_message', example(user, user)],
    ['last_message_not_assistant', example(user, said, user)],
  ])('as %s: %s', (rule, line) => {
    const report = checked(GOOD, `${line}\n`, GOOD);
    expect(report).toMatchObject({ valid: false, examples: 20, problems_found: 1 });
    expect(report.problems).toEqual([{ line: 11, rule, message: expect.stringMatching(/\.$/) as string }]);
  });

  test('that is not UTF-8', () => {
    const report = checked(GOOD, new Uint8Array([0x22, 0xff, 0x22, 0x0a]));
    expect(report.problems).toMatchObject([{ line: 11, rule: 'not_utf8' }]);
  });

  test('that is longer than a mebibyte; at the bound it is accepted', () => {
    const padded = (bytes: number): string => {
      const bare = example(user, { ...said, content: '' }).length;
      return example(user, { ...said, content: 'x'.repeat(bytes - bare) });
    };
    expect(checked(GOOD, padded(TRAINING_LINE_BYTES_MAX)).problems).toEqual([]);
    const report = checked(padded(TRAINING_LINE_BYTES_MAX + 1), '\n', GOOD);
    expect(report).toMatchObject({ examples: 10, problems: [{ line: 1, rule: 'line_too_long' }] });
  });

  test('that is empty, unless nothing follows', () => {
    expect(checked(GOOD, '\n\r\n \n').problems).toEqual([]);
    expect(checked(GOOD, '\n\r\n', GOOD)).toMatchObject({
      examples: 20,
      problems: [
        { line: 11, rule: 'empty_line' },
        { line: 12, rule: 'empty_line' },
      ],
    });
  });

  test('names in it are shown in part, whatever they hold', () => {
    const name = `"\n${'x'.repeat(10_000)}`;
    const [problem] = checked(JSON.stringify({ messages: [user, said], [name]: 1 }), GOOD).problems;
    expect(problem?.message.length).toBeLessThan(200);
    expect(problem?.message).not.toContain('\n');
  });
});

test('weights 0 and 1 of the assistant, and names, are allowed', () => {
  const line = example({ ...user, name: 'Ann' }, { ...said, weight: 0 }, user, { ...said, weight: 1 });
  expect(checked(GOOD, line).problems).toEqual([]);
});

test('a byte order mark and CRLF are accepted, and the last line needs no line end', () => {
  const text = `\uFEFF${GOOD.replaceAll('\n', '\r\n').trimEnd()}`;
  expect(checked(text)).toMatchObject({ valid: true, examples: 10 });
  expect(checked(GOOD, text).problems).toMatchObject([{ line: 11, rule: 'not_json' }]);
});

test('ten examples are enough, nine are too few, and bad ones do not count', () => {
  expect(checked(trainingLines(10)).valid).toBe(true);
  const few = { line: null, rule: 'too_few_examples' };
  const nine = checked(trainingLines(9));
  expect(nine).toMatchObject({ valid: false, examples: 9, problems: [few] });
  expect(nine.problems[0]?.message).toContain('9 valid');
  expect(checked(trainingLines(9), '{}\n')).toMatchObject({ examples: 9, problems: [{ line: 10 }, few] });
  expect(checked('')).toMatchObject({ examples: 0, problems: [few] });
});

test('the first twenty problems are listed, all are counted', () => {
  const report = checked(GOOD, '{}\n'.repeat(20));
  expect([report.problems.length, report.problems_found, report.problems.at(-1)?.line]).toEqual([20, 20, 30]);
  const more = checked(GOOD, '{}\n'.repeat(21));
  expect([more.problems.length, more.problems_found, more.problems.at(-1)?.line]).toEqual([20, 21, 30]);
});

test('wherever the pieces are cut, the report is the same', () => {
  const text = Buffer.from(
    `\uFEFF${GOOD}{"messages": [{"role": "user", "content": "\u{1F600}\u00e9"}]}\r\n\n{}\n${'x'.repeat(300)}\n${GOOD}`,
  );
  const whole = checked(text);
  expect(whole.problems.map(({ line, rule }) => [line, rule])).toEqual([
    [11, 'example_missing_assistant_message'],
    [12, 'empty_line'],
    [13, 'missing_messages'],
    [14, 'not_json'],
  ]);
  fc.assert(
    fc.property(fc.array(fc.nat({ max: text.length }), { maxLength: 40 }), (cuts) => {
      const at = [0, ...cuts.toSorted((a, b) => a - b), text.length];
      const pieces = at.slice(1).map((end, i) => text.subarray(at[i], end));
      expect(checked(...pieces)).toEqual(whole);
    }),
    { seed: 7, numRuns: 60 },
  );
});

test('no input makes the check itself fail', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.uint8Array(),
          fc.json().map((text) => Buffer.from(`${text}\n`)),
        ),
      ),
      (pieces) => {
        const report = checked(...pieces);
        expect(report.valid).toBe(false);
      },
    ),
    { seed: 8, numRuns: 300 },
  );
});

test('examples that are equal to an earlier one are counted among the first hundred thousand', () => {
  const lines = trainingLines(100_000).split('\n').slice(0, -1);
  const [first = '', last = ''] = [lines[0], lines.pop()];
  const most = `${lines.join('\n')}\n`;
  expect(checked(most, `${first}\n`)).toMatchObject({ examples: 100_000, repeated_examples: 1 });
  expect(checked(most, `${last}\n${first}\n`)).toMatchObject({ examples: 100_001, repeated_examples: 0 });
});

test('after ten thousand problems the check stops', () => {
  expect(checked('{}\n'.repeat(9_999), GOOD)).toMatchObject({ examples: 10, problems_found: 9_999 });
  const hopeless = checked('{}\n'.repeat(10_000), GOOD);
  expect(hopeless).toMatchObject({ valid: false, examples: 0, problems_found: 10_001 });
  expect(checked(GOOD, '\n'.repeat(10_001), GOOD)).toMatchObject({ examples: 11, problems_found: 10_000 });
});

test('it stores only the beginning of a line without an end', () => {
  const check = openCheck();
  const piece = Buffer.alloc(1024 * 1024, 'x');
  const before = process.memoryUsage().arrayBuffers;
  for (let i = 0; i < 64; i += 1) check.take(Buffer.from(piece));
  collectGarbage();
  collectGarbage();
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(8 * 1024 * 1024);
  expect(check.report().problems).toMatchObject([{ line: 1, rule: 'line_too_long' }, { line: null }]);
});
