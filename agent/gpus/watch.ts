// Reads the GPUs of this machine and their faults for the inventory, also while nvidia-smi fails.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { GpuFault, Inventory } from '../../shared/protocol/inventory.ts';
import { afterListing, afterRecords, faultsOf, passedOver, withExcluded } from './faults.ts';
import type { StateFiles } from '../host/state.ts';
import { type KeptMemory, openMemory } from './kept-memory.ts';
import type { KernelLog } from './kernel-log.ts';
import { readGpus, readUnfit } from './nvidia-smi.ts';

export type GpuReading = Pick<Inventory, 'gpus' | 'gpu_error' | 'gpu_faults'>;

export interface GpuWatch {
  /** Never rejects. `containerIds`: the containers whose processes are not foreign, once the processes are known. */
  read(containerIds: () => readonly string[]): Promise<GpuReading>;
  /** Reads new records of the kernel log; true if they change the faults. Never rejects. */
  hear(): Promise<boolean>;
  close(): Promise<void>;
}

export interface GpuWatchDeps {
  nvidiaSmi: string;
  /** UUIDs of the GPUs that the supplier keeps. */
  excluded: readonly string[];
  stateDir: string;
  files: StateFiles;
  /** Changes with every boot. A boot resets all cards. */
  bootId: string;
  kernelLog: KernelLog;
  clock: Clock;
  log: Log;
}

const ERROR_CHARS_MAX = 400;
/** If eight cards have no persistence mode, nvidia-smi takes ten seconds per query. */
const READ_MS_MAX = 60_000;

/**
 * The reading, or an error after READ_MS_MAX. A broken card can block nvidia-smi so that not even SIGKILL ends it. The process is left as
 * it is.
 */
export async function inTime<T>(
  reading: Promise<T>,
  { nvidiaSmi, clock }: Pick<GpuWatchDeps, 'nvidiaSmi' | 'clock'>,
): Promise<T> {
  const over = new AbortController();
  const tooLong = clock.sleep(READ_MS_MAX, over.signal).then(() => {
    throw new Error(`${nvidiaSmi} does not come to an end: reboot the host`);
  });
  return Promise.race([reading, tooLong]).finally(() => over.abort());
}

/**
 * After an upgrade of the driver, nvidia-smi fails until the next boot. Rentals go on meanwhile, so the agent must go on too. If
 * nvidia-smi fails once, or omits a card once, it may only be busy: the reading before counts until it fails again.
 */
export async function openGpuWatch(deps: GpuWatchDeps): Promise<GpuWatch> {
  const { log, clock } = deps;
  const memory = await openMemory(deps.stateDir, deps.bootId, deps);
  const listener = openListener(memory, deps);
  let known: GpuReading['gpus'] | undefined;
  let unfit: ReadonlyMap<string, string> = new Map();
  const unfitAnswers = new Map<string, string[][]>();
  let broken = false;
  let isWarned = false;
  const warnOfUnknown = (unknown: string[]): void => {
    if (unknown.length === 0 || isWarned) return;
    isWarned = true;
    log.warn({ unknown }, 'excluded_gpus names GPUs that this host does not have');
  };
  const faults = (): GpuFault[] => faultsOf(memory.now(), unfit, clock.now());

  const query = async (containerIds: () => readonly string[]): Promise<GpuReading['gpus']> => {
    const found = await readGpus(deps.nvidiaSmi, containerIds);
    // An upgrade of the driver removes nvidia-smi for about a minute. Rentals still compute on the cards that it has listed.
    if (found === undefined && memory.now().cards.some((card) => card.listed !== null)) {
      throw new Error(`${deps.nvidiaSmi} is missing: install the NVIDIA driver`);
    }
    const listed = found ?? [];
    unfit = withExcluded(await readUnfit(deps.nvidiaSmi, unfitAnswers), deps.excluded);
    await memory.replace(afterListing(memory.now(), listed, clock.now()));
    warnOfUnknown(deps.excluded.filter((uuid) => !memory.now().cards.some((card) => card.uuid === uuid)));
    return [...listed, ...passedOver(memory.now())];
  };

  /** While a query has not come to an end, no second one is started. */
  let querying: Promise<GpuReading['gpus']> | undefined;
  const queryInTime = async (containerIds: () => readonly string[]): Promise<GpuReading['gpus']> => {
    querying ??= query(containerIds).finally(() => (querying = undefined));
    return inTime(querying, deps);
  };

  return {
    read: async (containerIds) => {
      await listener.hear();
      try {
        known = await queryInTime(containerIds);
        broken = false;
        return { gpus: known, gpu_error: '', gpu_faults: faults() };
      } catch (error) {
        const last = known;
        const detail = messageOf(error).slice(0, ERROR_CHARS_MAX);
        known = undefined;
        if (last !== undefined) return { gpus: last, gpu_error: '', gpu_faults: faults() };
        if (!broken) log.error({ detail }, 'nvidia-smi fails: no GPU of this machine is offered');
        broken = true;
        return { gpus: [], gpu_error: detail, gpu_faults: faults() };
      }
    },
    hear: async () => {
      const before = JSON.stringify(faults());
      await listener.hear();
      return JSON.stringify(faults()) !== before;
    },
    close: () => listener.close(),
  };
}

interface Listener {
  /** Takes the new records of the kernel log into account. Calls run one after another, so that the records count in their order. */
  hear(): Promise<void>;
  close(): Promise<void>;
}

function openListener(memory: KeptMemory, { kernelLog, clock, log }: GpuWatchDeps): Listener {
  let isDeaf = false;
  let listening = Promise.resolve();
  const listen = async (): Promise<void> => {
    try {
      const records = await kernelLog.read();
      await memory.replace(afterRecords(memory.now(), records, clock.now()));
      isDeaf = false;
    } catch (error) {
      if (!isDeaf)
        log.warn({ detail: messageOf(error) }, 'the kernel log cannot be read: errors of GPUs stay unnoticed');
      isDeaf = true;
    }
  };
  return {
    hear: () => {
      listening = listening.then(listen);
      return listening;
    },
    close: async () => {
      await listening;
      await kernelLog.close();
    },
  };
}
