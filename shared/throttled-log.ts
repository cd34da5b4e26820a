// A log with a limit of lines per stranger, so that a hostile host or caller cannot fill the operator's disk.
import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

/** Lines per machine or address. */
const LINES_PER_WINDOW = 30;
const WINDOW_MS = 60_000;
/** Sources with a count of their own at a time; all others share one count. */
const SOURCES_MAX = 10_000;
const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

interface Count {
  untilMs: number;
  lines: number;
  suppressed: number;
}

/**
 * Wraps a log. Lines with a `machine_id` or `client_ip` are counted per value: above 30 in a minute they are dropped, and the first line
 * afterwards contains their number (`suppressed_lines`). Lines without these fields are our own and are all written.
 */
export function throttledLog(log: Log, clock: Clock): Log {
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
  const { machine_id: machineId, client_ip: clientIp } = fields as { machine_id?: unknown; client_ip?: unknown };
  if (typeof machineId === 'string') return machineId;
  return typeof clientIp === 'string' ? clientIp : undefined;
}

function forgetOld(counts: Map<string, Count>, nowMs: number): void {
  for (const [source, { untilMs }] of counts) if (untilMs <= nowMs) counts.delete(source);
}
