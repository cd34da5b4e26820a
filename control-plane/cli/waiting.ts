// Waits until an instance has the state that the caller wants. It follows the live stream, and polls while there is no stream.
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import { type Client, unlessAway } from './client.ts';
import { eventsOf } from '../../shared/event-reader.ts';
import type { SvcDeps } from './command.ts';
import { EXIT, SvcError } from './exit.ts';
import { answersSsh, runsNoMore } from './ssh.ts';
import { printable } from '../../shared/terminal.ts';

export const WAITS = ['running', 'terminated', 'reachable'] as const;
export type WaitFor = (typeof WAITS)[number];
/** `begun`: the instance runs, or has run and its program is over. */
type Until = WaitFor | 'begun';

interface Wait {
  instanceId: string;
  until: Until;
  timeoutMs: number;
  signal: AbortSignal;
  /** Called with each new status and its reason, in words. */
  onChange(text: string): void;
  /** Whether an SSH server answers at the address of the instance. Called only if `until` is `reachable`. */
  answersSsh(host: string, port: number): Promise<boolean>;
}

const POLL_MS_MAX = 30_000;
/** If the live stream is silent for this time, the instance is read anyway, because an event may have been missed. */
const SILENT_MS = 30_000;

const Instance = z.looseObject({
  id: z.string(),
  status: z.string(),
  status_reason: z.string().nullish(),
  main_exit: z.unknown().optional(),
  connection: z.looseObject({ hostname: z.string().optional(), port: z.int().optional() }).nullish(),
});
type WaitedInstance = z.infer<typeof Instance>;

/** @throws SvcError with `operationFailed` if the instance cannot reach the state any more, `timedOut`, or `interrupted` */
async function waitFor(client: Client, wait: Wait, clock: Clock): Promise<WaitedInstance> {
  const untilMs = clock.monotonicMs() + wait.timeoutMs;
  const changes = openChanges(client, wait, clock);
  // A read that hangs ends with the wait.
  const late = new AbortController();
  const cancel = clock.after(wait.timeoutMs, () => late.abort());
  let last = '';
  try {
    for (let pollMs = 1_000; ; pollMs = Math.min(2 * pollMs, POLL_MS_MAX)) {
      const instance = await read(client, wait.instanceId, AbortSignal.any([wait.signal, late.signal]));
      const words = instance === undefined ? 'unknown: the API could not be reached' : wordsOf(instance);
      const isLost = instance !== undefined && isHopeless(instance, wait.until) && !(await isReached(instance, wait));
      // The error has the words of the status.
      if (isLost) throw hopeless(instance, wait.until);
      if (words !== last) wait.onChange(words);
      last = words;
      if (instance !== undefined && (await isReached(instance, wait))) return instance;
      const leftMs = untilMs - clock.monotonicMs();
      if (leftMs <= 0) throw timedOut(wait, last);
      await changes.next(Math.min(leftMs, changes.isLive() ? SILENT_MS : pollMs));
      if (wait.signal.aborted) throw interrupted(wait);
    }
  } finally {
    cancel();
    changes.stop();
  }
}

/** Waits as `waitFor` does, prints each change, and ends with the command. `timeout` is in seconds. @throws SvcError */
export function waitUntil(
  client: Client,
  { instanceId, until, timeout }: { instanceId: string; until: Until; timeout: number },
  { clock, interrupted: signal, tell }: SvcDeps,
): Promise<WaitedInstance> {
  const onChange = (text: string): void => tell(`${instanceId} ${text}\n`);
  return waitFor(client, { instanceId, until, timeoutMs: timeout * 1_000, signal, onChange, answersSsh }, clock);
}

/** The instance; undefined if the network or the API failed. In that case the caller continues to wait. */
async function read(client: Client, instanceId: string, signal: AbortSignal): Promise<WaitedInstance | undefined> {
  const body = await unlessAway(client.json({ method: 'GET', path: `/instances/${instanceId}`, signal }));
  return body === undefined ? undefined : Instance.parse(body);
}

interface Changes {
  /** Resolves after an event of the instance, or after `ms`. */
  next(ms: number): Promise<void>;
  isLive(): boolean;
  stop(): void;
}

/** Reads the live stream in the background. Without it, `next` only waits. */
function openChanges(client: Client, { instanceId, signal }: Wait, clock: Clock): Changes {
  const ending = new AbortController();
  let wake = new AbortController();
  let isLive = false;
  const read = async (): Promise<void> => {
    const both = AbortSignal.any([signal, ending.signal]);
    const headers = { accept: 'text/event-stream' };
    const response = await client.open({ method: 'GET', path: '/events', headers, signal: both });
    for await (const { type, data } of eventsOf(response)) {
      isLive = true;
      const about = z.looseObject({ resource_id: z.string() }).safeParse(data).data?.resource_id;
      if (about === instanceId || type === 'resync' || type === 'ready') wake.abort();
    }
  };
  // The stream may fail, for a key without the scope or behind a proxy without streams. Then the polling goes on alone.
  void read()
    .catch(() => undefined)
    .finally(() => (isLive = false));
  signal.addEventListener('abort', () => wake.abort(), { once: true });
  return {
    isLive: () => isLive,
    next: async (ms) => {
      await clock.sleep(ms, wake.signal);
      if (!signal.aborted) wake = new AbortController();
    },
    stop: () => ending.abort(),
  };
}

async function isReached(instance: WaitedInstance, { until, answersSsh }: Wait): Promise<boolean> {
  const { status, connection, main_exit: exit } = instance;
  if (until === 'begun' && exit !== undefined && (status === 'unreachable' || runsNoMore(status))) return true;
  if (until === 'terminated') return status === 'terminated' || status === 'stopped';
  if (status !== 'running' || until !== 'reachable') return status === 'running';
  const { hostname, port } = connection ?? {};
  return hostname !== undefined && port !== undefined && answersSsh(hostname, port);
}

function isHopeless({ status }: WaitedInstance, until: Until): boolean {
  // Only a DELETE terminates an instance that has failed.
  return until === 'terminated' ? status === 'error' : runsNoMore(status);
}

function wordsOf({ status, status_reason: reason }: WaitedInstance): string {
  return printable(reason === null || reason === undefined || reason === '' ? status : `${status}: ${reason}`);
}

const wordOf = (until: Until): string => (until === 'begun' ? 'running' : until);

function hopeless(instance: WaitedInstance, until: Until): SvcError {
  const message = `the instance will not become ${wordOf(until)}: it is ${wordsOf(instance)}`;
  const next = 'See what happened: svc instance events ' + instance.id;
  return new SvcError(EXIT.operationFailed, { code: 'operation_failed', message, next, resourceId: instance.id });
}

function timedOut({ instanceId, until, timeoutMs }: Wait, last: string): SvcError {
  const message = `not ${wordOf(until)} after ${Math.round(timeoutMs / 1000)} s; the last status is ${last}`;
  const next = `It still exists and may cost money. Go on waiting with svc wait ${instanceId}, or end it: svc instance delete ${instanceId}`;
  return new SvcError(EXIT.timedOut, { code: 'wait_timed_out', message, next, resourceId: instanceId });
}

function interrupted({ instanceId }: Wait): SvcError {
  const next = `It still exists and may cost money. End it: svc instance delete ${instanceId}`;
  return new SvcError(EXIT.interrupted, { code: 'interrupted', message: 'interrupted', next, resourceId: instanceId });
}
