// A host with one GPU and a virtual clock, whose engine a test plays. Its holders work.
import { DISK, type StateFiles } from '../../../agent/host/state.ts';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { openDesired } from '../../../agent/runtime/desired.ts';
import { openRecords } from '../../../agent/runtime/records.ts';
import { openRuntime, type Runtime } from '../../../agent/runtime/runtime.ts';
import { createLog } from '../../../shared/log.ts';
import type { DesiredWorkload, ObservedWorkload } from '../../../shared/protocol/workload.ts';
import { eventually } from '../../kit/processes.ts';
import type { VirtualClock } from '../../kit/virtual-clock.ts';
import type { EngineScript } from './slow-engine.ts';

export const GPU = 'GPU-0';
const log = createLog('test', 'silent');

export interface OneGpuHost {
  runtime: Runtime;
  /** Takes a desired state with these workloads. */
  want(...workloads: DesiredWorkload[]): Promise<void>;
  /** True while the holder of wl_a is connected. */
  hasHolder(): boolean;
  seen(workloadId: string): ObservedWorkload | undefined;
  /** Lets time pass until it is so. */
  until(what: string, is: () => boolean): Promise<unknown>;
  /** The calls of the engine that change something of a workload. */
  called(): string[];
}

export interface HostOptions {
  stateDir: string;
  clock: VirtualClock;
  /** The engine outlasts the agent. */
  engine: Engine;
  script: EngineScript;
  quarantineMs: number;
  /** Whether the guest of wl_a is connected. */
  guest: boolean;
  /** True if the holder of wl_a works, and is connected. If false, the runtime has to connect to it. True if it is left out. */
  isHolderUp?: boolean;
  /** The storage of the agent's state. If it is left out, it is the disk of this machine. */
  files?: StateFiles;
}

export async function openOneGpuHost(options: HostOptions): Promise<OneGpuHost> {
  const { stateDir, clock, engine, script, quarantineMs, guest, files = DISK } = options;
  const desired = await openDesired(stateDir, { files, log, clock, bootId: 'boot' });
  const records = await openRecords(stateDir, { files, log, now: clock.now });
  const status = { up: options.isHolderUp ?? true, guest, host_key: null, main_exit: null };
  const holders = {
    prepare: async () => ({ entrypoint: [], mounts: [] }),
    ensure: async () => void (status.up = true),
    statuses: () => new Map([['wl_a', status]]),
    pause: async () => undefined,
    end: async () => undefined,
  };
  const sweep = async (): Promise<void> => void script.calls.push('sweep');
  const images = { use: async () => undefined, sweep, makeRoom: async () => true };
  const limits = { memlock_bytes: -1, nofile: 1024 };
  const deps = { clock, log, holders, images, desired, records, engine, quarantineMs };
  const runtime = openRuntime(
    {
      ...deps,
      jobs: { prepare: async () => [] },
      etcFiles: async () => [],
      machine: () => ({ cpu_cores: 2, ram_bytes: 2 ** 33, gpu_count: 1, limits }),
      gpus: () => ({ gpuUuids: new Set([GPU]), gpuFaults: new Map() }),
      assertFenced: async () => undefined,
      onGpusRefused: () => undefined,
      pullLogin: async () => null,
    },
    () => undefined,
  );
  return {
    runtime,
    want: (...workloads) => {
      const revision = (runtime.held()?.revision ?? 0) + 1;
      return runtime.take({
        type: 'desired',
        epoch: 1,
        revision,
        complete: true,
        now_ms: clock.monotonicMs(),
        workloads,
      });
    },
    hasHolder: () => status.up,
    seen: (id) => runtime.observed().workloads.find((workload) => workload.workload_id === id),
    until: (what, is) => eventually(what, 5_000, async () => (await clock.advance(5_000), is() || undefined)),
    called: () => script.calls.filter((call) => call !== 'spare' && call !== 'sweep'),
  };
}
