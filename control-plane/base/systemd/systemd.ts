// Reports to systemd: ready, alive, stopping (sd_notify). Also decides when the process may report that it is alive.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Log } from '../../../shared/log.ts';
import type { Loop } from '../../../shared/loop.ts';

/** A tick that takes longer counts as hanging. Long work is split into much shorter ticks. */
export const RUN_MS_MAX = 300_000;
const NOTIFY_MS_MAX = 10_000;
/** Work in progress ends or is given up long before this. */
const STOP_MS_MAX = 60_000;
/** The fraction of the watchdog time between two messages: two messages may be late. */
const SHARE = 3;

export interface Systemd {
  /** Period of the `alive` messages; undefined if systemd does not watch this process. */
  alivePeriodMs: number | undefined;
  /** The process serves. */
  ready(): Promise<void>;
  /** The process is up, and serves when another one has ended. From now on, systemd expects `alive`. */
  standsBy(): Promise<void>;
  alive(): Promise<void>;
  /** Asks systemd for this much time to stop, plus its usual stop time. */
  stopping(drainMs: number): Promise<void>;
}

/** The settings that systemd puts into the environment of a service. */
export interface ServiceManager {
  /** A path, or `@` and the name of an abstract socket. */
  notifySocket: string;
  /** systemd ends this process if no message arrives for this long; undefined if it does not watch. */
  watchdogMs: number | undefined;
}

/** If there is no systemd, this does nothing. A message that cannot be sent is only logged: systemd decides what follows. */
export function openSystemd(manager: ServiceManager | undefined, { log }: { log: Log }): Systemd {
  const say = async (...message: string[]): Promise<void> => {
    if (manager === undefined) return;
    try {
      await notify(manager.notifySocket, message);
    } catch (error) {
      log.error({ err: error, message }, 'a message to systemd could not be sent');
    }
  };
  const watchdogMs = manager?.watchdogMs;
  return {
    alivePeriodMs: watchdogMs === undefined ? undefined : watchdogMs / SHARE,
    ready: () => say('READY=1', 'STATUS=serves'),
    standsBy: () => say('READY=1', 'STATUS=stands by: another control plane serves on this database'),
    alive: () => say('WATCHDOG=1'),
    stopping: (drainMs) => say('STOPPING=1', `EXTEND_TIMEOUT_USEC=${(drainMs + STOP_MS_MAX) * 1000}`),
  };
}

/** Names of loops whose tick hangs. A step of the wall clock makes no loop look late. */
export function hangingLoops(loops: readonly Pick<Loop, 'runningMs' | 'status'>[]): string[] {
  return loops.filter((loop) => (loop.runningMs() ?? 0) > RUN_MS_MAX).map((loop) => loop.status().name);
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
