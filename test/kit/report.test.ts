// The closing lines of `npm test`: counts from vitest's report, a row for each lane, the sum last.
import { expect, test } from 'vitest';
import { countTests, summaryLines } from './report.ts';

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

test('the last line is the sum of all lanes', () => {
  const none = { passed: 0, failed: 0, skipped: 0 };
  expect(
    summaryLines([
      { lane: 'types', verdict: 'passed', seconds: 1.25, tests: none },
      { lane: 'unit', verdict: 'failed', seconds: 2, tests: { passed: 5, failed: 2, skipped: 0 } },
      { lane: 'docker', verdict: 'skipped', seconds: 0, tests: none, note: 'it needs Linux and root' },
    ]),
  ).toEqual([
    '',
    '== summary',
    'types       passed        1.3 s',
    'unit        failed        2.0 s  5 passed, 2 failed, 0 skipped',
    'docker      skipped       0.0 s    it needs Linux and root',
    '',
    '5 passed, 2 failed',
  ]);
});
