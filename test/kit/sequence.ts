// The order of test files: those that take long begin first, also if no run has measured them yet.
import { basename } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The names of the files, longest first. The rest follows in the order that vitest gives it. */
export const LONG: readonly string[] = [
  'jobs.docker',
  'unreachable',
  'web-console-troubles',
  'fine-tuning',
  'idempotency',
  'deb',
  'demo',
  'manual',
  'restore',
  'package',
  'web-console-story',
  'faults.docker',
  'try-out',
  'console',
  'web-console',
  'fence.docker',
  'ssh',
  'fine-tuning-disk',
  'enrollment',
  'main',
  'instances-random.store',
  'requests.store',
  'side-by-side.pg',
  'outage.store',
  'payouts.pg',
  'chat.store',
  'crash-money.pg',
  'ssh-guards',
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
