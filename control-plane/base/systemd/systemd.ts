// What the service manager is told: ready, alive, stopping (sd_notify), and when we may say that we are alive.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Log } from '../../../shared/log.ts';
import type { LoopStatus } from '../../../shared/loop.ts';

/** A run that takes longer hangs: long work is cut into runs far shorter than this. */
export const RUN_MS_MAX = 300_000;
const NOTIFY_MS_MAX = 10_000;
/** What is under way ends by itself, or is given up, long before. */
const STOP_MS_MAX = 60_000;
/** Of the watchdog's time: two messages may be late. */
const SHARE = 3;

export interface Systemd {
  /** How often `alive` is wanted; undefined where nobody watches. */
  alivePeriodMs: number | undefined;
  ready(): Promise<void>;
  alive(): Promise<void>;
  /** The manager gives us so long, and what it gives anybody to stop in, even if its own patience is shorter. */
  stopping(drainMs: number): Promise<void>;
}

/** What systemd says in the environment of a service. */
export interface ServiceManager {
  /** A path, or `@` and an abstract name. */
  notifySocket: string;
  /** It ends us where it hears nothing for this long; undefined where it does not watch. */
  watchdogMs: number | undefined;
}

/** Without a manager nothing happens. A message that cannot be sent is logged: what follows from it, systemd decides. */
export function openSystemd(manager: ServiceManager | undefined, { log }: { log: Log }): Systemd {
  const say = async (...message: string[]): Promise<void> => {
    if (manager === undefined) return;
    try {
      await notify(manager.notifySocket, message);
    } catch (error) {
      log.error({ err: error, message }, 'systemd could not be told');
    }
  };
  const watchdogMs = manager?.watchdogMs;
  return {
    alivePeriodMs: watchdogMs === undefined ? undefined : watchdogMs / SHARE,
    ready: () => say('READY=1'),
    alive: () => say('WATCHDOG=1'),
    stopping: (drainMs) => say('STOPPING=1', `EXTEND_TIMEOUT_USEC=${(drainMs + STOP_MS_MAX) * 1000}`),
  };
}

/** Names of loops whose run hangs. A loop that waits for its period is not looked at: a step of the clock would make it late. */
export function hangingLoops(loops: readonly LoopStatus[], nowMs: number): string[] {
  return loops
    .filter((loop) => loop.running && loop.last_started_ms !== null && nowMs - loop.last_started_ms > RUN_MS_MAX)
    .map((loop) => loop.name);
}

async function notify(socket: string, message: readonly string[]): Promise<void> {
  const env = { PATH: '/usr/local/bin:/usr/bin:/bin', NOTIFY_SOCKET: socket };
  const child = spawn('systemd-notify', message, {
    env,
    stdio: 'ignore',
    timeout: NOTIFY_MS_MAX,
    killSignal: 'SIGKILL',
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  if (code !== 0) throw new Error(`systemd-notify ended with ${code ?? signal}`);
}
