// The order of test files: those that take long begin first, also if no run has measured them yet.
import { basename } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * The names of the files, in the order in which they begin. The rest follows in the order that vitest gives it.
 *
 * In each lane the longest begin first, with one exception. `unreachable`, `fine-tuning`, `web-console-troubles` and `jobs.docker` wait for fixed
 * periods nearly all of their time. Side by side they would leave the processors idle, and what computes would be crowded together later. So
 * each of them begins about when the one before it ends.
 */
export const LONG: readonly string[] = [
  'unreachable',
  'demo',
  'manual',
  'idempotency',
  'package',
  'fine-tuning',
  'restore',
  'deb',
  'crash',
  'try-out',
  'web-console-troubles',
  'web-console',
  'web-console-story',
  'faults.docker',
  'ssh',
  'jobs.docker',
  'fine-tuning-disk',
  'fence.docker',
  'enrollment',
  'replicas',
  'postgres',
  'web-console-operator-money',
  'console',
  'money-story',
  'web-console-money',
  'web-console-supply',
  'tls',
  'ssh.docker',
  // The soak tells 170 stories.
  'story',
  'main',
  'instances-random.store',
  'guest-frames',
  'requests.store',
  'commands',
  'outage.store',
  'side-by-side.pg',
  'upload-clients',
  'crash-money.pg',
  'ssh-guards',
  'payouts.pg',
  'endpoint-health.store',
  'disputes.store',
  'cursors.store',
  'chat.store',
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
