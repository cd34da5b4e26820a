// The order of test files: those that take long begin first, also if no run has measured them yet.
import { basename } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The names of the files, longest first. The rest follows in the order that vitest gives it. */
export const LONG: readonly string[] = [
  'jobs.docker',
  'unreachable',
  'fine-tuning',
  'deb',
  'manual',
  'idempotency',
  'demo',
  'restore',
  'web-console-story',
  'package',
  'instances-random.store',
  'story',
];

export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number => {
      const place = LONG.indexOf(basename(moduleId, '.test.ts'));
      return place === -1 ? LONG.length : place;
    };
    return (await super.sort(files)).toSorted((one, other) => rank(one) - rank(other));
  }
}
