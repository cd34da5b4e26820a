// Which clone token a host shows: the newest one that is surely on its disk.
import { expect, test } from 'vitest';
import { openCloneToken, type CloneToken } from '../../../agent/link/identity.ts';
import { createLog } from '../../../shared/log.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { openDisk } from '../../sim/disk.ts';

const log = createLog('test', 'silent');

test('the clone token survives a restart, waits for a write under way, and stays the older one if the disk is full', async () => {
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
