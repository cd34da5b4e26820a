// Structured logs: pino JSON lines with ids in fields. Secrets are cut out here, whatever a caller passes.
import { writeSync } from 'node:fs';
import { pino, type DestinationStream, type Logger } from 'pino';

export type Log = Logger;

/** Not by Node's own stream: one that leads to a pipe would no longer wait for who reads it. */
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

/** Warnings of Node go where everything goes, not to the terminal of a daemon that has none. */
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
 * Writes lines to an open file at once. One that cannot be written is lost: pino's own destination tries again for ever on a full disk, and the
 * daemon hangs.
 */
export function lossyDestination(fd: number): DestinationStream {
  /** The last line was written in part. */
  let torn = false;
  return {
    write: (line) => {
      const bytes = Buffer.from(torn ? `\n${line}` : line);
      try {
        const written = writeSync(fd, bytes);
        if (written > 0) torn = written < bytes.length;
      } catch {
        // A log is not worth the service.
      }
    },
  };
}
