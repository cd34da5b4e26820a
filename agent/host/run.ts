// Starts other programs: argument arrays only, with a time limit and an output limit, or detached for good.
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
  /** Output beyond this ends the program: a helper that floods us is broken. */
  outputBytesMax?: number;
  /** What it reads on its standard input; without it, it reads nothing. */
  input?: string;
}

const OUTPUT_BYTES_MAX = 4 * 1024 * 1024;

/** Runs a program to its end. Rejects where it cannot be started; a bad exit code is a result. */
export function run(argv: readonly [string, ...string[]], options: RunOptions): Promise<RunResult> {
  const [file, ...args] = argv;
  const bytesMax = options.outputBytesMax ?? OUTPUT_BYTES_MAX;
  return new Promise((resolve, reject) => {
    // A group of its own: what the program has started must end with it, or it would keep the output open.
    const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'pipe'], detached: true });
    // One that ends without reading is told by its exit code.
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
    child.once('error', reject);
    child.once('close', (code, signal) => {
      limit.removeEventListener('abort', kill);
      resolve({ code, signal, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() });
    });
  });
}

/**
 * Starts a program in a session of its own that outlives this process; its output is appended to `logFile`.
 * Resolves with its process id once it has been started.
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
 * Kills the process whose id stands in `pidFile`, if it is still the one that was started for `folder`. True once it is gone: until then
 * it has to be called again.
 */
export async function endProcess(pidFile: string, folder: string): Promise<boolean> {
  const pid = Number(await readFile(pidFile, 'utf8').catch(() => ''));
  const commandLine = pid > 1 ? await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '') : '';
  // The number may have gone to another program since.
  if (!commandLine.split('\0').includes(folder)) return true;
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
  return false;
}
