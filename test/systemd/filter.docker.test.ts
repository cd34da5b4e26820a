// The filter of system calls of the agent's unit, set by systemd itself. `agent/holder/ssh.docker.test.ts` shows that a holder works under it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startProgram } from '../kit/processes.ts';
import { underUnit } from '../kit/unit.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'filter-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

/** Calls functions of libc with arguments that do nothing, and prints which of them are refused with EPERM. Root meets no such refusal. */
const CALLS = `
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def refuses(name):
    return getattr(libc, name)(0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM
print("refused", json.dumps([name for name in sys.argv[1:] if refuses(name)]))
`;

/** What `pattern` finds in the output of a program that runs as the agent's unit. Output comes in pieces, so a pattern ends with the line break. */
async function outputOf(argv: readonly string[], pattern: RegExp): Promise<string | undefined> {
  const [command = '', ...args] = underUnit('svc-agent.service', dir, argv);
  const program = startProgram({ command, args });
  const [, found] = await program.waitForOutput(pattern);
  await program.stop();
  return found;
}

async function refusedOf(names: readonly string[]): Promise<unknown> {
  return JSON.parse((await outputOf(['/usr/bin/python3', '-c', CALLS, ...names], /^refused (.*)\n/m)) ?? '');
}

test('what the agent starts cannot mount, trace, swap, restart the machine or change its root', async () => {
  const refused = ['mount', 'umount2', 'chroot', 'pivot_root', 'ptrace', 'swapoff', 'reboot', 'acct'];
  expect(await refusedOf(refused)).toEqual(refused);
});

test('what the agent starts cannot make a namespace of users, where it would be root', async () => {
  const argv = ['/bin/sh', '-c', 'unshare --user true; echo "unshare $?"'];
  expect(await outputOf(argv, /^unshare (\d+)\n/m)).not.toBe('0');
});

test('what the agent starts can still do what a holder does: leave root, listen, and serve many clients', async () => {
  expect(await refusedOf(['setgroups', 'setgid', 'setuid', 'socket', 'epoll_create1', 'eventfd'])).toEqual([]);
});
