// A disk of the state folder that hangs: the agent goes on without it, and stores what has changed once the disk answers.
import { beforeEach, expect, test } from 'vitest';
import type { StateFiles } from '../../../agent/host/state.ts';
import { openTimedFiles, type TimedFiles } from '../../../agent/host/timed-files.ts';
import { openCloneToken } from '../../../agent/link/identity.ts';
import { openDesired } from '../../../agent/runtime/desired.ts';
import { createLog } from '../../../shared/log.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';
import { openDisk } from '../../sim/disk.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { GPU, openOneGpuHost } from './one-gpu-host.ts';
import { newScript, openSlowEngine } from './slow-engine.ts';

const WORKLOAD = desiredWorkload('wl_a', 'image', { gpu_uuids: [GPU] });
const log = createLog('test', 'silent');
let clock: VirtualClock;
let disk: HangingDisk;

interface HangingDisk {
  /** The files as the agent uses them, with a time limit. */
  files: TimedFiles;
  /** The disk itself, which answers. */
  inside: StateFiles;
  /** Calls that the disk has begun. */
  calls: string[];
  hang(): void;
  goOn(): void;
}

function openHangingDisk(): HangingDisk {
  const { files: inside } = openDisk(clock);
  let gate = Promise.withResolvers<void>();
  gate.resolve();
  const calls: string[] = [];
  const held: StateFiles = {
    ...inside,
    write: async (file, value) => {
      calls.push(file);
      await gate.promise;
      await inside.write(file, value);
    },
    remove: async (path) => {
      calls.push(path);
      await gate.promise;
      await inside.remove(path);
    },
  };
  return {
    files: openTimedFiles(held, { clock, log }),
    inside,
    calls,
    hang: () => void (gate = Promise.withResolvers()),
    goOn: () => gate.resolve(),
  };
}

beforeEach(() => {
  clock = virtualClock(1_000_000);
  disk = openHangingDisk();
});

test('a workload ends while the disk hangs, and its end is stored once the disk answers', async () => {
  const script = { ...newScript(), clock };
  const options = { stateDir: 'state', clock, script, quarantineMs: 3_600_000, guest: true };
  const host = await openOneGpuHost({ ...options, engine: openSlowEngine(script), files: disk.files });
  await host.want(WORKLOAD);
  await host.until('start', () => host.seen('wl_a')?.phase === 'running');
  disk.hang();
  const told = host.want({ ...WORKLOAD, desired: 'removed' });
  await host.until('end', () => host.seen('wl_a')?.phase === 'stopped');
  await told;
  expect(script.calls).toContain('stop');
  disk.goOn();
  await clock.advance(10_000);
  const again = await openDesired('state', { files: disk.inside, log, clock, bootId: 'boot' });
  expect(again.held()?.workloads).toMatchObject([{ desired: 'removed' }]);
  await host.runtime.stop();
});

test('a link that comes while the disk hangs is told the clone token that is surely stored', async () => {
  const token = await openCloneToken('state', { files: disk.files, log });
  expect(await token.keep('r1')).toBe(true);
  disk.hang();
  const keeping = token.keep('r2');
  const shown = token.shown();
  await clock.advance(15_000);
  expect([await keeping, await shown]).toEqual([false, 'r1']);
});

test('a disk that hangs is asked once, and again after it has answered', async () => {
  disk.hang();
  const writes = ['a', 'b', 'c'].map((file) => disk.files.write(file, 1).catch((error: Error) => error.message));
  await clock.advance(15_000);
  expect(await Promise.all(writes)).toEqual(
    Array.from({ length: 3 }, () => 'the disk of the state folder has not answered for 15 seconds'),
  );
  expect([disk.calls, disk.files.fault()]).toEqual([
    ['a'],
    'the disk of the state folder has not answered for 15 seconds',
  ]);
  disk.goOn();
  await clock.advance(1);
  await disk.files.write('b', 2);
  expect([disk.calls, disk.files.fault()]).toEqual([['a', 'b'], '']);
});

test('a removal that takes long holds up no write, and says nothing against the disk', async () => {
  const gate = Promise.withResolvers<void>();
  const slow = openTimedFiles({ ...disk.inside, remove: () => gate.promise }, { clock, log });
  const removals = ['a', 'b'].map((folder) => slow.remove(folder).catch((error: Error) => error.message));
  await clock.advance(15_000);
  const takesLong = 'a removal from the state folder takes more than 15 seconds, and goes on';
  expect(await Promise.all(removals)).toEqual([takesLong, takesLong]);
  await slow.write('c', 3);
  expect(slow.fault()).toBe('');
  gate.resolve();
  await clock.advance(1);
  await slow.remove('b');
});
