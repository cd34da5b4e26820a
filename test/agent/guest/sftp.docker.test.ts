// Files to and from a workload with OpenSSH's own scp and sftp, in an image that has neither an SFTP server nor, once, a shell.
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { busyboxImage, scratchImage } from '../../kit/images.ts';
import { capture, type Captured } from '../../kit/capture.ts';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';
import { ssh, sshArgs, type SshTarget } from '../../kit/ssh-client.ts';

let world: AgentWorld;
let busybox: SshTarget;
let scratch: SshTarget;
let dir: string;

beforeAll(async () => {
  world = await startAgentWorld({ quarantineMinutes: 0 });
  dir = join(world.dir, 'files');
  mkdirSync(dir);
  const key = await world.identity('user');
  const keys = { authorized_keys: [key.publicKey] };
  const own = await scratchImage(world.registry, { config: { User: '1000' } });
  world.plane.desire([
    world.workload('wl_busybox', (await busyboxImage(world.registry)).pinnedRef),
    world.workload('wl_scratch', own.pinnedRef),
  ]);
  const open = async (id: string): Promise<SshTarget> => {
    await world.plane.phase(id, 'running');
    return { port: await world.plane.sshPort(id, () => keys), keyFile: key.keyFile };
  };
  [busybox, scratch] = [await open('wl_busybox'), await open('wl_scratch')];
});

afterAll(async () => {
  await world.stop();
});

/** `scp` and `sftp` take a port as -P. */
const fileArgs = (target: SshTarget): string[] =>
  sshArgs(target).map((argument) => (argument === '-p' ? '-P' : argument));
const scp = (target: SshTarget, ...argv: string[]): Promise<Captured> =>
  capture(['scp', ...fileArgs(target), ...argv], { timeoutMs: 120_000 });
const sftp = (target: SshTarget, ...lines: string[]): Promise<Captured> =>
  capture(['sftp', ...fileArgs(target), '-b', '-', 'root@127.0.0.1'], { input: `${lines.join('\n')}\n` });
const shown = (result: Captured): string => result.stdout.toString();
const md5 = (bytes: Buffer): string => createHash('md5').update(bytes).digest('hex');
const output = async (command: string): Promise<string> => (await ssh(busybox, command)).stdout.toString();

test('scp carries 64 MiB there and back, with mode and time', async () => {
  const bytes = randomBytes(64 * 1024 * 1024);
  const [there, back] = [join(dir, 'there'), join(dir, 'back')];
  writeFileSync(there, bytes, { mode: 0o640 });
  expect(await scp(busybox, '-p', there, 'root@127.0.0.1:big')).toMatchObject({ code: 0 });
  expect(await output('md5sum big; stat -c %a big')).toBe(`${md5(bytes)}  big\n640\n`);
  expect(await scp(busybox, '-p', 'root@127.0.0.1:~/big', back)).toMatchObject({ code: 0 });
  expect(md5(readFileSync(back))).toBe(md5(bytes));
  expect(Math.floor(statSync(back).mtimeMs / 1000)).toBe(Math.floor(statSync(there).mtimeMs / 1000));
});

test('scp carries folders, also with names that are not UTF-8 and more entries than one answer holds', async () => {
  const folder = Buffer.from(join(dir, 'tree/'));
  mkdirSync(join(dir, 'tree'));
  const odd = Buffer.from([0x66, 0xff, 0xfe]);
  writeFileSync(Buffer.concat([folder, odd]), 'odd');
  for (let i = 0; i < 250; i += 1) writeFileSync(join(dir, `tree/${i}`), String(i));
  expect(await scp(busybox, '-r', join(dir, 'tree'), 'root@127.0.0.1:/tmp/')).toMatchObject({ code: 0 });
  expect(await output('ls /tmp/tree | wc -l; cat /tmp/tree/249')).toBe('251\n249');
  expect(await scp(busybox, '-r', 'root@127.0.0.1:/tmp/tree', join(dir, 'again'))).toMatchObject({ code: 0 });
  expect(readFileSync(Buffer.concat([Buffer.from(join(dir, 'again/')), odd])).toString()).toBe('odd');
  expect(readFileSync(join(dir, 'again/0')).toString()).toBe('0');
});

test('sftp: folders, links, moving, modes, cutting off and what is free', async () => {
  writeFileSync(join(dir, 'note'), 'a note');
  const done = await sftp(
    busybox,
    'pwd',
    'mkdir work',
    `put ${join(dir, 'note')} work/note`,
    'chmod 600 work/note',
    'ln -s note work/symbolic',
    'ln work/note work/hard',
    'rename work/note work/moved',
    'ls -l work',
    'df work',
    'rm work/hard',
  );
  expect(done).toMatchObject({ code: 0 });
  expect(shown(done)).toContain('Remote working directory: /root');
  expect(shown(done)).toMatch(/-rw------- +2 .* +6 .* moved/);
  expect(shown(done)).toMatch(/lrwxrwxrwx +1 .* symbolic/);
  expect(shown(done)).toMatch(/Avail/);
  expect(await output('ls work; readlink work/symbolic; cat work/moved')).toBe('moved\nsymbolic\nnote\na note');
});

test('a request that cannot be done is refused in words, and the session goes on', async () => {
  const refused = await sftp(
    busybox,
    '-get /nowhere',
    '-mkdir /proc/x',
    '-rmdir /usr',
    '-put /etc/hostname /dev/full',
    'mkdir /tmp/after',
  );
  expect(refused.code).toBe(0);
  expect(refused.stderr).toContain('No such file or directory');
  expect(await output('test -d /tmp/after && echo there')).toBe('there\n');
});

test('an upload that was broken off goes on where it was', async () => {
  const bytes = randomBytes(1024 * 1024);
  writeFileSync(join(dir, 'whole'), bytes);
  await ssh(busybox, 'cat > /tmp/part', { input: bytes.subarray(0, 300_000) });
  expect(await sftp(busybox, `reput ${join(dir, 'whole')} /tmp/part`)).toMatchObject({ code: 0 });
  expect(await output('md5sum /tmp/part')).toBe(`${md5(bytes)}  /tmp/part\n`);
});

test("an image without shell and programs takes and gives files too, as the image's user", async () => {
  writeFileSync(join(dir, 'model'), 'weights');
  expect(await scp(scratch, join(dir, 'model'), 'root@127.0.0.1:/dev/shm/model')).toMatchObject({ code: 0 });
  const listed = await sftp(scratch, 'ls -ln /dev/shm/model', '-put /etc/hostname /refused');
  expect(shown(listed)).toMatch(/ 1000 .* 7 .*\/dev\/shm\/model/);
  expect(listed.stderr).toContain('Permission denied');
});
