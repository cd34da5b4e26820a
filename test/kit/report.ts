// Turns vitest's result file into counts, and the outcomes of all lanes into the closing table.
import type { Outcome } from './lanes.ts';

export interface TestCounts {
  passed: number;
  failed: number;
  skipped: number;
}

/** What of vitest's JSON report is used. */
interface Report {
  numPassedTests: number;
  numFailedTests: number;
  numPendingTests: number;
  numTodoTests: number;
}

/** Counts from the report's text (empty when vitest wrote none). A run that failed without a failed test counts as one. */
export function countTests(json: string, exitCode: number | null): TestCounts {
  const report: Partial<Report> = json === '' ? {} : (JSON.parse(json) as Report);
  const failed = report.numFailedTests ?? 0;
  return {
    passed: report.numPassedTests ?? 0,
    failed: exitCode === 0 ? failed : Math.max(failed, 1),
    skipped: (report.numPendingTests ?? 0) + (report.numTodoTests ?? 0),
  };
}

/** The table of lanes, and as the last line the sum of all tests: `N passed, N failed`. */
export function summaryLines(outcomes: readonly Outcome[]): string[] {
  const rows = outcomes.map(({ lane, verdict, seconds, tests, note }) => {
    const counted = tests.passed + tests.failed + tests.skipped > 0;
    const counts = counted ? `${tests.passed} passed, ${tests.failed} failed, ${tests.skipped} skipped` : '';
    return [lane.padEnd(10), verdict.padEnd(8), `${seconds.toFixed(1)} s`.padStart(9), counts, note ?? '']
      .join('  ')
      .trimEnd();
  });
  const sum = (key: 'passed' | 'failed'): number => outcomes.reduce((total, { tests }) => total + tests[key], 0);
  return ['', '== summary', ...rows, '', `${sum('passed')} passed, ${sum('failed')} failed`];
}
