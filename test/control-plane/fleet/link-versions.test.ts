// What a link sends to agents of older versions.
import { expect, test } from 'vitest';
import { desiredWorkload } from '../../agent/desired-workload.ts';
import { linkInMemory } from '../../kit/link-in-memory.ts';
import { inventoryOf } from '../../kit/machines.ts';

test.each([
  [1, ['wl_plain']],
  [2, ['wl_job', 'wl_plain']],
])('an agent of version %i is sent the workloads %j', async (version, ids) => {
  const job = { inputs: [], config: '{}', run_ms_max: 1 };
  const workloads = [desiredWorkload('wl_job', 'trainer', { job }), desiredWorkload('wl_plain', 'app')];
  const { sent } = linkInMemory(
    { inventory: inventoryOf(1, () => 'u'), version },
    { desired: async () => ({ type: 'desired', epoch: 1, revision: 7, complete: true, now_ms: 0, workloads }) },
  );
  const sentIds = (): string[] | undefined =>
    sent.find((message) => message.type === 'desired')?.workloads.map(({ workload_id: id }) => id);
  await expect.poll(sentIds).toEqual(ids);
});
