// The GPUs of this machine as they are told to the control plane, with what is wrong with them, also while nvidia-smi fails.
import { join } from 'node:path';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { GpuFault, Inventory } from '../../shared/protocol/inventory.ts';
import { readJson, writeJson } from '../host/state.ts';
import { afterLook, afterRecords, faultsOf, Memory, memoryOf, passedOver } from './faults.ts';
import type { KernelLog } from './kernel-log.ts';
import { readGpus } from './nvidia-smi.ts';
import { readWear } from './wear.ts';

export type GpuReading = Pick<Inventory, 'gpus' | 'gpu_error' | 'gpu_faults'>;

export interface GpuWatch {
  /** Never rejects. `containerIds`: whose processes are not strangers. */
  read(containerIds: readonly string[]): Promise<GpuReading>;
  /** Hears what the kernel has said since; true where that changes what is told. Never rejects. */
  hear(): Promise<boolean>;
  close(): Promise<void>;
}

export interface GpuWatchDeps {
  nvidiaSmi: string;
  stateDir: string;
  /** Changes with every boot, which resets all cards. */
  bootId: string;
  kernelLog: KernelLog;
  clock: Clock;
  log: Log;
}

const ERROR_CHARS_MAX = 400;
/** Eight cards without persistence take nvidia-smi ten seconds a question. */
const LOOK_MS_MAX = 60_000;

/**
 * A driver that is upgraded under a running kernel fails until the next boot, and rentals go on meanwhile: the agent must too. One that
 * fails once, or leaves a card out once, may only be busy: what was known counts until it does so again.
 */
export async function openGpuWatch(deps: GpuWatchDeps): Promise<GpuWatch> {
  const { log, clock, kernelLog } = deps;
  const memory = await openMemory(deps);
  let known: GpuReading['gpus'] | undefined;
  let wear: ReadonlyMap<string, string> = new Map();
  let broken = false;
  let isDeaf = false;
  const faults = (): GpuFault[] => faultsOf(memory.now(), wear, clock.now());

  const listen = async (): Promise<void> => {
    try {
      const records = await kernelLog.read();
      await memory.become(afterRecords(memory.now(), records, clock.now()));
      isDeaf = false;
    } catch (error) {
      if (!isDeaf) log.warn({ detail: messageOf(error) }, 'the kernel log cannot be read: errors of GPUs stay unheard');
      isDeaf = true;
    }
  };
  /** One after another: records of a later call must not count before those of an earlier one. */
  let listening = Promise.resolve();
  const listenInTurn = (): Promise<void> => (listening = listening.then(listen));

  const look = async (containerIds: readonly string[]): Promise<GpuReading['gpus']> => {
    const listed = await readGpus(deps.nvidiaSmi, containerIds);
    wear = await readWear(deps.nvidiaSmi);
    await memory.become(afterLook(memory.now(), listed, clock.now()));
    return [...listed, ...passedOver(memory.now())];
  };

  /** A broken card can hold nvidia-smi where not even SIGKILL ends it: it is left there, and no second one is sent after it. */
  let looking: Promise<GpuReading['gpus']> | undefined;
  const lookInTime = async (containerIds: readonly string[]): Promise<GpuReading['gpus']> => {
    looking ??= look(containerIds).finally(() => (looking = undefined));
    const over = new AbortController();
    const tooLong = clock.sleep(LOOK_MS_MAX, over.signal).then(() => {
      throw new Error(`${deps.nvidiaSmi} does not come to an end: reboot the host`);
    });
    return Promise.race([looking, tooLong]).finally(() => over.abort());
  };

  return {
    read: async (containerIds) => {
      await listenInTurn();
      try {
        known = await lookInTime(containerIds);
        broken = false;
        return { gpus: known, gpu_error: '', gpu_faults: faults() };
      } catch (error) {
        const [last, detail] = [known, messageOf(error).slice(0, ERROR_CHARS_MAX)];
        known = undefined;
        if (last !== undefined) return { gpus: last, gpu_error: '', gpu_faults: faults() };
        if (!broken) log.error({ detail }, 'nvidia-smi fails: no GPU of this machine is offered');
        broken = true;
        return { gpus: [], gpu_error: detail, gpu_faults: faults() };
      }
    },
    hear: async () => {
      const before = JSON.stringify(faults());
      await listenInTurn();
      return JSON.stringify(faults()) !== before;
    },
    close: async () => {
      await listening;
      await kernelLog.close();
    },
  };
}

interface KeptMemory {
  now(): Memory;
  become(next: Memory): Promise<void>;
}

/** On disk, because the kernel's log is a ring: what it said of a card may be overwritten before the agent starts again. */
async function openMemory({ stateDir, bootId, log }: GpuWatchDeps): Promise<KeptMemory> {
  const file = join(stateDir, 'gpus.json');
  const stored = await readJson(file, Memory).catch((error: unknown) => {
    log.error({ err: error }, 'what was known of the GPUs is damaged and begins anew');
    return undefined;
  });
  let memory = memoryOf(stored, bootId);
  return {
    now: () => memory,
    become: async (next) => {
      const isNews = JSON.stringify(next) !== JSON.stringify(memory);
      memory = next;
      if (!isNews) return;
      await writeJson(file, next).catch((error: unknown) => {
        log.error({ err: error }, 'what is known of the GPUs could not be stored; it counts until this process ends');
      });
    },
  };
}
