// The inventory of a host: it is there in time for the link, and no bundle is removed whose containers the engine does not list yet.
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { readConfig } from '../../agent/config.ts';
import { DISK } from '../../agent/host/state.ts';
import { type InventoryWatch, openInventory } from '../../agent/inventory.ts';
import type { Engine } from '../../agent/runtime/engine.ts';
import { createLog } from '../../shared/log.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { capture } from '../kit/capture.ts';
import { eventually } from '../kit/processes.ts';
import { type VirtualClock, virtualClock } from '../kit/virtual-clock.ts';
import { desiredWorkload } from './desired-workload.ts';
import { GPU_DIR } from '../kit/engine.ts';
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
  vi.unstubAllEnvs();
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

describe('an engine that has refused GPUs to a rental', () => {
  const REFUSAL = 'could not select device driver "nvidia" with capabilities: [[gpu]]';
  const BROKEN = { severity: 'unfit', detail: expect.stringContaining('install the NVIDIA Container Toolkit') };
  let told: Inventory[];
  /** Which GPUs the engine was asked for. */
  let asked: (readonly string[] | undefined)[];
  let refusal: string;
  const start = async (env: Record<string, string> = {}): Promise<InventoryWatch> => {
    for (const [name, value] of Object.entries({ FAKE_GPU_COUNT: '2', ...env })) vi.stubEnv(name, value);
    [told, asked, refusal] = [[], [], REFUSAL];
    engine.runBare = async ({ name, gpu_uuids: uuids }) => {
      if (name !== 'gpus') return 0;
      asked.push(uuids);
      throw new Error(refusal);
    };
    const opened = await openWatch(join(GPU_DIR, 'nvidia-smi'));
    onTestFinished(opened.stop);
    opened.start(host.runtime, (inventory) => void told.push(inventory));
    return opened;
  };
  const until = (what: string, is: () => boolean): Promise<unknown> =>
    eventually(what, 5_000, async () => (await clock.advance(1_000), is() || undefined));

  test('takes all GPUs off the market until a container gets one again, and is not asked before the refusal', async () => {
    const opened = await start();
    await clock.advance(3 * MINUTE_MS);
    expect(asked).toEqual([]);
    opened.doubtGpus();
    await until('faults', () => told.at(-1)?.gpu_faults.length === 2);
    const uuids = told.at(-1)?.gpus.map(({ uuid }) => uuid) ?? [];
    expect(told.at(-1)?.gpu_faults).toEqual(uuids.map((uuid) => ({ uuid, ...BROKEN })));
    expect(asked).toEqual([uuids]);
    refusal = 'OCI runtime create failed: exec: "/none": stat /none: no such file or directory';
    await until('no faults', () => told.at(-1)?.gpu_faults.length === 0);
    const count = asked.length;
    await clock.advance(3 * MINUTE_MS);
    expect(asked).toHaveLength(count);
  });

  test('is asked at once, and the answer is told at once', async () => {
    const opened = await start();
    await eventually('the first inventory', 5_000, async () => told.length > 0 || undefined);
    opened.doubtGpus();
    await eventually('faults', 5_000, async () => told.at(-1)?.gpu_faults.length === 2 || undefined);
  });

  test('keeps them off it while it is away, because then it gives nothing', async () => {
    const opened = await start();
    opened.doubtGpus();
    await until('faults', () => told.at(-1)?.gpu_faults.length === 2);
    engine.version = async () => Promise.reject(new Error('no answer'));
    await until('its absence', () => told.at(-1)?.engine_version === '');
    await clock.advance(3 * MINUTE_MS);
    expect(told.at(-1)?.gpu_faults).toHaveLength(2);
  });

  test('adds no second fault to a GPU that has one', async () => {
    const faults = join(dir, 'faults');
    vi.stubEnv('FAKE_GPU_COUNT', '2');
    const [first = '', second = ''] =
      (await capture([join(GPU_DIR, 'nvidia-smi'), '-L'])).stdout.toString().match(/GPU-[\da-f-]+/g) ?? [];
    writeFileSync(faults, `${first},mig.mode.current,Enabled\n`);
    const opened = await start({ FAKE_GPU_FAULTS: faults });
    opened.doubtGpus();
    await until('faults', () => told.at(-1)?.gpu_faults.length === 2);
    expect(told.at(-1)?.gpu_faults).toEqual([
      { uuid: first, severity: 'unfit', detail: expect.stringContaining('MIG mode is on') },
      { uuid: second, ...BROKEN },
    ]);
  });
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
