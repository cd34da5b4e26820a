// Turns vitest's result file into counts, and the outcomes of all lanes into the closing table.
import { relative } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import type { Outcome } from './lanes.ts';

export interface TestCounts {
  passed: number;
  failed: number;
  skipped: number;
}

/** A test that failed: its file, its title, and the first lines of what it says. */
export interface Failure {
  file: string;
  title: string;
  lines: string[];
}

/** What of vitest's JSON report is used. */
interface Report {
  numPassedTests: number;
  numFailedTests: number;
  numPendingTests: number;
  numTodoTests: number;
  testResults: FileReport[];
}

interface FileReport {
  name: string;
  status: string;
  /** Why the file could not be run at all. */
  message: string;
  assertionResults: { fullName: string; status: string; failureMessages: string[] }[];
}

const LINES_PER_FAILURE = 12;

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

/** The failed tests of the report, each with the first lines of its message: the end of a long log must name them. */
export function failuresOf(json: string): Failure[] {
  const files = json === '' ? [] : ((JSON.parse(json) as Partial<Report>).testResults ?? []);
  return files.flatMap(({ name, status, message, assertionResults }) => {
    const file = relative(process.cwd(), name);
    const failed = assertionResults.filter((test) => test.status === 'failed');
    if (failed.length === 0 && status === 'failed')
      return [{ file, title: 'the file could not be run', lines: firstLines(message) }];
    return failed.map(({ fullName, failureMessages }) => ({
      file,
      title: fullName,
      lines: firstLines(failureMessages.join('\n')),
    }));
  });
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
  const failures = outcomes.flatMap(({ lane, failures: ofLane = [] }) =>
    ofLane.flatMap(({ file, title, lines }) => ['', `${lane}: ${file}: ${title}`, ...lines.map((line) => `  ${line}`)]),
  );
  const sum = (key: 'passed' | 'failed'): number => outcomes.reduce((total, { tests }) => total + tests[key], 0);
  return ['', '== summary', ...rows, ...failures, '', `${sum('passed')} passed, ${sum('failed')} failed`];
}

function firstLines(message: string): string[] {
  const bare = stripVTControlCharacters(message).trim().split('\n');
  return bare.slice(0, LINES_PER_FAILURE);
}
