// The inventory of a host: it is there in time for the link, and no bundle is removed whose containers the engine does not list yet.
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readConfig } from '../../agent/config.ts';
import { DISK } from '../../agent/host/state.ts';
import { type InventoryWatch, openInventory } from '../../agent/inventory.ts';
import type { Engine } from '../../agent/runtime/engine.ts';
import { createLog } from '../../shared/log.ts';
import { eventually } from '../kit/processes.ts';
import { type VirtualClock, virtualClock } from '../kit/virtual-clock.ts';
import { desiredWorkload } from './desired-workload.ts';
import { GPU, type OneGpuHost, openOneGpuHost } from './runtime/one-gpu-host.ts';
import { type EngineScript, newScript, openSlowEngine } from './runtime/slow-engine.ts';

const MINUTE_MS = 60_000;
const log = createLog('test', 'silent');
let dir: string;
let clock: VirtualClock;
let script: EngineScript;
let engine: Engine;
let host: OneGpuHost;
let watch: InventoryWatch;
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'inventory-'));
  clock = virtualClock();
  script = { ...newScript(), clock };
  engine = openSlowEngine(script);
  host = await open();
  watch = await openWatch();
});
afterEach(async () => {
  await Promise.all([host.runtime.stop(), watch.stop()]);
  rmSync(dir, { recursive: true });
});

const open = (): Promise<OneGpuHost> =>
  openOneGpuHost({ stateDir: dir, clock, engine, script, quarantineMs: 0, guest: true });
const bundleOf = (version: string): string => join(dir, 'bundles', version, 'guest');

async function openWatch(nvidiaSmi = join(dir, 'no-nvidia-smi')): Promise<InventoryWatch> {
  const bundle = { folder: bundleOf('new'), holderProgram: '', node: [], entrypoint: [] };
  for (const version of ['old', 'new']) mkdirSync(bundleOf(version), { recursive: true });
  const facts = { cpu_cores: 2, ram_bytes: 1, storage_bytes: 1, hostname: 'host', kernel: '6' };
  const fence = { finding: () => ({ network_fence: 'none' as const, fence_error: '' }) };
  const config = { ...(await readConfig(undefined)), state_dir: dir, nvidia_smi: nvidiaSmi };
  return openInventory(config, { engine, facts, bootId: 'boot', files: DISK, bundle, fence, clock, log });
}

test('a bundle stays while the engine may only have lost sight of the container that uses it', async () => {
  script.mountSources = [bundleOf('old')];
  await host.want(desiredWorkload('wl_a', 'image', { gpu_uuids: [GPU] }));
  await host.until('container', () => host.runtime.running().length > 0);
  script.removeContainer();
  watch.start(host.runtime, () => undefined);
  await clock.advance(9 * MINUTE_MS);
  expect(existsSync(bundleOf('old'))).toBe(true);
  await eventually('removal of what nobody uses', 5_000, async () => {
    await clock.advance(MINUTE_MS);
    return existsSync(bundleOf('old')) ? undefined : true;
  });
  expect(existsSync(bundleOf('new'))).toBe(true);
});

test('an nvidia-smi that hangs holds up the link for less time than an outage takes to be confirmed', async () => {
  const nvidiaSmi = join(dir, 'nvidia-smi');
  writeFileSync(nvidiaSmi, '#!/bin/sh\nexec sleep 5\n', { mode: 0o755 });
  const beganMs = clock.monotonicMs();
  let opened: InventoryWatch | undefined;
  void openWatch(nvidiaSmi).then((one) => (opened = one));
  const hung = await eventually('inventory', 5_000, async () => (await clock.advance(1_000), opened));
  expect(clock.monotonicMs() - beganMs).toBeLessThan(20_000);
  expect(hung.inventory()).toMatchObject({
    gpus: [],
    gpu_error: 'this host was not read yet since the agent has started',
  });
  await hung.stop();
});
