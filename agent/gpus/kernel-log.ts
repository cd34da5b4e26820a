// The kernel's log, read record by record from its device: no program between, and no line that anybody but the kernel wrote.
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';

export interface KernelRecord {
  /** Grows with every record of a boot. */
  seq: number;
  text: string;
}

export interface KernelLog {
  /** The driver's records that have come since the last call; at the first one, all that the kernel still has. Rejects where it cannot be read. */
  read(): Promise<KernelRecord[]>;
  close(): Promise<void>;
}

const KERNEL_LOG = '/dev/kmsg';
/** The kernel refuses to give a record to a reader with less room, and its longest are 8 KiB. */
const BUFFER_BYTES = 16 * 1024;
/** All lines of the NVIDIA kernel modules begin so. */
const DRIVER_PREFIX = 'NVRM: ';
const FACILITY_KERNEL = 0;

/** Opens nothing yet. `path` is for tests: a file of such records. */
export function openKernelLog(path = KERNEL_LOG): KernelLog {
  let file: FileHandle | undefined;
  let rest = '';
  const buffer = Buffer.alloc(BUFFER_BYTES);
  return {
    read: async () => {
      file ??= await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
      const records: KernelRecord[] = [];
      for (;;) {
        const bytes = await readSome(file, buffer);
        if (bytes === 0) return records;
        const lines = (rest + buffer.toString('utf8', 0, bytes)).split('\n');
        rest = lines.pop() ?? '';
        records.push(...lines.flatMap(driverRecord));
      }
    },
    close: async () => {
      await file?.close();
      file = undefined;
    },
  };
}

/** 0 at the end for now. */
async function readSome(file: FileHandle, buffer: Buffer): Promise<number> {
  for (;;) {
    try {
      return (await file.read(buffer, 0, buffer.length, null)).bytesRead;
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      if (code === 'EAGAIN') return 0;
      // Records were overwritten before they were read: the next read goes on with the oldest that is left.
      if (code !== 'EPIPE') throw error;
    }
  }
}

/**
 * `priority,sequence,microseconds,flags;text`. What a program writes into this device is given another facility by the kernel, and lines
 * that begin with a space are the record's fields.
 */
function driverRecord(line: string): KernelRecord[] {
  const [, priority, seq, text] = /^(\d+),(\d+),[^;]*;(.*)$/.exec(line) ?? [];
  if (priority === undefined || seq === undefined || text === undefined) return [];
  if (Number(priority) >> 3 !== FACILITY_KERNEL || !text.startsWith(DRIVER_PREFIX)) return [];
  return [{ seq: Number(seq), text }];
}
