// An engine that hangs in a call for minutes: its workload fails meanwhile, and what the engine makes later never runs on.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { GPU, type OneGpuHost, openOneGpuHost } from './one-gpu-host.ts';
import { type EngineScript, newScript, openSlowEngine } from './slow-engine.ts';

const WORKLOAD = desiredWorkload('wl_a', 'image', { gpu_uuids: [GPU] });
let dir: string;
let clock: VirtualClock;
let script: EngineScript;
let host: OneGpuHost;

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'hung-'));
  clock = virtualClock(1_000_000);
  script = { ...newScript(), clock };
  const engine = openSlowEngine(script);
  host = await openOneGpuHost({ stateDir: dir, clock, engine, script, quarantineMs: 0, guest: false });
});
afterEach(async () => {
  await host.runtime.stop();
  rmSync(dir, { recursive: true });
});

describe.each([
  ['creation', 'mayCreate', 'create', ['create', 'remove']],
  ['start', 'mayStart', 'start', ['create', 'start', 'stop']],
] as const)('a %s in which the engine hangs', (_what, gate, call, expected) => {
  let goOn: () => void;
  beforeEach(async () => {
    const gated = Promise.withResolvers<void>();
    script[gate] = gated.promise;
    goOn = () => {
      script.isAway = false;
      gated.resolve();
    };
    await host.want(WORKLOAD);
    await host.until('call', () => script.calls.includes(call));
    script.isAway = true;
    await host.until('failure', () => host.seen('wl_a')?.phase === 'failed');
    expect(host.seen('wl_a')).toMatchObject({ failure_code: 'engine_unavailable' });
  });

  test('leaves nothing that runs once the engine goes on, and keeps the reason of the failure', async () => {
    goOn();
    await host.until('end of the step', () => host.called().length >= expected.length);
    await clock.advance(10_000);
    expect(host.called()).toEqual(expected);
    expect(host.runtime.running()).toEqual([]);
    expect(host.seen('wl_a')).toMatchObject({ phase: 'failed', failure_code: 'engine_unavailable' });
  });

  test('holds up the removal of its workload until it has ended, and then the GPU is free for the next one', async () => {
    await host.want({ ...WORKLOAD, desired: 'removed' });
    script.isAway = false;
    await clock.advance(30_000);
    expect(host.seen('wl_a')?.phase).toBe('failed');
    goOn();
    await host.until('removal', () => host.seen('wl_a')?.phase === 'removed');
    const next = { ...WORKLOAD, workload_id: 'wl_b' };
    script.calls = [];
    await host.want({ ...WORKLOAD, desired: 'removed' }, next);
    await host.until('next rental', () => host.seen('wl_b')?.phase === 'starting');
    await host.until('its start', () => host.called().includes('start'));
    expect(host.called()).toEqual(['create', 'start']);
  });
});

test('an agent that starts while the engine hangs connects to the holders at once, so that rentals stay reachable', async () => {
  await host.want(WORKLOAD);
  await host.until('container', () => host.runtime.running().length > 0);
  await host.runtime.stop();
  const listed = Promise.withResolvers<void>();
  script.mayList = listed.promise;
  const options = { stateDir: dir, clock, script, quarantineMs: 0, guest: true, isHolderUp: false };
  host = await openOneGpuHost({ ...options, engine: openSlowEngine(script) });
  await host.until('holder', () => host.hasHolder());
  listed.resolve();
});
