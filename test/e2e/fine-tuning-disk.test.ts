// A trainer that fills the disk of its container, on a host that enforces disk sizes: it fails alone, and the space comes back.
import { mkdirSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DISK_GB_MIN } from '../../shared/limits.ts';
import { PricingRow } from '../../shared/api/pricing.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { type MountedBtrfs, mountBtrfs } from '../kit/disks.ts';
import { type FineTuningStack, openFineTuningStack } from '../kit/fine-tuning-stack.ts';
import { eventually } from '../kit/processes.ts';

const GIB = 1024 ** 3;

let btrfs: MountedBtrfs;
let stack: FineTuningStack;

beforeAll(async () => {
  btrfs = mountBtrfs((2 * DISK_GB_MIN + 4) * GIB);
  const dir = join(btrfs.dir, 'e');
  mkdirSync(dir);
  stack = await openFineTuningStack(
    { quick: { steps: 8, every: 100 }, greedy: { steps: 20, every: 100, fault: 'fills its disk' } },
    { engine: { dir, storageDriver: 'btrfs' } },
  );
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
  btrfs.remove();
});

function freeGib(): number {
  const { bavail, bsize } = statfsSync(btrfs.dir);
  return (bavail * bsize) / GIB;
}

test('a trainer that fills its disk fails and is not charged, the host keeps its own space, and the next job succeeds', async () => {
  await eventually('the host enforces disk sizes', 60_000, async () => {
    const { data } = await stack.customer.api.get('/pricing', pageSchema(PricingRow));
    return data[0]?.disk_configurable === true ? true : undefined;
  });
  btrfs.settle();
  const before = freeGib();
  let least = before;
  const sampling = setInterval(() => (least = Math.min(least, freeGib())), 20);
  const { id } = await stack.train('greedy');
  const failed = await stack.reached(id, 'failed').finally(() => clearInterval(sampling));
  // The disk of the job was really full, and nothing was written beyond it.
  expect(before - least).toBeGreaterThan(DISK_GB_MIN - 1);
  expect(before - least).toBeLessThan(DISK_GB_MIN + 1);
  expect(failed).toMatchObject({ error: { code: 'training_failed' }, svc: { cost_usd: 0 } });
  await eventually('the space is free again', 60_000, async () => (freeGib() > before - 1 ? true : undefined));
  const next = await stack.train('quick');
  await stack.reached(next.id, 'succeeded');
});
