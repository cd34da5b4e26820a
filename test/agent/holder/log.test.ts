// The log of a holder: its newest lines, within a bound, whatever becomes of the disk.
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { boundedLog } from '../../../agent/holder/main.ts';

const dir = mkdtempSync(join(tmpdir(), 'holder-log-'));
afterAll(() => rmSync(dir, { recursive: true }));

test('the log file is never larger than a megabyte, and has the newest lines', () => {
  const file = join(dir, 'log');
  const fd = openSync(file, 'a');
  const log = boundedLog(fd);
  const line = (nth: number): string => `${nth} ${'x'.repeat(100_000)}\n`;
  for (let nth = 0; nth < 25; nth += 1) {
    log.write(line(nth));
    expect(readFileSync(file, 'utf8').endsWith(line(nth))).toBe(true);
    expect(readFileSync(file).length).toBeLessThanOrEqual(1024 * 1024);
  }
  closeSync(fd);
  expect(readFileSync(file, 'utf8').startsWith('20 ')).toBe(true);
});

test('a line that cannot be written is lost, and nothing else', () => {
  const fd = openSync('/dev/full', 'a');
  expect(() => boundedLog(fd).write('line\n')).not.toThrow();
  closeSync(fd);
});
