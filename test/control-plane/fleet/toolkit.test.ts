// Toolkit versions from which containers can escape.
import { expect, test } from 'vitest';
import { toolkitObstacle } from '../../../control-plane/fleet/supply/verdict.ts';

const ALL = ['CVE-2024-0132', 'CVE-2025-23359', 'CVE-2025-23266', 'CVE-2025-23267'];
const cvesOf = (version: string): string[] => toolkitObstacle(version)?.match(/CVE-\d+-\d+/g) ?? [];

test.each([
  ['0.18.0', ALL],
  ['1.9.10', ALL],
  ['1.14.6', ALL],
  ['1.16.2~rc.1', ALL],
  ['1.16.1', ALL],
  ['1.16.2', ALL.slice(1)],
  ['1.17.3', ALL.slice(1)],
  ['1.17.4', ALL.slice(2)],
  ['1.17.7', ALL.slice(2)],
  ['1.17.8-rc.1', ALL.slice(2)],
  ['1.17.8', []],
  ['1.17.8-1', []],
  ['1.17.10', []],
  ['1.18.0-rc.1', []],
  ['2.0.0', []],
  ['2.0.0-rc.1', []],
  ['1.17', []],
  ['', []],
  ['unknown', []],
])('%s: %j', (version, cves) => {
  expect(cvesOf(version)).toEqual(cves);
});

test('an obstacle names the version, the escapes, and the first version without any', () => {
  expect(toolkitObstacle('1.17.4')).toBe(
    'The NVIDIA Container Toolkit 1.17.4 of the host lets containers out (CVE-2025-23266, CVE-2025-23267): install 1.17.8 or newer.',
  );
});
