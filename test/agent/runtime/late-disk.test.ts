// An engine whose data disk is away for a time: what it does not list is not lost, and what comes back late does not run on.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { GPU, type OneGpuHost, openOneGpuHost } from './one-gpu-host.ts';
import { type EngineScript, newScript, openSlowEngine } from './slow-engine.ts';

const WORKLOAD = desiredWorkload('wl_a', 'image', { gpu_uuids: [GPU] });
const REMOVED = { ...WORKLOAD, desired: 'removed' as const };
const MINUTE_MS = 60_000;
let dir: string;
let clock: VirtualClock;
let script: EngineScript;
let host: OneGpuHost;
let engine: Engine;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'late-'));
  clock = virtualClock(1_000_000);
  script = { ...newScript(), clock };
  engine = openSlowEngine(script);
});
afterEach(async () => {
  await host.runtime.stop();
  rmSync(dir, { recursive: true });
});

const open = async (quarantineMs: number): Promise<void> => {
  host = await openOneGpuHost({ stateDir: dir, clock, engine, script, quarantineMs, guest: true });
};

/** A rental that has been stopped for its removal, on an engine that is started without its disk. */
async function rebootAfterStop(quarantineMs: number): Promise<void> {
  await open(quarantineMs);
  await host.want(WORKLOAD);
  await host.until('container', () => host.runtime.running().length > 0);
  // It is kept for no longer than it existed.
  await clock.advance(quarantineMs);
  await host.want(REMOVED);
  await host.until('stop', () => host.seen('wl_a')?.phase === 'stopped');
  await host.runtime.stop();
  script.removeContainer();
  script.calls = [];
}

test('a rental in its quarantine is not called removed before its disk is there, and is removed in time', async () => {
  await rebootAfterStop(15 * MINUTE_MS);
  await open(15 * MINUTE_MS);
  await clock.advance(9 * MINUTE_MS);
  expect(host.seen('wl_a')?.phase).toBe('stopped');
  script.loseContainer();
  await clock.advance(5 * MINUTE_MS);
  expect([host.seen('wl_a')?.phase, host.called()]).toEqual(['stopped', []]);
  await clock.advance(2 * MINUTE_MS);
  expect([host.seen('wl_a')?.phase, host.called()]).toEqual(['removed', ['remove']]);
});

test('a rental whose quarantine is over is removed without its container, so that the next rental need not wait', async () => {
  await rebootAfterStop(15 * MINUTE_MS);
  clock.jump(15 * MINUTE_MS);
  await open(15 * MINUTE_MS);
  await clock.advance(1_000);
  expect(host.seen('wl_a')?.phase).toBe('removed');
});

test('a running rental of an engine that is started again without its disk goes on once the disk is there', async () => {
  await open(0);
  await host.want(WORKLOAD);
  await host.until('guest', () => host.seen('wl_a')?.phase === 'running');
  script.removeContainer();
  await clock.advance(9 * MINUTE_MS);
  expect(host.seen('wl_a')?.phase).toBe('running');
  script.calls = [];
  script.loseContainer();
  await host.until('start', () => host.called().includes('start'));
  expect(host.called()).toEqual(['start']);
});

test('the only rental of a host is missing at once if somebody removes its container, and not only after the time of a doubt', async () => {
  await open(0);
  await host.want(WORKLOAD);
  await host.until('guest', () => host.seen('wl_a')?.phase === 'running');
  script.hasItsData = true;
  script.removeContainer();
  const removedMs = clock.now();
  await host.until('missing', () => host.seen('wl_a')?.phase === 'missing');
  expect(clock.now() - removedMs).toBeLessThan(5 * MINUTE_MS);
});

test('no image is removed, and so forgotten, while the disk with the images may be away', async () => {
  await open(0);
  await host.want(WORKLOAD);
  await host.until('guest', () => host.seen('wl_a')?.phase === 'running');
  script.removeContainer();
  await host.until('doubt', () => host.runtime.mountSources() === null);
  script.calls = [];
  await clock.advance(8 * MINUTE_MS);
  expect(script.calls).not.toContain('sweep');
  script.comeBack();
  await host.until('sweep', () => script.calls.includes('sweep'));
});

test('a container that comes back after its workload was called removed is stopped and removed', async () => {
  await open(0);
  await host.want(WORKLOAD);
  await host.until('container', () => host.runtime.running().length > 0);
  await host.want(REMOVED);
  await host.until('removal', () => host.seen('wl_a')?.phase === 'removed');
  script.calls = [];
  // The disk with the container was away.
  script.comeBack();
  await host.until('removal of the container', () => host.called().includes('remove'));
  await host.until('empty list', () => host.runtime.containerIds().length === 0);
  expect(host.called()).toEqual(['stop', 'remove']);
  await clock.advance(10_000);
  expect([host.called(), host.runtime.containerIds()]).toEqual([['stop', 'remove'], []]);
});
