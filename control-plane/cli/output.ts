// Shows the log of an instance, and finds out how its program has ended.
import { constants } from 'node:os';
import { z } from 'zod';
import { messageOf } from '../../shared/errors.ts';
import { eventsOf } from '../../shared/event-reader.ts';
import { LOG_LINES_MAX } from '../../shared/limits.ts';
import { type Client, unlessAway } from './client.ts';
import type { CommonOptions, SvcDeps } from './command.ts';
import { EXIT, interruption, SvcError } from './exit.ts';

export const Line = z.looseObject({ stream: z.string(), line: z.string(), at: z.string() });
export type Line = z.infer<typeof Line>;

/** How a program has ended, with the exit code that a shell would give. */
export interface Ending {
  code: number;
  words: string;
}

interface Followed {
  instanceId: string;
  /** Number of lines to begin with; undefined: as many as the API sends by itself. */
  tail?: number | undefined;
  onLine(line: Line): void;
  /** Called when the log has been opened, and when it has broken off or cannot be opened. */
  onOpen?(isOpen: boolean): void;
}

/** What is known of a log that is followed. */
interface Progress {
  /** How often a line has come, or the log was opened. */
  signs: number;
  isOpen: boolean;
  /** No more lines come. */
  isOver: boolean;
}

const AGAIN_MS = 1_000;
const POLL_MS = 1_000;
/** The log counts as complete if it was open and silent for this time after the end of the program. */
const SILENT_MS = 1_000;
/** A process that the program has left behind may write for ever, and the API may stay away. */
const LAST_LINES_MS_MAX = 60_000;
/** Added to the number of a signal, as shells do it. */
const SIGNAL_CODE = 128;

const MainExit = z.looseObject({ code: z.int().nullable(), signal: z.string().nullable() });
type MainExit = z.infer<typeof MainExit>;
const Instance = z.looseObject({ status: z.string(), main_exit: MainExit.optional() });
type Instance = z.infer<typeof Instance>;

export function writeLine(line: Line, { json }: CommonOptions, { print, tell }: SvcDeps): void {
  if (json === true) print(`${JSON.stringify(line)}\n`);
  else if (line.stream === 'stderr') tell(`${line.line}\n`);
  else print(`${line.line}\n`);
}

/**
 * Resolves when the container has stopped. If the stream breaks off, it goes on after the last line, also if the API is away for a while.
 * @throws SvcError
 */
export async function followLog(
  client: Client,
  { instanceId, tail, onLine, onOpen = () => undefined }: Followed,
  deps: SvcDeps,
): Promise<void> {
  const { clock, interrupted: signal } = deps;
  let wasOpen = false;
  for (let since: string | undefined; ;) {
    const lines = since === undefined ? tail : LOG_LINES_MAX;
    const query = new URLSearchParams({
      follow: 'true',
      ...(lines === undefined ? {} : { tail: String(lines) }),
      ...(since === undefined ? {} : { since }),
    });
    const path = `/instances/${instanceId}/logs?${query.toString()}`;
    const opening = client.open({ method: 'GET', path, signal });
    const response = wasOpen ? await unlessAway(opening) : await opening;
    wasOpen = true;
    onOpen(response !== undefined);
    const openedMs = Date.parse(response?.headers.get('date') ?? '');
    let earlier = 0;
    try {
      for await (const { type, data } of response === undefined ? [] : eventsOf(response)) {
        if (type === 'end') return;
        const line = Line.safeParse(data).data;
        if (line === undefined) continue;
        since = line.at;
        onLine(line);
        if (!(Date.parse(line.at) < openedMs)) continue;
        earlier += 1;
        if (earlier === LOG_LINES_MAX)
          deps.tell(`Lines before the last ${LOG_LINES_MAX} may be missing: the API gives no more of the past.\n`);
      }
    } catch (error) {
      if (signal.aborted) throw error;
    }
    onOpen(false);
    await clock.sleep(AGAIN_MS, signal);
    if (signal.aborted) throw interruption();
  }
}

/** Shows the output until the program has ended. The instance itself goes on, and so does its log. @throws SvcError */
export async function followProgram(
  client: Client,
  { instanceId, onLine }: Omit<Followed, 'tail'>,
  deps: SvcDeps,
): Promise<Ending> {
  const ending = new AbortController();
  const signal = AbortSignal.any([deps.interrupted, ending.signal]);
  const log: Progress = { signs: 0, isOpen: false, isOver: false };
  const followed: Followed = {
    instanceId,
    // The program may have written much before the first login was possible.
    tail: LOG_LINES_MAX,
    onLine: (line) => {
      log.signs += 1;
      onLine(line);
    },
    onOpen: (isOpen) => {
      log.signs += 1;
      log.isOpen = isOpen;
    },
  };
  const following = followLog(client, followed, { ...deps, interrupted: signal })
    .catch((error: unknown) => {
      if (!signal.aborted) deps.tell(`The log cannot be read any more: ${messageOf(error)}\n`);
    })
    .finally(() => (log.isOver = true));
  try {
    const ended = await endOf(client, instanceId, deps);
    await rest(log, deps);
    if (!log.isOpen && !log.isOver && !deps.interrupted.aborted)
      deps.tell(`The rest of the log could not be read. Read it: svc logs ${instanceId}\n`);
    return ended;
  } finally {
    ending.abort();
    await following;
  }
}

/** Waits also while the API is away. @throws SvcError if the instance ends before its program */
async function endOf(client: Client, id: string, { clock, interrupted: signal, tell }: SvcDeps): Promise<Ending> {
  for (let wasAway = false; ;) {
    const body = await unlessAway(client.json({ method: 'GET', path: `/instances/${id}`, signal }));
    const isAway = body === undefined;
    if (isAway && !wasAway && !signal.aborted) tell('The API cannot be reached. Asking again until it answers.\n');
    wasAway = isAway;
    const ended = isAway ? undefined : programEnd(id, Instance.parse(body));
    if (ended !== undefined) return ended;
    await clock.sleep(POLL_MS, signal);
    if (signal.aborted) throw interruption();
  }
}

/** Undefined while the program runs. @throws SvcError if the instance has ended before its program */
function programEnd(id: string, { status, main_exit: exit }: Instance): Ending | undefined {
  if (exit !== undefined) return endingOf(exit);
  if (status === 'running' || status === 'unreachable') return undefined;
  const message = `the instance became ${status} before its program ended`;
  const next = `See what happened: svc instance events ${id}`;
  throw new SvcError(EXIT.operationFailed, { code: 'operation_failed', message, next, resourceId: id });
}

function endingOf({ code, signal }: MainExit): Ending {
  if (code !== null) return { code, words: `exited with code ${code}` };
  const number = Object.entries(constants.signals).find(([name]) => name === signal)?.[1] ?? 0;
  return { code: SIGNAL_CODE + number, words: `was ended by signal ${signal ?? 'unknown'}` };
}

/** Resolves when the log is open and no line has come for a moment. A log that has broken off goes on after its last line when it is open again. */
async function rest(log: Progress, { clock, interrupted: signal }: SvcDeps): Promise<void> {
  const untilMs = clock.monotonicMs() + LAST_LINES_MS_MAX;
  const isDone = (seen: number): boolean => log.isOver || (log.isOpen && seen === log.signs);
  for (let seen = -1; !isDone(seen) && clock.monotonicMs() < untilMs && !signal.aborted;) {
    seen = log.signs;
    await clock.sleep(SILENT_MS, signal);
  }
}
