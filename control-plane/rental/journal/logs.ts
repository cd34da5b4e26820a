// Reads and follows the log of an instance's container, over a data stream from its host, or what is kept of it after the end of the instance.
import type { Duplex } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import { z } from 'zod';
import { KEPT_LOG_KIB } from '../../../shared/api/instance-journal.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, messageOf } from '../../../shared/errors.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import {
  LOG_FOLLOWERS_PER_ORG_MAX,
  LOG_LINES_MAX,
  LOG_READ_CHARS_MAX,
  LOG_READ_MS_MAX,
  LOG_READS_PER_ORG_MAX,
} from '../../../shared/limits.ts';
import { openSemaphore } from '../../../shared/semaphore.ts';
import { LOG_LINE_BYTES_MAX, LogLine } from '../../../shared/protocol/workload.ts';
import type { Db } from '../../base/db/db.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { Caller } from '../../base/http/route.ts';
import { mayStill } from '../../base/users/sessions.ts';
import type { Link } from '../../fleet/link/link.ts';
import { findRental, LIVE } from '../instances/store.ts';
import { type KeptLogs, openKeptLogs } from './kept-logs.ts';
import { CHECK_MS } from './live.ts';

export interface LogRequest {
  tail: number;
  /** Only lines after this time; ISO 8601. */
  since: string | undefined;
}

export interface Logs {
  /**
   * The last lines, oldest first.
   * @throws ServiceError `not_found`, `logs_unavailable`, `unavailable`, `rate_limit_exceeded` if the organisation reads too many logs
   */
  read(orgId: string, instanceId: string, wish: LogRequest): Promise<LogLine[]>;
  /** @throws ServiceError as `read`, and `rate_limit_exceeded` if the organisation follows too many logs */
  follow(caller: Caller, instanceId: string, wish: LogRequest): Promise<FollowedLog>;
  /**
   * Keeps the last lines for the time after the instance, which ends now, and waits for a short time for those who follow its log here. If the host
   * does not send the lines, that is logged, and nothing is kept.
   */
  keep(instance: { id: string; org_id: string }): Promise<void>;
  /** Removes kept logs whose time is over. Resolves with their number. */
  forget(signal: AbortSignal): Promise<number>;
  /** Ends all followed logs. */
  close(): void;
}

export interface FollowedLog {
  /** The last lines and then each new line, until the container stops. Breaks off if the caller's key or session ends. */
  lines: AsyncIterable<LogLine>;
  /** Closes the stream, also while the reader waits for the next line, because a log may be silent for days. */
  stop(): void;
}

interface Follower {
  orgId: string;
  instanceId: string;
  /** Undefined while the stream is being opened. */
  stream: Duplex | undefined;
  /** When its reader took the last line, by the monotonic clock; undefined before the first one. */
  lineMs: number | undefined;
}

interface LogsDeps {
  db: Db;
  clock: Clock;
  log: Log;
  sealing: Sealing;
  link: Pick<Link, 'openStream'>;
}

interface ReadDeps extends LogsDeps {
  kept: KeptLogs;
  followers: Set<Follower>;
}

/** A line as a host must send it. Its time goes into the stream as the id of an event, and readers send it back as `since`. */
const HostLine = LogLine.extend({ at: z.iso.datetime({ offset: true }).max(40) });

const TRY_AGAIN_SECONDS = 10;
/** An honest host sends a whole log in less than a second, so some reads come to their turn within this time. */
const READ_WAIT_MS = 5_000;
/** A container may be removed as soon as its instance has ended, so those who follow its log have this time. The instance is not charged for it. */
const DRAIN_MS_MAX = 10_000;
const DRAIN_CHECK_MS = 100;
/** An instance waits for its log with its end, so a slow host has less time than for a reader. */
const KEEP_MS_MAX = 10_000;
/** A reader that has taken no line for this time has read what there is. */
const SILENT_MS = 1_000;

export function openLogs(given: LogsDeps): Logs {
  const kept = openKeptLogs(given);
  const followers = new Set<Follower>();
  // Clients choose how often they ask, so the log lines about a host are limited.
  const log = throttledLog(given.log, given.clock);
  const deps: ReadDeps = { ...given, log, kept, followers };
  const reads = openSemaphore(deps.clock, LOG_READS_PER_ORG_MAX);
  return {
    read: async (orgId, instanceId, wish) => {
      const whole = { ...wish, charsMax: LOG_READ_CHARS_MAX, msMax: LOG_READ_MS_MAX };
      const lines = await reads.run(orgId, READ_WAIT_MS, () => readLog(orgId, instanceId, whole, deps));
      if (lines !== undefined) return lines;
      return fail('rate_limit_exceeded', {
        detail: `This organisation reads ${LOG_READS_PER_ORG_MAX} logs already. Send the request again when one of them is there.`,
        retryAfterSeconds: TRY_AGAIN_SECONDS,
      });
    },
    follow: (caller, instanceId, wish) => followLog(caller, instanceId, wish, deps),
    keep: async ({ id, org_id }) => {
      await untilSilent(id, deps);
      await keepLog(org_id, id, deps);
    },
    forget: (signal) => kept.forget(signal),
    close: () => {
      for (const { stream } of followers) stream?.destroy();
      followers.clear();
    },
  };
}

