// What a host shows of its ratchet: the newest that is on its disk, and nothing that may not be there.
import { expect, test } from 'vitest';
import { openRatchet, type Ratchet } from '../../../agent/link/ratchet.ts';
import { createLog } from '../../../shared/log.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { openDisk } from '../../sim/disk.ts';

const log = createLog('test', 'silent');

test('survives a restart, waits for what is being stored, and stays behind where the disk takes nothing', async () => {
  const disk = openDisk(virtualClock());
  const open = (): Promise<Ratchet> => openRatchet('state', { files: disk.files, log });
  const ratchet = await open();
  expect(await ratchet.shown()).toBeNull();
  const keeping = [ratchet.keep('r1'), ratchet.keep('r2')];
  expect(await ratchet.shown()).toBe('r2');
  expect(await Promise.all(keeping)).toEqual([true, true]);
  disk.isFull = true;
  expect(await ratchet.keep('r3')).toBe(false);
  expect(await ratchet.shown()).toBe('r2');
  disk.isFull = false;
  expect(await ratchet.keep('r4')).toBe(true);
  expect(await (await open()).shown()).toBe('r4');
});
