// The container's main process: the image's argv, as the image's user. After its end the container stays up, so that people can log in.
import { spawn, type ChildProcess } from 'node:child_process';
import type { GuestConfig } from './config.ts';
import type { Exit } from '../wire/guest-messages.ts';

export interface MainProcess {
  /** How the process ended; null while it runs. */
  exit(): Exit | null;
}

const NOT_FOUND = 127;
const NOT_STARTED = 126;

/**
 * Starts the process with our own output (the container's log). If the container is stopped, the process gets the image's stop signal.
 * After the end of the process, a stop ends the guest and so the container. All other signals are passed on unchanged.
 */
export function startMainProcess(config: GuestConfig, home: string, onExit: (exit: Exit) => void): MainProcess {
  let exit: Exit | null = null;
  let stopping = false;
  const finish = (how: Exit): void => {
    if (exit !== null) return;
    exit = how;
    if (stopping) process.exit(0);
    onExit(how);
  };
  const child = startChild(config, home, finish);

  process.on('SIGTERM', () => {
    stopping = true;
    if (exit !== null || child === undefined) process.exit(0);
    child.kill(stopSignal(config.stopSignal));
  });
  for (const signal of ['SIGINT', 'SIGHUP', 'SIGUSR2', 'SIGQUIT', 'SIGWINCH'] as const) {
    process.on(signal, () => child?.kill(signal));
  }
  return { exit: () => exit };
}

function startChild(config: GuestConfig, home: string, finish: (exit: Exit) => void): ChildProcess | undefined {
  const [file = '', ...args] = config.argv;
  const failed = (error: NodeJS.ErrnoException): void => {
    process.stderr.write(`cannot start ${JSON.stringify(file)}: ${error.message}\n`);
    finish({ code: error.code === 'ENOENT' ? NOT_FOUND : NOT_STARTED, signal: null });
  };
  try {
    const child = spawn(file, args, {
      stdio: ['ignore', 'inherit', 'inherit'],
      env: { HOME: home, ...config.env },
      detached: true,
    });
    child.once('error', failed);
    child.once('exit', (code, signal) => finish({ code, signal }));
    return child;
  } catch (error) {
    failed(error instanceof Error ? error : new Error(String(error)));
    return undefined;
  }
}

/** Images may give the stop signal as a number or without SIG. */
function stopSignal(name: string): NodeJS.Signals | number {
  if (/^\d+$/.test(name)) return Number(name);
  const full = name.startsWith('SIG') ? name : `SIG${name}`;
  return isSignal(full) ? full : 'SIGTERM';
}

const STOP_SIGNALS = [
  'SIGTERM',
  'SIGINT',
  'SIGQUIT',
  'SIGHUP',
  'SIGUSR1',
  'SIGUSR2',
  'SIGKILL',
  'SIGWINCH',
  'SIGABRT',
] as const;

function isSignal(name: string): name is (typeof STOP_SIGNALS)[number] {
  return STOP_SIGNALS.some((signal) => signal === name);
}
