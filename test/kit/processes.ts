// Starts real programs for tests: output captured, readiness awaited with a deadline, ended by their own id.
import { spawn, type SpawnOptions } from 'node:child_process';
import { once } from 'node:events';

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface Program {
  pid: number;
  /** What it has written to stdout and stderr so far. */
  output(): string;
  /** Resolves with the first match in the output; rejects with the output when it ends first or `timeoutMs` pass. */
  waitForOutput(pattern: RegExp, timeoutMs?: number): Promise<RegExpExecArray>;
  /** Sends text to its standard input (see `stdin`). */
  write(text: string): void;
  exited: Promise<Exit>;
  /** Ends it: `signal`, then SIGKILL after `graceMs`. Resolves when it is gone; safe to call twice. */
  stop(signal?: NodeJS.Signals, graceMs?: number): Promise<Exit>;
}

export interface ProgramOptions {
  command: string;
  args?: readonly string[];
  /** Added to this process's environment; undefined takes a variable out. */
  env?: Record<string, string | undefined>;
  cwd?: string;
  /** `pipe` opens its standard input for `write`; without it, it reads nothing. */
  stdin?: 'pipe';
  /** Run as another user (needs root). */
  user?: { uid: number; gid: number };
}

const PAUSE_MS_MIN = 20;
const PAUSE_MS_MAX = 250;
/** A machine that others use too is slower than a quiet one. A longer wait costs time only if what a test waits for never comes. */
const SLOWER_MAX = 3;

/** Starts a program and returns at once; a program that cannot be started rejects `exited` and every wait. */
export function startProgram(options: ProgramOptions): Program {
  const child = spawn(options.command, options.args ?? [], spawnOptions(options));
  let output = '';
  let heard = Promise.withResolvers<void>();
  const collect = (chunk: Buffer): void => {
    output += chunk.toString();
    heard.resolve();
    heard = Promise.withResolvers();
  };
  child.stdout?.on('data', collect);
  child.stderr?.on('data', collect);
  const exited = new Promise<Exit>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  exited.catch(() => undefined);
  child.stdin?.on('error', () => undefined);
  return {
    pid: child.pid ?? 0,
    output: () => output,
    exited,
    write: (text) => child.stdin?.write(text),
    waitForOutput: async (pattern, timeoutMs = 15_000) => {
      let over = false;
      const ended = exited.then(
        () => {
          over = true;
        },
        (error: unknown) => {
          throw new Fatal(`${options.command} did not start: ${String(error)}`);
        },
      );
      ended.catch(() => undefined);
      // A test may have to act at once, while the program goes on. So each piece of output is looked at when it comes.
      const limitMs = SLOWER_MAX * timeoutMs;
      const late = Promise.withResolvers<void>();
      let isLate = false;
      const limit = setTimeout(() => {
        isLate = true;
        late.resolve();
      }, limitMs);
      try {
        for (;;) {
          const more = heard.promise;
          const match = pattern.exec(output);
          if (match !== null) return match;
          if (over || isLate) {
            const what = over ? 'ended' : `wrote nothing like ${pattern} within ${limitMs} ms`;
            throw new Fatal(`${options.command} ${what}:\n${output.slice(-4000)}`);
          }
          await Promise.race([ended, more, late.promise]);
        }
      } finally {
        clearTimeout(limit);
      }
    },
    stop: async (signal = 'SIGTERM', graceMs = 10_000) => {
      child.kill(signal);
      const killed = setTimeout(() => child.kill('SIGKILL'), graceMs);
      try {
        return await exited;
      } finally {
        clearTimeout(killed);
      }
    },
  };
}

/** Runs a program to its end and returns its output; a non-zero exit rejects with it. `input` goes to stdin. */
export async function runProgram(options: ProgramOptions & { input?: string | Buffer }): Promise<string> {
  const child = spawn(options.command, options.args ?? [], spawnOptions({ ...options, stdin: 'pipe' }));
  let output = '';
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(options.input ?? '');
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  if (code === 0) return output;
  throw new Error(`${options.command} ${(options.args ?? []).join(' ')} ended with ${code ?? signal}:\n${output}`);
}

/**
 * Calls `probe` until it returns something else than undefined. Throws what it last threw when three times `timeoutMs` pass, which is the
 * limit on a quiet machine. The pauses between the calls grow with the wait: most probes are requests to a daemon, which would otherwise be
 * busy with the answers to a test that waits for a minute.
 */
export async function eventually<T>(what: string, timeoutMs: number, probe: () => Promise<T | undefined>): Promise<T> {
  const startedMs = performance.now();
  const limitMs = SLOWER_MAX * timeoutMs;
  let last: unknown;
  for (;;) {
    try {
      const result = await probe();
      if (result !== undefined) return result;
    } catch (error) {
      if (error instanceof Fatal) throw error;
      last = error;
    }
    if (performance.now() - startedMs > limitMs) throw new Error(`no ${what} within ${limitMs} ms`, { cause: last });
    await pause(Math.min(Math.max(PAUSE_MS_MIN, (performance.now() - startedMs) / 50), PAUSE_MS_MAX));
  }
}

/** Resolves when `url` answers with a status below 500. */
export async function httpReady(url: string, timeoutMs = 15_000): Promise<void> {
  await eventually(`answer from ${url}`, timeoutMs, async () => {
    const response = await fetch(url, { signal: AbortSignal.timeout(1000) });
    await response.body?.cancel();
    return response.status < 500 ? true : undefined;
  });
}

/** Starts a program that serves HTTP at `origin`, and waits until it answers. Throws with its output if it does not. */
export async function startHttpProgram(options: ProgramOptions, origin: string): Promise<Program> {
  const program = startProgram(options);
  process.once('exit', () => void program.stop());
  try {
    await httpReady(`${origin}/`);
  } catch (error) {
    await program.stop();
    throw new Error(`${options.command} did not come up:\n${program.output()}`, { cause: error });
  }
  return program;
}

/** Ends a wait at once: trying again cannot help. */
class Fatal extends Error {}

function spawnOptions(options: ProgramOptions): SpawnOptions {
  return {
    env: { ...process.env, ...options.env },
    stdio: [options.stdin ?? 'ignore', 'pipe', 'pipe'],
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...options.user,
    // A group of its own: the terminal's Ctrl-C reaches only us, and we end the program in order.
    detached: true,
  };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** What goes into a program that repeats its input comes out of it. */
export async function echoes(session: Pick<Program, 'write' | 'waitForOutput'>, word: string): Promise<void> {
  session.write(`${word}\n`);
  await session.waitForOutput(new RegExp(`^${word}$`, 'm'));
}
