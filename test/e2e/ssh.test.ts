// The public SSH endpoint with the real OpenSSH client: control plane, tunnel, holder and guest in between, every byte and code as sent.
import { spawn as spawnPty } from '@lydell/node-pty';
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import type { Instance } from '../../shared/api/instance.ts';
import { SshKey } from '../../shared/api/account.ts';
import { terminate } from '../kit/api-client.ts';
import { capture } from '../kit/capture.ts';
import { eventually, startProgram, type Program } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { makeIdentity, openSshClient, type SshClient } from '../kit/ssh-client.ts';
import { verifyLedger } from '../kit/stack.ts';

let stack: RentalStack;
let instance: Instance;
let ssh: SshClient;

beforeAll(async () => {
  stack = await openRentalStack();
  instance = await stack.rent({ env: { GREETING: 'hello' } });
  ssh = stack.ssh(instance);
});

afterEach(async () => {
  await verifyLedger(stack.controlPlane);
});

afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

const md5 = (bytes: Buffer): string => createHash('md5').update(bytes).digest('hex');
const RANDOM_BYTES = 256 * 1024 ** 2;

test('output, errors, environment and the exit code come back as they were', async () => {
  const { code, stdout, stderr } = await ssh.run('echo $GREETING; echo problem >&2; exit 42');
  expect({ code, stdout: stdout.toString(), stderr }).toEqual({ code: 42, stdout: 'hello\n', stderr: 'problem\n' });
  expect(await ssh.run('true')).toMatchObject({ code: 0 });
  // OpenSSH says 255 if the server tells of a signal.
  expect(await ssh.run('kill -KILL $$')).toMatchObject({ code: 255 });
});

test('a terminal has a size, and its resize arrives', async () => {
  const [program, ...args] = ssh.argv(['-tt']);
  const client = spawnPty(program, args, { cols: 91, rows: 31 });
  let output = '';
  client.onData((text) => (output += text));
  const exited = new Promise<number>((resolve) => client.onExit(({ exitCode }) => resolve(exitCode)));
  const see = (text: string): Promise<true> =>
    eventually(`"${text}" on the terminal`, 15_000, async () => {
      client.write('stty size\r');
      await new Promise((resolve) => setTimeout(resolve, 50));
      return output.includes(text) ? true : undefined;
    });
  await see('31 91');
  client.resize(66, 17);
  await see('17 66');
  client.write('exit 5\r');
  expect(await exited).toBe(5);
});

test('half-close: the command sees the end of its input, and its output still comes', async () => {
  const bytes = randomBytes(5_000_000);
  const { stdout } = await ssh.run('cat > g; md5sum < g', { input: bytes });
  expect(stdout.toString().slice(0, 32)).toBe(md5(bytes));
});

test('256 MiB of random bytes are the same over there and back here', async () => {
  const bytes = randomBytes(RANDOM_BYTES);
  const up = await ssh.run('cat > big; md5sum < big', { input: bytes, timeoutMs: 90_000 });
  expect(up.stdout.toString().slice(0, 32)).toBe(md5(bytes));
  const down = await ssh.run('cat big; rm big', { timeoutMs: 90_000 });
  expect(down.stdout.length).toBe(bytes.length);
  expect(md5(down.stdout)).toBe(md5(bytes));
});

test('20 readers that do not read do not hold up the echo of another stream', async () => {
  const stalled = Array.from({ length: 20 }, () => ssh.start('cat /dev/zero'));
  await Promise.all(
    stalled.map(async (client) => {
      await eventually('bytes from the stalled reader', 20_000, async () =>
        client.output().length > 0 ? true : undefined,
      );
      process.kill(client.pid, 'SIGSTOP');
    }),
  );
  // The tunnel is full behind each of them: no writer over there gets on.
  await eventually('standstill of the 20 writers', 30_000, async () => {
    const [before, after] = [await writtenBytes(), await writtenBytes()];
    return before.length === 20 && before.join() === after.join() ? true : undefined;
  });
  const echo = ssh.start('cat -');
  for (let round = 1; round <= 20; round += 1) {
    echo.write(`round ${round}\n`);
    await echo.waitForOutput(new RegExp(`^round ${round}$`, 'm'));
  }
  for (const client of stalled) expect(await isAlive(client)).toBe(true);
  await Promise.all([...stalled, echo].map((client) => client.stop('SIGKILL')));
});

/** What each `cat` in the container has written so far. */
async function writtenBytes(): Promise<string[]> {
  const { stdout } = await ssh.run("for p in $(pidof cat); do sed -n 's/^wchar: //p' /proc/$p/io; done");
  return stdout.toString().split('\n').filter(Boolean);
}

async function isAlive(client: Program): Promise<boolean> {
  return Promise.race([client.exited.then(() => false), Promise.resolve(true)]);
}

test('a key that is not registered is refused, and counts from the moment it is', async () => {
  const late = await makeIdentity(join(stack.dir, 'ssh'), 'late');
  const asLate = openSshClient(instance, late);
  const refused = await asLate.run('true');
  expect(refused.stderr).toContain('Permission denied (publickey)');
  expect(refused.code).toBe(255);
  const { api } = stack.customer;
  const { id } = await api.post('/ssh-keys', { name: 'late', public_key: late.publicKey }, SshKey);
  expect(await asLate.run('true')).toMatchObject({ code: 0 });
  await api.delete(`/ssh-keys/${id}`, z.null());
  expect(await asLate.run('true')).toMatchObject({ code: 255 });
});

test('a host key that is not the published one ends the connection', async () => {
  const stranger = await makeIdentity(join(stack.dir, 'ssh'), 'stranger');
  const connection = { ...instance.connection, host_key: stranger.publicKey };
  const deceived = openSshClient({ ...instance, connection }, stranger);
  expect((await deceived.run('true')).stderr).toContain('Host key verification failed');
});

test('one connection carries many sessions (ControlMaster)', async () => {
  const folder = join(stack.dir, 'cm');
  mkdirSync(folder, { mode: 0o700 });
  const shared = ['-o', `ControlPath=${folder}/%C`];
  const [program, ...args] = ssh.argv([...shared, '-o', 'ControlMaster=yes', '-N']);
  const master = startProgram({ command: program, args });
  const check = ssh.argv([...shared, '-O', 'check']);
  await eventually('master connection', 15_000, async () => ((await capture(check)).code === 0 ? true : undefined));
  const through = await Promise.all(
    Array.from({ length: 8 }, (_, i) => capture([...ssh.argv(shared), `echo ${i}; exit ${i}`])),
  );
  expect(through.map(({ code, stdout }) => `${code} ${stdout.toString()}`)).toEqual(
    Array.from({ length: 8 }, (_, i) => `${i} ${i}\n`),
  );
  await master.stop();
});

test('the endpoint of a terminated instance is closed, and its sessions end', async () => {
  const other = await stack.rent();
  const client = stack.ssh(other);
  const session = client.start('cat');
  session.write('here\n');
  await session.waitForOutput(/^here$/m);
  await terminate(stack.customer.api, other.id);
  expect(await session.exited).toMatchObject({ code: 255 });
  const port = other.connection?.port ?? 0;
  await eventually('closed port', 10_000, async () => ((await isOpen(port)) ? undefined : true));
  expect(await ssh.run('true')).toMatchObject({ code: 0 });
});

function isOpen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port });
    socket.once('error', () => resolve(false));
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
  });
}
