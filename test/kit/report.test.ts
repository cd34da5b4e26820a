// The closing lines of `npm test`: counts from vitest's report, a row for each lane, the sum last.
import { expect, test } from 'vitest';
import { countTests, failuresOf, summaryLines } from './report.ts';

const REPORT = JSON.stringify({ numPassedTests: 5, numFailedTests: 2, numPendingTests: 1, numTodoTests: 1 });

test('counts come from the report', () => {
  expect(countTests(REPORT, 1)).toEqual({ passed: 5, failed: 2, skipped: 2 });
});

test('a run that fails without a failed test, or without a report, counts one failure', () => {
  expect(countTests(JSON.stringify({ numPassedTests: 5, numFailedTests: 0 }), 1)).toEqual({
    passed: 5,
    failed: 1,
    skipped: 0,
  });
  expect(countTests('', null)).toEqual({ passed: 0, failed: 1, skipped: 0 });
});

test('a failure has its file, its title and the first lines of its message without colours', () => {
  const long = Array.from({ length: 40 }, (_, index) => `line ${index}`).join('\n');
  const report = {
    testResults: [
      {
        name: 'a.test.ts',
        status: 'failed',
        message: '',
        assertionResults: [
          { fullName: 'adds', status: 'failed', failureMessages: ['\u001B[31mno\u001B[39m', long] },
          { fullName: 'takes away', status: 'passed', failureMessages: [] },
        ],
      },
      { name: 'b.test.ts', status: 'failed', message: 'SyntaxError', assertionResults: [] },
    ],
  };
  const [adds, broken, ...others] = failuresOf(JSON.stringify(report));
  expect(adds?.lines.slice(0, 2)).toEqual(['no', 'line 0']);
  expect(adds?.lines).toHaveLength(12);
  expect(broken).toEqual({ file: 'b.test.ts', title: 'the file could not be run', lines: ['SyntaxError'] });
  expect(others).toEqual([]);
  expect(failuresOf('')).toEqual([]);
});

test('the last line is the sum of all lanes', () => {
  const none = { passed: 0, failed: 0, skipped: 0 };
  expect(
    summaryLines([
      { lane: 'types', verdict: 'passed', seconds: 1.25, tests: none },
      {
        lane: 'unit',
        verdict: 'failed',
        seconds: 2,
        tests: { passed: 5, failed: 2, skipped: 0 },
        failures: [{ file: 'a.test.ts', title: 'adds', lines: ['expected 1 to be 2'] }],
      },
      { lane: 'docker', verdict: 'skipped', seconds: 0, tests: none, note: 'it needs Linux and root' },
    ]),
  ).toEqual([
    '',
    '== summary',
    'types       passed        1.3 s',
    'unit        failed        2.0 s  5 passed, 2 failed, 0 skipped',
    'docker      skipped       0.0 s    it needs Linux and root',
    '',
    'unit: a.test.ts: adds',
    '  expected 1 to be 2',
    '',
    '5 passed, 2 failed',
  ]);
});
