// A terminal: node-pty's native half with our own stream handling. We leave out node-pty's JavaScript half, because it drops unread output 200 ms
// after the exit.
import { ReadStream } from 'node:tty';
import type { Clock } from '../../shared/clock.ts';
import type { Exit, Pty } from '../wire/guest-messages.ts';

/** The functions of `pty.node` that we use (its `unix/pty.cc`). */
interface NativePty {
  fork(
    file: string,
    args: string[],
    env: string[],
    cwd: string,
    cols: number,
    rows: number,
    uid: number,
    gid: number,
    utf8: boolean,
    helper: string,
    onExit: (code: number, signal: number) => void,
  ): { fd: number; pid: number };
  resize(fd: number, cols: number, rows: number): void;
}

export interface TerminalProgram {
  argv: [string, ...string[]];
  env: Record<string, string>;
  cwd: string;
  pty: Pty;
}

export interface Terminal {
  pid: number;
  /** Carries both directions. Pausing it slows the program down; nothing is lost. */
  stream: ReadStream;
  /** Resolves after the last byte of output has been read. */
  exited: Promise<Exit>;
  resize(cols: number, rows: number): void;
  /** Closes the terminal: the kernel sends SIGHUP to everything that runs in it. */
  close(): void;
}

/** Time to wait for more output after the exit. A background process may keep the terminal open for ever. */
const QUIET_MS = 150;
const SIGNAL_NAMES: Readonly<Record<number, string>> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  3: 'SIGQUIT',
  4: 'SIGILL',
  6: 'SIGABRT',
  8: 'SIGFPE',
  9: 'SIGKILL',
  11: 'SIGSEGV',
  13: 'SIGPIPE',
  14: 'SIGALRM',
  15: 'SIGTERM',
};

/** Loads `pty.node` from a path (not through its package: there is no node_modules inside the container). */
export function loadPty(path: string): NativePty {
  const loaded: { exports: NativePty | Record<string, never> } = { exports: {} };
  process.dlopen(loaded, path);
  if (!isNative(loaded.exports)) throw new Error(`${path} is not node-pty's native module`);
  return loaded.exports;
}

/** Starts a program on a new terminal. The caller reads `stream`. */
export function openTerminal(native: NativePty, program: TerminalProgram, clock: Clock): Terminal {
  const [file, ...args] = program.argv;
  const env = Object.entries({ ...program.env, TERM: program.pty.term }).map(([name, value]) => `${name}=${value}`);
  const ended = Promise.withResolvers<Exit>();
  const { cols, rows } = sizeOf(program.pty.cols, program.pty.rows);
  const term = native.fork(file, args, env, program.cwd, cols, rows, -1, -1, true, '', (code, signal) => {
    const name = signal === 0 ? null : (SIGNAL_NAMES[signal] ?? 'SIGTERM');
    ended.resolve({ code: name === null ? code : null, signal: name });
  });
  const stream = new ReadStream(term.fd);
  const drained = Promise.withResolvers<void>();
  let lastDataMs = 0;
  stream.on('data', () => {
    lastDataMs = clock.monotonicMs();
  });
  stream.pause();
  // After the end of the last program, a read from the terminal fails with EIO. That is the normal end.
  stream.on('error', () => drained.resolve());
  stream.once('close', () => drained.resolve());

  const waitForQuiet = async (): Promise<void> => {
    while (!stream.destroyed) {
      await clock.sleep(QUIET_MS);
      if (!stream.isPaused() && clock.monotonicMs() - lastDataMs >= QUIET_MS) return;
    }
  };
  const exited = ended.promise.then(async (exit) => {
    await Promise.race([drained.promise, waitForQuiet()]);
    stream.destroy();
    return exit;
  });
  return {
    pid: term.pid,
    stream,
    exited,
    resize: (newCols, newRows) => {
      if (stream.destroyed) return;
      const size = sizeOf(newCols, newRows);
      native.resize(term.fd, size.cols, size.rows);
    },
    close: () => stream.destroy(),
  };
}

/** Replaces the size 0 x 0 of clients without a window, because programs divide by it. */
function sizeOf(cols: number, rows: number): { cols: number; rows: number } {
  return { cols: cols > 0 ? Math.min(cols, 65_535) : 80, rows: rows > 0 ? Math.min(rows, 65_535) : 24 };
}

function isNative(exports: object): exports is NativePty {
  return 'fork' in exports && 'resize' in exports;
}
