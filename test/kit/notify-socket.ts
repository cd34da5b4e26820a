// The service manager's end of sd_notify. It is a unix datagram socket. Node has none, so it is written in Perl, which every Debian has.
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Program, startProgram } from './processes.ts';

/** Containers often have no systemd, and then no program that speaks to it. */
export const hasSystemd = existsSync('/usr/bin/systemd-notify');

export interface NotifySocket {
  path: string;
  /** What has come, in order; the barrier that systemd-notify waits at is left out. */
  messages(): string[];
  waitFor(pattern: RegExp): Promise<unknown>;
  close(): Promise<void>;
}

const LISTENER = `
use Socket;
socket(my $socket, AF_UNIX, SOCK_DGRAM, 0) or die $!;
bind($socket, sockaddr_un($ARGV[0])) or die $!;
$| = 1;
print "listening\\n";
while (defined recv($socket, my $message, 4096, 0)) { print "$message\\n" }
`;

export async function openNotifySocket(): Promise<NotifySocket> {
  const dir = mkdtempSync(join(tmpdir(), 'notify-'));
  const path = join(dir, 'socket');
  const program: Program = startProgram({ command: 'perl', args: ['-e', LISTENER, path] });
  await program.waitForOutput(/^listening$/m);
  const messages = (): string[] =>
    program
      .output()
      .trim()
      .split('\n')
      .slice(1)
      .filter((line) => line !== 'BARRIER=1');
  return {
    path,
    messages,
    waitFor: (pattern) => program.waitForOutput(pattern, 30_000),
    close: async () => {
      await program.stop('SIGKILL');
      rmSync(dir, { recursive: true });
    },
  };
}
