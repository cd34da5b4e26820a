// Structured logs: pino JSON lines with ids in fields. Secrets are removed here, whatever a caller passes.
import { writeSync } from 'node:fs';
import { pino, type DestinationStream, type Logger } from 'pino';

export type Log = Logger;

/** The file descriptor, not `process.stdout`: using that makes a pipe non-blocking, and then a write no longer waits for the reader. */
const STDOUT = 1;

/** Field names that may hold a secret, at the top level and one level down. */
const SECRET_FIELDS = [
  'authorization',
  'token',
  'enrollment_token',
  'secret',
  'password',
  'app_password',
  'private_key',
];

/** Writes Node's warnings to the log instead of standard error. */
export function logWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', (warning) => log.warn({ warning: warning.name, err: warning }, 'Node warns'));
}

/** `level` as in pino (`info`, `debug`, `silent`, ...). */
export function createLog(name: string, level: string, destination: DestinationStream = lossyDestination(STDOUT)): Log {
  const options = {
    name,
    level,
    base: { name },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
  };
  return pino(options, destination);
}

/**
 * Writes each line to an open file at once. A line that cannot be written is lost: on a full disk, pino's own destination would try
 * again for ever, and the daemon would hang.
 */
export function lossyDestination(fd: number): DestinationStream {
  /** True if the last line was written only in part. */
  let torn = false;
  return {
    write: (line) => {
      const bytes = Buffer.from(torn ? `\n${line}` : line);
      try {
        const written = writeSync(fd, bytes);
        if (written > 0) torn = written < bytes.length;
      } catch {
        // A failed log write must not stop the service.
      }
    },
  };
}
