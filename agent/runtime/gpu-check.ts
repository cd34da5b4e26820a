// Finds out whether the engine can give GPUs to a container: before the host is enrolled, and after the engine has refused GPUs to a rental.
//
// Docker selects a driver for the GPUs of a container at its start. It has one if it was started with the container toolkit's hook in its PATH, or
// if it knows CDI devices; which of the two depends on its version. Later the hook itself may fail, or be gone. Therefore we ask the engine for a
// container with the GPUs, in which the image of no customer has a say:
//
//     no driver     could not select device driver "nvidia" with capabilities: [[gpu]]
//     no hook       exec: "nvidia-container-runtime-hook": executable file not found in $PATH
//     a bad hook    nvidia-container-cli: initialization error: load library failed
//     all is well   exec: "/none": no such file or directory. The hook has run, and the program does not exist, so nothing runs in any case
import { messageOf } from '../../shared/errors.ts';
import { GPUS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import type { Log } from '../../shared/log.ts';
import type { GpuFault } from '../../shared/protocol/inventory.ts';
import type { GpuReading } from '../gpus/watch.ts';
import type { Engine } from './engine.ts';

export interface GpuCheck {
  /** The engine has refused GPUs to a rental: the next `ask` asks it. That refusal itself does not count, because an image can choose its words. */
  doubt(): void;
  /**
   * Asks the engine for GPUs that are not broken, if there is a doubt; true if it has begun or ceased to give them. The doubt lasts while
   * it gives none. Rejects if it does not answer.
   */
  ask(reading: GpuReading): Promise<boolean>;
  /** The reading with a fault for each whole GPU, if the engine gives none. */
  applyTo(reading: GpuReading): GpuReading;
}

const DETAIL_CHARS_MAX = 200;
const PROGRAM = '/none';

export function openGpuCheck({ engine, log }: { engine: Pick<Engine, 'runBare' | 'version'>; log: Log }): GpuCheck {
  let isDoubted = false;
  let lack: string | undefined;
  return {
    doubt: () => void (isDoubted = true),
    ask: async ({ gpus, gpu_faults: faults }) => {
      const broken = new Set(faults.filter(({ severity }) => severity === 'broken').map(({ uuid }) => uuid));
      const uuids = gpus.map(({ uuid }) => uuid).filter((uuid) => !broken.has(uuid));
      if (!isDoubted || uuids.length === 0) return false;
      await engine.version();
      isDoubted = false;
      // A refusal for another reason, as of a full disk, says nothing new.
      const { lack: found } = (await askFor(engine, uuids)) ?? { lack };
      isDoubted ||= found !== undefined;
      if ((found === undefined) === (lack === undefined)) return false;
      lack = found;
      if (found === undefined) log.info('the container engine gives GPUs to containers again');
      else log.error({ detail: found }, 'the container engine gives no GPUs: none of this machine is offered');
      return true;
    },
    applyTo: (reading) => {
      if (lack === undefined) return reading;
      const detail = lack.slice(0, DETAIL_CHARS_MAX);
      const faulty = new Set(reading.gpu_faults.map(({ uuid }) => uuid));
      const whole = reading.gpus.filter(({ uuid }) => !faulty.has(uuid));
      const faults = whole.map(({ uuid }): GpuFault => ({ uuid, severity: 'unfit', detail }));
      return { ...reading, gpu_faults: [...reading.gpu_faults, ...faults].slice(0, GPUS_PER_MACHINE_MAX) };
    },
  };
}

/** What the supplier must do before containers get GPUs; undefined if they do, or if the engine does not say it. Takes about a second. */
export async function findGpuLack(
  engine: Pick<Engine, 'runBare'>,
  gpuUuids: readonly string[],
): Promise<string | undefined> {
  return (await askFor(engine, gpuUuids))?.lack;
}

/** Undefined if the engine has refused the container for another reason, so that it does not say whether it gives GPUs. */
async function askFor(
  engine: Pick<Engine, 'runBare'>,
  gpuUuids: readonly string[],
): Promise<{ lack: string | undefined } | undefined> {
  const container = { argv: [PROGRAM], mounts: [], disk_mib: null, network: false, gpu_uuids: gpuUuids };
  const refusal = await engine.runBare({ name: 'gpus', ...container }).then(() => PROGRAM, messageOf);
  // The device of a single GPU is no matter of the engine: nvidia-smi and the kernel log tell about it.
  if (refusal.includes(PROGRAM) || refusal.includes('device error')) return { lack: undefined };
  if (!/device driver|nvidia|\bcdi\b/i.test(refusal)) return undefined;
  const remedy = 'install the NVIDIA Container Toolkit, then systemctl restart docker';
  return { lack: `Docker cannot give a GPU to a container: ${remedy} (${refusal})` };
}
