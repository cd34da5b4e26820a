// What a host shows of its clone token: the newest that is on its disk, and nothing that may not be there.
import { expect, test } from 'vitest';
import { openCloneToken, type CloneToken } from '../../../agent/link/clone-token.ts';
import { createLog } from '../../../shared/log.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { openDisk } from '../../sim/disk.ts';

const log = createLog('test', 'silent');

test('survives a restart, waits for what is being stored, and stays behind where the disk takes nothing', async () => {
  const disk = openDisk(virtualClock());
  const open = (): Promise<CloneToken> => openCloneToken('state', { files: disk.files, log });
  const cloneToken = await open();
  expect(await cloneToken.shown()).toBeNull();
  const keeping = [cloneToken.keep('r1'), cloneToken.keep('r2')];
  expect(await cloneToken.shown()).toBe('r2');
  expect(await Promise.all(keeping)).toEqual([true, true]);
  disk.isFull = true;
  expect(await cloneToken.keep('r3')).toBe(false);
  expect(await cloneToken.shown()).toBe('r2');
  disk.isFull = false;
  expect(await cloneToken.keep('r4')).toBe(true);
  expect(await (await open()).shown()).toBe('r4');
});
