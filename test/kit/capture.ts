// Runs a program to its end and returns exit code, signal, stdout and stderr, byte for byte.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';

export interface Captured {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: Buffer;
  stderr: string;
}

export interface CaptureOptions {
  /** Added to this process's environment. */
  env?: Record<string, string>;
  /** Goes to standard input, which is then closed; without it the program reads nothing. */
  input?: string | Buffer | Readable;
  /** Ends the program by SIGKILL. */
  timeoutMs?: number;
}

/** A bad exit code is a result; only a program that cannot be started rejects. */
export async function capture(argv: readonly string[], options: CaptureOptions = {}): Promise<Captured> {
  const [command = '', ...args] = argv;
  const child = spawn(command, args, {
    env: { ...process.env, ...options.env },
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    timeout: options.timeoutMs ?? 60_000,
    killSignal: 'SIGKILL',
    // No terminal: a program that wants to ask a person for a password fails instead of waiting.
    detached: true,
  });
  const [stdout, stderr] = [collect(child.stdout), collect(child.stderr)];
  feed(child.stdin, options.input);
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  return { code, signal, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr).toString() };
}

function collect(stream: Readable | null): Buffer[] {
  const chunks: Buffer[] = [];
  stream?.on('data', (chunk: Buffer) => chunks.push(chunk));
  return chunks;
}

function feed(stdin: NodeJS.WritableStream | null, input: CaptureOptions['input']): void {
  // A program that ends without reading all of it is judged by its exit code.
  stdin?.on('error', () => undefined);
  if (stdin === null || input === undefined) return;
  if (typeof input === 'string' || Buffer.isBuffer(input)) stdin.end(input);
  else input.pipe(stdin);
}
