// Structured logs: pino JSON lines with ids in fields. Secrets are removed here, whatever a caller passes. A throttled log has a limit of lines per
// stranger, so that a hostile host or caller cannot fill the operator's disk.
import { writeSync } from 'node:fs';
import { pino, type DestinationStream, type Logger } from 'pino';
import type { Clock } from './clock.ts';
import { messageOf } from './errors.ts';

export type Log = Logger;

/**
 * The file descriptor is used and not `process.stdout`, which would make a pipe non-blocking. A write would then no longer wait for the
 * reader.
 */
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
    serializers: { err: errorFields },
    redact: { paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`]), censor: '[redacted]' },
  };
  return pino(options, destination);
}

/** pino repeats the message of each cause, but many of our messages already end with it. */
function errorFields(error: unknown): unknown {
  return error instanceof Error ? { ...pino.stdSerializers.err(error), message: wholeMessage(error) } : error;
}

/** The messages of the error and its causes, without those that are a part of one before. */
function wholeMessage(error: Error): string {
  let text = messageOf(error);
  const seen = new Set<unknown>([error]);
  for (let { cause } = error; cause instanceof Error && !seen.has(cause); { cause } = cause) {
    seen.add(cause);
    const more = messageOf(cause);
    if (!text.includes(more)) text = `${text}: ${more}`;
  }
  return text;
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

/** Maximum number of lines per machine, address or organisation in one window. */
const LINES_PER_WINDOW = 30;
const WINDOW_MS = 60_000;
/** Maximum number of machines, addresses and organisations that are counted separately at a time. All others share one count. */
const SOURCES_MAX = 10_000;
const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

interface Count {
  untilMs: number;
  lines: number;
  suppressed: number;
}

/**
 * Wraps a log. Lines with a `machine_id`, `client_ip` or `org_id` are counted per value of the first of these: above 30 in a minute they are dropped,
 * and the first line afterwards contains their number (`suppressed_lines`). Lines without these fields are our own and are all written.
 */
export function throttledLog(log: Log, clock: Pick<Clock, 'monotonicMs'>): Log {
  const counts = new Map<string, Count>();
  const countOf = (source: string): Count => {
    const nowMs = clock.monotonicMs();
    if (!counts.has(source) && counts.size >= SOURCES_MAX) forgetOld(counts, nowMs);
    const key = counts.has(source) || counts.size < SOURCES_MAX ? source : 'others';
    const known = counts.get(key);
    if (known !== undefined && nowMs < known.untilMs) return known;
    const fresh = { untilMs: nowMs + WINDOW_MS, lines: 0, suppressed: known?.suppressed ?? 0 };
    counts.set(key, fresh);
    return fresh;
  };
  const write = (level: (typeof LEVELS)[number], args: [object | string, string?]): void => {
    const [fields, message] = args;
    const source = typeof fields === 'string' ? undefined : sourceOf(fields);
    if (source === undefined || typeof fields === 'string') return log[level](fields as object, message);
    const count = countOf(source);
    count.lines += 1;
    if (count.lines > LINES_PER_WINDOW) {
      count.suppressed += 1;
      return;
    }
    const { suppressed } = count;
    count.suppressed = 0;
    log[level](suppressed === 0 ? fields : { ...fields, suppressed_lines: suppressed }, message);
  };
  const methods = LEVELS.map((level) => [level, (...args: [object | string, string?]) => write(level, args)] as const);
  return Object.assign(Object.create(log) as Log, Object.fromEntries(methods));
}

function sourceOf(fields: object): string | undefined {
  const { machine_id: machineId, client_ip: clientIp, org_id: orgId } = fields as Record<string, unknown>;
  return [machineId, clientIp, orgId].find((source) => typeof source === 'string');
}

function forgetOld(counts: Map<string, Count>, nowMs: number): void {
  for (const [source, { untilMs }] of counts) if (untilMs <= nowMs) counts.delete(source);
}
