// Starts other programs with argument arrays. They run to their end with limits of time and output, or detached from this process.
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { readFile } from 'node:fs/promises';

export interface RunResult {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface RunOptions {
  timeoutMs: number;
  /** The program is ended if it writes more than this, because it must be broken. */
  outputBytesMax?: number;
  /** Its standard input; empty if undefined. */
  input?: string;
}

const OUTPUT_BYTES_MAX = 4 * 1024 * 1024;

/** Runs a program to its end. Rejects if it cannot be started. A bad exit code is a result, not an error. */
export function run(argv: readonly [string, ...string[]], options: RunOptions): Promise<RunResult> {
  const [file, ...args] = argv;
  const bytesMax = options.outputBytesMax ?? OUTPUT_BYTES_MAX;
  return new Promise((resolve, reject) => {
    // The program gets its own process group, so that its children can be ended with it. Otherwise they would keep the output open.
    const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'pipe'], detached: true });
    child.once('error', reject);
    // A program that was not started for want of a file descriptor has no streams either.
    if (child.pid === undefined) return;
    // The program may end without reading its input. Its exit code shows whether that is a fault.
    child.stdin.on('error', () => undefined);
    child.stdin.end(options.input);
    const kill = (): void => {
      if (child.pid !== undefined) killGroup(child.pid);
    };
    const limit = AbortSignal.timeout(options.timeoutMs);
    limit.addEventListener('abort', kill);
    const collect = (stream: NodeJS.ReadableStream): Buffer[] => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      stream.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes <= bytesMax) chunks.push(chunk);
        else kill();
      });
      return chunks;
    };
    const stdout = collect(child.stdout);
    const stderr = collect(child.stderr);
    child.once('close', (code, signal) => {
      limit.removeEventListener('abort', kill);
      resolve({ code, signal, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() });
    });
  });
}

/**
 * Starts a program in its own session, so that it outlives this process. Its output is appended to `logFile`. Resolves with its process
 * id once it has started.
 */
export function startDetached(argv: readonly [string, ...string[]], logFile: string): Promise<number> {
  const [file, ...args] = argv;
  const log = openSync(logFile, 'a', 0o600);
  return new Promise<number>((resolve, reject) => {
    const child = spawn(file, args, { detached: true, stdio: ['ignore', log, log] });
    child.once('error', reject);
    child.once('spawn', () => {
      child.unref();
      resolve(child.pid ?? 0);
    });
  }).finally(() => closeSync(log));
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}

/**
 * Kills the process whose id is in `pidFile`, if it is still the one that was started for `folder`. Resolves with true once the process
 * is gone; until then it must be called again.
 */
export async function endProcess(pidFile: string, folder: string): Promise<boolean> {
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => ''));
  const commandLine = pid > 1 ? await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') : '';
  // Another program may have this process id by now.
  if (!commandLine.split('\0').includes(folder)) return true;
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
  return false;
}
