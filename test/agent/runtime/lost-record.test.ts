// A rental whose record is lost, because the disk was full when it was made and the agent started again: it stays the rental that it is.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { eventually } from '../../kit/processes.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { GPU, type OneGpuHost, openOneGpuHost } from './one-gpu-host.ts';
import { type EngineScript, newScript, openSlowEngine } from './slow-engine.ts';

const MINUTE_MS = 60_000;
let dir: string;
let clock: VirtualClock;
let script: EngineScript;
let host: OneGpuHost;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'lost-'));
  clock = virtualClock(1_000_000);
  script = { ...newScript(), clock };
  const engine = openSlowEngine(script);
  const open = (): Promise<OneGpuHost> =>
    openOneGpuHost({ stateDir: dir, clock, engine, script, quarantineMs: 15 * MINUTE_MS, guest: true });
  host = await open();
  await host.want(desiredWorkload('wl_a', 'image', { gpu_uuids: [GPU] }));
  await host.until('guest', () => host.seen('wl_a')?.phase === 'running');
  await host.runtime.stop();
  rmSync(join(dir, 'workloads'), { recursive: true });
  host = await open();
  await host.until('the rental', () => host.seen('wl_a')?.phase === 'running');
  await clock.advance(5_000);
  script.calls = [];
});
afterEach(async () => {
  await host.runtime.stop();
  rmSync(dir, { recursive: true });
});

test('it does not fail while the engine is away', async () => {
  script.isAway = true;
  for (let minute = 0; minute < 5; minute += 1) await clock.advance(MINUTE_MS);
  expect(host.seen('wl_a')?.phase).toBe('running');
});

test('it is missing after somebody has removed its container, and no empty one takes its place', async () => {
  script.removeContainer();
  await eventually('report', 5_000, async () => {
    await clock.advance(MINUTE_MS);
    return host.seen('wl_a')?.phase === 'running' ? undefined : true;
  });
  await clock.advance(MINUTE_MS);
  expect([host.seen('wl_a')?.phase, host.called()]).toEqual(['missing', []]);
});
