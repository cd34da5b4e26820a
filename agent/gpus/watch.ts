// The GPUs of this machine as they are told to the control plane, also while nvidia-smi fails.
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { readGpus } from './nvidia-smi.ts';

export type GpuReading = Pick<Inventory, 'gpus' | 'gpu_error'>;

export interface GpuWatch {
  /** Never rejects. `containerIds`: whose processes are not strangers. */
  read(containerIds: readonly string[]): Promise<GpuReading>;
}

const ERROR_CHARS_MAX = 400;

/**
 * A driver that is upgraded under a running kernel fails until the next boot, and rentals go on meanwhile: the agent must too. One that
 * fails once may only be busy: what was known counts until it fails again.
 */
export function openGpuWatch(nvidiaSmi: string, log: Log): GpuWatch {
  let known: GpuReading | undefined;
  let broken = false;
  return {
    read: async (containerIds) => {
      try {
        known = { gpus: await readGpus(nvidiaSmi, containerIds), gpu_error: '' };
        broken = false;
        return known;
      } catch (error) {
        const [last, detail] = [known, messageOf(error).slice(0, ERROR_CHARS_MAX)];
        known = undefined;
        if (last !== undefined) return last;
        if (!broken) log.error({ detail }, 'nvidia-smi fails: no GPU of this machine is offered');
        broken = true;
        return { gpus: [], gpu_error: detail };
      }
    },
  };
}
