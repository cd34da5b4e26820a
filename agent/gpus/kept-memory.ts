// Keeps the memory of the GPUs' faults on the disk, because the kernel's log is a ring: a record of a fault may be overwritten before the agent
// starts again.
import { join } from 'node:path';
import type { Log } from '../../shared/log.ts';
import type { StateFiles } from '../host/state.ts';
import { Memory, memoryOf } from './faults.ts';

export interface KeptMemory {
  now(): Memory;
  /** Resolves once the memory is stored, or could not be. Calls may overlap: the file is written once at a time. */
  become(next: Memory): Promise<void>;
}

export async function openMemory(
  stateDir: string,
  bootId: string,
  { files, log }: { files: StateFiles; log: Log },
): Promise<KeptMemory> {
  const file = join(stateDir, 'gpus.json');
  const stored = await files.read(file, Memory).catch((error: unknown) => {
    log.error({ err: error }, 'the record of the GPUs is damaged and begins empty');
    return undefined;
  });
  let memory = memoryOf(stored, bootId);
  let storing = Promise.resolve();
  const store = async (): Promise<void> => {
    await files.write(file, memory).catch((error: unknown) => {
      log.error({ err: error }, 'the record of the GPUs could not be stored; it counts until this process ends');
    });
  };
  return {
    now: () => memory,
    become: async (next) => {
      const isNews = JSON.stringify(next) !== JSON.stringify(memory);
      memory = next;
      if (isNews) await (storing = storing.then(store));
    },
  };
}
