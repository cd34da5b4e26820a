// The disk of a host in memory: files outlast the agent, and a full disk takes nothing.
import type { StateFiles } from '../../agent/host/state.ts';
import type { Clock } from '../../shared/clock.ts';

export interface Disk {
  files: StateFiles;
  isFull: boolean;
  /** A second disk with the same content. */
  copy(): Disk;
}

export function openDisk(clock: Clock, content: ReadonlyMap<string, string> = new Map()): Disk {
  const texts = new Map(content);
  const disk: Disk = {
    isFull: false,
    copy: () => openDisk(clock, texts),
    files: {
      read: async (file, schema) => {
        await clock.nextTurn();
        const text = texts.get(file);
        return text === undefined ? undefined : schema.parse(JSON.parse(text));
      },
      write: async (file, value) => {
        await clock.nextTurn();
        if (disk.isFull) throw new Error(`ENOSPC: no space left on device, write '${file}'`);
        texts.set(file, JSON.stringify(value));
      },
      list: async (folder) => {
        await clock.nextTurn();
        const below = [...texts.keys()].filter((file) => file.startsWith(`${folder}/`));
        return [...new Set(below.map((file) => file.slice(folder.length + 1).split('/')[0] ?? ''))];
      },
      remove: async (path) => {
        await clock.nextTurn();
        for (const file of texts.keys()) if (file === path || file.startsWith(`${path}/`)) texts.delete(file);
      },
    },
  };
  return disk;
}
