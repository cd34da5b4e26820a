// Writes a holder's log to a file of bounded size, because a client of the workload can cause any number of lines.
import { fstatSync, ftruncateSync } from 'node:fs';
import type { DestinationStream } from 'pino';
import { lossyDestination } from '../../shared/log.ts';

const LOG_BYTES_MAX = 1024 * 1024;

/** Writes lines to the open file `fd`, and empties it before it grows beyond LOG_BYTES_MAX. A line that cannot be written is lost. */
export function boundedLog(fd: number): DestinationStream {
  const lines = lossyDestination(fd);
  return {
    write: (line) => {
      const file = fstatSync(fd);
      if (file.isFile() && file.size + Buffer.byteLength(line) > LOG_BYTES_MAX) ftruncateSync(fd);
      lines.write(line);
    },
  };
}
