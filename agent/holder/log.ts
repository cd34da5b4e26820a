// Where a holder's log goes: a file that never grows beyond a bound, since whoever may log in to the workload can make it say more.
import { fstatSync, ftruncateSync } from 'node:fs';
import type { DestinationStream } from 'pino';
import { lossyDestination } from '../../shared/log.ts';

const LOG_BYTES_MAX = 1024 * 1024;

/** Lines go to the open file `fd`, which begins anew where it would grow beyond LOG_BYTES_MAX. A line that cannot be written is lost. */
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
