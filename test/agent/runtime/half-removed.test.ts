// The folder of a removed workload whose removal was cut off: the inputs of a job have hundreds of gigabytes, and the agent may end meanwhile.
import { expect, test } from 'vitest';
import { openRecords, type Records } from '../../../agent/runtime/records.ts';
import { createLog } from '../../../shared/log.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { openDisk } from '../../sim/disk.ts';

test('a folder of which the agent has removed only a part is removed by the next agent, and the others stay', async () => {
  const clock = virtualClock();
  const disk = openDisk(clock);
  const open = (remove = disk.files.remove): Promise<Records> =>
    openRecords('state', { files: { ...disk.files, remove }, log: createLog('test', 'silent'), now: clock.now });
  const records = await open(async (path) => {
    await disk.files.remove(`${path}/record.json`);
    throw new Error('the agent has ended');
  });
  for (const id of ['ended', 'living']) await records.change(id, { container_id: id });
  await disk.files.write('state/workloads/ended/in/data', 'large');
  await expect(records.bury('ended')).rejects.toThrow('the agent has ended');
  const next = await open();
  expect(next.all().get('ended')?.gone).toBe(true);
  await next.keep();
  expect(await disk.files.list('state/workloads')).toEqual(['living']);
});
