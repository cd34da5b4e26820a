// Writes that failed on a full disk are repeated once it has space, because an agent that starts later must not read the older state.
import { expect, test } from 'vitest';
import { openDesired, type Desired } from '../../../agent/runtime/desired.ts';
import { openRecords, type Records } from '../../../agent/runtime/records.ts';
import { createLog } from '../../../shared/log.ts';
import type { DesiredMessage } from '../../../shared/protocol/link.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { openDisk } from '../../sim/disk.ts';
import { desiredWorkload } from '../desired-workload.ts';

const clock = virtualClock();
const log = createLog('test', 'silent');

test('a desired state is stored once the disk has space', async () => {
  const disk = openDisk(clock);
  const open = (): Promise<Desired> => openDesired('state', { files: disk.files, log, clock, bootId: 'boot' });
  const desiredAt = (revision: number): DesiredMessage => ({
    type: 'desired',
    epoch: 1,
    revision,
    complete: true,
    now_ms: 0,
    workloads: [desiredWorkload('w', 'busybox')],
  });
  const desired = await open();
  await desired.take(desiredAt(1));
  disk.isFull = true;
  expect(await desired.take(desiredAt(2))).toBe(true);
  await desired.keep();
  expect((await open()).held()?.revision).toBe(1);
  disk.isFull = false;
  await desired.keep();
  expect((await open()).held()?.revision).toBe(2);
});

test('the records of a removal and the tombstones are stored once the disk has space', async () => {
  const disk = openDisk(clock);
  const open = (): Promise<Records> => openRecords('state', { files: disk.files, log, now: clock.now });
  const records = await open();
  for (const id of ['w-1', 'w-2']) await records.change(id, { container_id: `c-${id}` });
  disk.isFull = true;
  await expect(records.change('w-1', { removing: true })).rejects.toThrow('ENOSPC');
  await expect(records.bury('w-2')).rejects.toThrow('ENOSPC');
  await records.keep();
  expect([...(await open()).all().values()].map(({ removing, gone }) => removing || gone)).toEqual([false, false]);
  disk.isFull = false;
  await records.keep();
  const after = (await open()).all();
  expect([after.get('w-1')?.removing, after.get('w-2')?.gone]).toEqual([true, true]);
  expect(await disk.files.list('state/workloads')).toEqual(['w-1']);
});

test('a tombstone is forgotten also on a full disk, which must not keep the runtime from its steps', async () => {
  const disk = openDisk(clock);
  const open = (): Promise<Records> => openRecords('state', { files: disk.files, log, now: clock.now });
  const records = await open();
  await records.bury('old');
  clock.jump(24 * 3_600_000 + 1);
  disk.isFull = true;
  await records.forgetOld(new Set());
  expect([...records.all().keys()]).toEqual([]);
  // The next process forgets it once more.
  disk.isFull = false;
  const next = await open();
  await next.forgetOld(new Set());
  expect([...(await open()).all().keys()]).toEqual([]);
});
