// Keeps the memory of the GPUs' faults on the disk, because the kernel's log is a ring: a record of a fault may be overwritten before the agent
// starts again.
import { join } from 'node:path';
import type { Log } from '../../shared/log.ts';
import type { StateFiles } from '../host/state.ts';
import { Memory, memoryOf } from './faults.ts';

export interface KeptMemory {
  now(): Memory;
  /** Resolves once `next` is stored, or could not be stored, which is logged. Calls may overlap: the file is written once at a time. */
  replace(next: Memory): Promise<void>;
}

export async function openMemory(
  stateDir: string,
  bootId: string,
  { files, log }: { files: StateFiles; log: Log },
): Promise<KeptMemory> {
  const file = join(stateDir, 'gpus.json');
  const stored = await files.read(file, Memory).catch((error: unknown) => {
    log.error({ err: error }, 'the record of GPU faults (gpus.json) is damaged, so the agent begins with an empty one');
    return undefined;
  });
  let memory = memoryOf(stored, bootId);
  let lastStore = Promise.resolve();
  const store = async (): Promise<void> => {
    await files.write(file, memory).catch((error: unknown) => {
      log.error(
        { err: error },
        'the record of GPU faults (gpus.json) could not be stored, so it is lost when the agent ends: look at the disk',
      );
    });
  };
  return {
    now: () => memory,
    replace: async (next) => {
      const isNew = JSON.stringify(next) !== JSON.stringify(memory);
      memory = next;
      if (!isNew) return;
      lastStore = lastStore.then(store);
      await lastStore;
    },
  };
}
