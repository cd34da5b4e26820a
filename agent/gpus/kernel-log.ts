// Reads the kernel's log record by record from its device, and drops lines that were not written by the kernel itself.
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { codeOf } from '../../shared/errors.ts';

export interface KernelRecord {
  /** Sequence number within one boot. */
  seq: number;
  text: string;
}

export interface KernelLog {
  /** The driver's records since the last call; at the first call, all that the kernel still has. Rejects if the log cannot be read. */
  read(): Promise<KernelRecord[]>;
  close(): Promise<void>;
}

const KERNEL_LOG = '/dev/kmsg';
/** The kernel's longest records have 8 KiB, and it refuses a read with a smaller buffer. */
const BUFFER_BYTES = 16 * 1024;
/** All lines of the NVIDIA kernel modules begin with this. */
const DRIVER_PREFIX = 'NVRM: ';
const FACILITY_KERNEL = 0;

/** Opens the device at the first read. `path` is for tests: a file with such records. */
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

/** The number of bytes read; 0 if there is no new record. */
async function readSome(file: FileHandle, buffer: Buffer): Promise<number> {
  for (;;) {
    try {
      return (await file.read(buffer, 0, buffer.length, null)).bytesRead;
    } catch (error) {
      const code = codeOf(error);
      if (code === 'EAGAIN') return 0;
      // Records were overwritten before we read them. The next read continues with the oldest one left.
      if (code !== 'EPIPE') throw error;
    }
  }
}

/**
 * Parses `priority,sequence,microseconds,flags;text`. Returns an empty list unless NVIDIA's driver has written the record: a record that a
 * program has written into the device has another facility, and a line that begins with a space is a field of the record before it.
 */
function driverRecord(line: string): KernelRecord[] {
  const [, priority, seq, text] = /^(\d+),(\d+),[^;]*;(.*)$/.exec(line) ?? [];
  if (priority === undefined || seq === undefined || text === undefined) return [];
  if (Number(priority) >> 3 !== FACILITY_KERNEL || !text.startsWith(DRIVER_PREFIX)) return [];
  return [{ seq: Number(seq), text }];
}
