// The real OpenSSH client, pointed at a loopback port, trusting nothing but what a test gives it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';

export interface SshTarget {
  port: number;
  keyFile: string;
  user?: string;
}

export interface SshResult {
  code: number | null;
  stdout: Buffer;
  stderr: string;
}

/** Arguments before the command. */
export function sshArgs(target: SshTarget, ...options: string[]): string[] {
  const settings = [
    'StrictHostKeyChecking=no',
    'UserKnownHostsFile=/dev/null',
    'IdentitiesOnly=yes',
    'BatchMode=yes',
    'LogLevel=ERROR',
    'ConnectTimeout=15',
  ].flatMap((setting) => ['-o', setting]);
  // The first value of a setting counts.
  return ['-F', 'none', ...options, ...settings, '-i', target.keyFile, '-p', String(target.port)];
}

/** Runs one command (or, without one, whatever `options` ask for) to its end. */
export async function ssh(
  target: SshTarget,
  command: string | null,
  more: { input?: Buffer | string; options?: string[] } = {},
): Promise<SshResult> {
  const user = target.user ?? 'root';
  const argv = [
    ...sshArgs(target, ...(more.options ?? [])),
    `${user}@127.0.0.1`,
    ...(command === null ? [] : [command]),
  ];
  const child = spawn('ssh', argv, { stdio: ['pipe', 'pipe', 'pipe'] });
  const stdout: Buffer[] = [];
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => stdout.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdin.on('error', () => {});
  child.stdin.end(more.input ?? '');
  const [code]: (number | null)[] = await once(child, 'close');
  return { code: code ?? null, stdout: Buffer.concat(stdout), stderr };
}