/** @throws ServiceError as `openLog`, and `rate_limit_exceeded` */
async function followLog(caller: Caller, instanceId: string, wish: LogRequest, deps: ReadDeps): Promise<FollowedLog> {
  const { clock, followers } = deps;
  const { orgId } = caller;
  const own = [...followers].filter((other) => other.orgId === orgId);
  if (own.length >= LOG_FOLLOWERS_PER_ORG_MAX) {
    fail('rate_limit_exceeded', {
      detail: `This organisation follows ${LOG_FOLLOWERS_PER_ORG_MAX} logs already. End one of them first.`,
      retryAfterSeconds: TRY_AGAIN_SECONDS,
    });
  }
  // The follower is counted before its stream is open, so that simultaneous requests count too.
  const follower: Follower = { orgId, instanceId, stream: undefined, lineMs: undefined };
  followers.add(follower);
  const forget = (): void => void followers.delete(follower);
  const opening = openLog(orgId, instanceId, { ...wish, follow: true }, deps);
  opening.catch(forget);
  const opened = await opening;
  if ('kept' in opened) {
    forget();
    return { lines: linesAgain(opened.kept), stop: () => undefined };
  }
  const { stream } = opened;
  follower.stream = stream;
  const unwatch = watch(stream, caller, deps);
  stream.once('close', () => {
    unwatch();
    forget();
  });
  return { lines: noted(linesOf(stream, wish.since), follower, clock), stop: () => void stream.destroy() };
}

async function* linesAgain(lines: readonly LogLine[]): AsyncGenerator<LogLine> {
  yield* lines;
}

async function* noted(lines: AsyncIterable<LogLine>, follower: Follower, clock: Clock): AsyncGenerator<LogLine> {
  for await (const line of lines) {
    follower.lineMs = clock.monotonicMs();
    yield line;
  }
}

/** Resolves when those who follow this log have read what there is of it, or after DRAIN_MS_MAX. */
async function untilSilent(instanceId: string, { clock, followers }: ReadDeps): Promise<void> {
  const untilMs = clock.monotonicMs() + DRAIN_MS_MAX;
  const reads = ({ instanceId: id, lineMs }: Follower): boolean =>
    id === instanceId && lineMs !== undefined && clock.monotonicMs() - lineMs < SILENT_MS;
  while ([...followers].some(reads) && clock.monotonicMs() < untilMs) await clock.sleep(DRAIN_CHECK_MS);
}

/** Ends the stream if its reader may not read any more. A timer asks, because a log may be silent for days. The returned function stops it. */
function watch(stream: Duplex, caller: Caller, { db, clock }: LogsDeps): () => void {
  let cancel = (): void => undefined;
  const check = async (): Promise<void> => {
    // If the database is away, the stream breaks off too. Its reader then begins again where it was.
    const may = await mayStill(db.read, caller, clock.now()).catch(() => false);
    if (!may) stream.destroy(new Error('the key or session of the reader has ended'));
    else if (!stream.destroyed) next();
  };
  const next = (): void => {
    cancel = clock.after(CHECK_MS, () => void check());
  };
  next();
  return () => cancel();
}

async function keepLog(orgId: string, instanceId: string, deps: ReadDeps): Promise<void> {
  const last = { tail: LOG_LINES_MAX, since: undefined, charsMax: KEPT_LOG_KIB * 1024, msMax: KEEP_MS_MAX };
  try {
    await deps.kept.keep({ orgId, instanceId }, await readLog(orgId, instanceId, last, deps));
  } catch (error) {
    deps.log.warn({ instance_id: instanceId, err: error }, 'the log of an instance that ends could not be kept');
  }
}

async function readLog(
  orgId: string,
  instanceId: string,
  { charsMax, msMax, ...wish }: LogRequest & { charsMax: number; msMax: number },
  deps: ReadDeps,
): Promise<LogLine[]> {
  const opened = await openLog(orgId, instanceId, { ...wish, follow: false }, deps);
  if ('kept' in opened) return opened.kept;
  const { stream, machineId } = opened;
  const tooSlow = new Error('the host did not send the log in time');
  const cancel = deps.clock.after(msMax, () => stream.destroy(tooSlow));
  const lines: LogLine[] = [];
  let count = 0;
  let chars = 0;
  try {
    for await (const line of linesOf(stream, wish.since)) {
      if (count === wish.tail) throw new Error('the host sent more lines than were asked for');
      lines.push(line);
      count += 1;
      chars += line.line.length;
      while (chars > charsMax) chars -= lines.shift()?.line.length ?? 0;
    }
  } catch (error) {
    deps.log.warn(
      { instance_id: instanceId, machine_id: machineId, detail: messageOf(error) },
      'a host broke off the log of an instance',
    );
    return unreachable();
  } finally {
    cancel();
    stream.destroy();
  }
  // The engine writes what it reads first. It reads the two streams of a container apart, so two lines that are close may be in the wrong order.
  const ordered = lines.map((line) => ({ line, at: sortable(line.at) }));
  ordered.sort((a, b) => {
    if (a.at === b.at) return 0;
    return a.at < b.at ? -1 : 1;
  });
  return ordered.map(({ line }) => line);
}

