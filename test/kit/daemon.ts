// One of our daemons as a child process: started, killed and started again, with its log in a file that outlives it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';

export interface Daemon {
  logPath: string;
  /** 0 while it does not run. */
  pid(): number;
  /** Starts it and waits until `ready` says true. Throws with the end of the log if it ends before that. */
  start(): Promise<void>;
  /** Signals it and waits for its end; nothing if it does not run. After `graceMs`, SIGKILL. */
  stop(signal?: NodeJS.Signals, graceMs?: number): Promise<void>;
  /** The last lines of its log. */
  logTail(lines?: number): string;
}

export interface DaemonOptions {
  name: string;
  argv: readonly string[];
  /** Added to this process's environment. */
  env?: Record<string, string>;
  logPath: string;
  ready(): Promise<boolean>;
}

const READY_MS_MAX = 30_000;
const READY_POLL_MS = 25;

export function openDaemon(options: DaemonOptions): Daemon {
  const { name, logPath } = options;
  let running:
    | { pid: number; closed: Promise<unknown>; isOver: boolean; kill(signal: NodeJS.Signals): void }
    | undefined;

  const logTail = (lines = 20): string => readOrEmpty(logPath).trimEnd().split('\n').slice(-lines).join('\n');

  const start = async (): Promise<void> => {
    const [command = '', ...args] = options.argv;
    const log = openSync(logPath, 'a', 0o600);
    const child = spawn(command, args, {
      env: { ...process.env, ...options.env },
      stdio: ['ignore', log, log],
      detached: true,
    });
    closeSync(log);
    const current = {
      pid: child.pid ?? 0,
      isOver: false,
      closed: once(child, 'close').finally(() => (current.isOver = true)),
      kill: (signal: NodeJS.Signals) => void child.kill(signal),
    };
    current.closed.catch(() => undefined);
    running = current;
    const deadlineMs = performance.now() + READY_MS_MAX;
    while (!(await options.ready().catch(() => false))) {
      if (current.isOver) throw new Error(`${name} ended:\n${logTail()}`);
      if (performance.now() > deadlineMs)
        throw new Error(`${name} is not ready after ${READY_MS_MAX} ms:\n${logTail()}`);
      await new Promise((resolve) => setTimeout(resolve, READY_POLL_MS));
    }
  };

  const stop = async (signal: NodeJS.Signals = 'SIGTERM', graceMs = 15_000): Promise<void> => {
    if (running === undefined) return;
    const { closed, kill } = running;
    kill(signal);
    const killed = setTimeout(() => kill('SIGKILL'), graceMs);
    await closed.catch(() => undefined);
    clearTimeout(killed);
    running = undefined;
  };

  return { logPath, pid: () => running?.pid ?? 0, start, stop, logTail };
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
