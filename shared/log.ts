// Structured logs: pino JSON lines with ids in fields. Secrets are cut out here, whatever a caller passes.
import { pino, type DestinationStream, type Logger } from 'pino';

export type Log = Logger;

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
export function createLog(name: string, level: string, destination?: DestinationStream): Log {
  const options = {
    name,
    level,
    base: { name },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}