async function openLog(
  orgId: string,
  instanceId: string,
  wish: LogRequest & { follow: boolean },
  deps: ReadDeps,
): Promise<{ stream: Duplex; machineId: string } | { kept: LogLine[] }> {
  const { db, log, link } = deps;
  const instance = await findRental(db.read, instanceId);
  if (instance === undefined || instance.org_id !== orgId)
    return fail('not_found', `There is no instance ${instanceId}.`);
  const { machine_id: machineId, workload_id: workloadId } = instance;
  if (machineId === null || workloadId === null) {
    return fail('logs_unavailable', 'This instance has no container yet. Read its log when the instance is starting.');
  }
  const kept = LIVE.has(instance.status) ? undefined : await deps.kept.find(instanceId);
  if (kept !== undefined) return { kept: lastOf(kept, wish) };
  const { tail, follow, since } = wish;
  const target = { kind: 'logs' as const, tail, follow, since: since === undefined ? null : unixSeconds(since) };
  try {
    const stream = await link.openStream(machineId, workloadId, target);
    stream.end();
    return { stream, machineId };
  } catch (error) {
    // The instance may have ended meanwhile, and its container with it.
    const isOver = !LIVE.has((await findRental(db.read, instanceId))?.status ?? instance.status);
    const late = isOver ? await deps.kept.find(instanceId) : undefined;
    if (late !== undefined) return { kept: lastOf(late, wish) };
    log.info({ instance_id: instanceId, machine_id: machineId, detail: messageOf(error) }, 'a log could not be read');
    if (isRefusal(error)) {
      return fail('logs_unavailable', 'The container of this instance does not exist yet, or not any more.');
    }
    return unreachable();
  }
}

/** The lines of a kept log that a reader asks for. */
function lastOf(lines: readonly LogLine[], { tail, since }: LogRequest): LogLine[] {
  const after = lines.filter(({ at }) => since === undefined || isAfter(at, since));
  return after.slice(Math.max(0, after.length - tail));
}

/** True if the host itself has reported that there is nothing to read. Other errors are temporary. */
function isRefusal(error: unknown): boolean {
  return error instanceof Error && 'leg' in error && error.leg === 'refused';
}

function unreachable(): never {
  return fail('unavailable', {
    detail: 'The host of this instance does not answer at the moment. Try again in a few seconds.',
    retryAfterSeconds: TRY_AGAIN_SECONDS,
  });
}

/** A time before 1970 counts as 1970: no log has older lines, and a host ends its link if it is asked for a negative time. */
function unixSeconds(iso: string): string {
  return (Math.max(0, Date.parse(iso)) / 1000).toFixed(3);
}

/** Reads log lines. A host that sends anything else is cut off. */
export async function* linesOf(stream: AsyncIterable<Buffer>, since: string | undefined): AsyncGenerator<LogLine> {
  const decoder = new StringDecoder('utf8');
  // The pieces of a line that has no end yet. To search all of them for each new one would take the square of their length.
  const rest: string[] = [];
  let restChars = 0;
  for await (const chunk of stream) {
    const parts = decoder.write(chunk).split('\n');
    const last = parts.pop() ?? '';
    if (parts.length > 0) {
      parts[0] = rest.join('') + (parts[0] ?? '');
      rest.length = 0;
      restChars = 0;
    }
    rest.push(last);
    restChars += last.length;
    if (restChars > LOG_LINE_BYTES_MAX) throw new Error('the host sent a line without an end');
    for (const part of parts) {
      const line = HostLine.parse(JSON.parse(part));
      if (since === undefined || isAfter(line.at, since)) yield line;
    }
  }
}

/** The engine returns lines "at or after" a time in milliseconds. Lines have nanoseconds, and as text of equal form they compare correctly. */
function isAfter(at: string, since: string): boolean {
  return sortable(at) > sortable(since.endsWith('Z') ? since : new Date(since).toISOString());
}

function sortable(time: string): string {
  const [seconds = '', fraction = ''] = time.replace(/Z$/, '').split('.');
  return `${seconds}.${fraction.padEnd(9, '0')}`;
}
