// The SSH server of a workload end to end: real Docker Engine, real guest and holder, the real OpenSSH client through a data stream.
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { spawn as spawnPty } from '@lydell/node-pty';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { userOf } from '../../../agent/host/confinement.ts';
import { startAgentWorld, type AgentWorld } from '../agent-world.ts';
import { ssh, sshArgs, type SshTarget } from '../../kit/ssh-client.ts';
import { capture } from '../../kit/capture.ts';
import { freePort } from '../../kit/ports.ts';
import { eventually, runProgram } from '../../kit/processes.ts';
import { requireProgram } from '../../kit/setup.ts';
import { busyboxImage, scratchImage, type TestImage } from '../../kit/images.ts';

let world: AgentWorld;
let target: SshTarget;
let keys: { authorized_keys: string[] };
let busybox: TestImage;

beforeAll(async () => {
  world = await startAgentWorld({ quarantineMinutes: 0, asUnit: true });
  busybox = await busyboxImage(world.registry);
  const key = await world.identity('user');
  const gpu = 'GPU-00000000-0000-4000-8000-000000000000';
  world.plane.desire([
    world.workload('wl_busybox', busybox.pinnedRef, {
      gpu_uuids: [gpu],
      env: { GREETING: 'hello', LD_PRELOAD: '/none.so' },
    }),
  ]);
  await world.plane.phase('wl_busybox', 'running');
  keys = { authorized_keys: [key.publicKey] };
  target = { port: await world.plane.sshPort('wl_busybox', () => keys), keyFile: key.keyFile };
});

afterAll(async () => {
  await world.stop();
});

const md5 = (bytes: Buffer): string => createHash('md5').update(bytes).digest('hex');

test("a command runs as the image's user with its environment, and its exit code comes back", async () => {
  const result = await ssh(target, 'echo $GREETING; hostname; id -un; pwd; exit 42');
  expect(result.stdout.toString()).toBe('hello\ni-wl_busybox\nroot\n/root\n');
  expect(result.code).toBe(42);
});

test('dropbear, a client that guesses the key exchange, logs in and runs a command', async () => {
  const identity = join(world.dir, 'dropbear');
  const made = await capture([requireProgram('dropbearkey'), '-t', 'ed25519', '-f', identity]);
  const publicLine = /^ssh-ed25519 \S+/m.exec(made.stdout.toString())?.[0] ?? '';
  const port = await world.plane.sshPort('wl_busybox', () => ({ authorized_keys: [publicLine] }));
  const options = ['-y', '-y', '-i', identity, '-p', String(port)];
  const result = await capture([requireProgram('dbclient'), ...options, 'root@127.0.0.1', 'echo $GREETING; exit 42'], {
    env: { HOME: world.dir },
  });
  expect({ ...result, stdout: result.stdout.toString() }).toMatchObject({ code: 42, stdout: 'hello\n' });
});

test('the rented GPU is there, and no other', async () => {
  const result = await ssh(target, 'nvidia-smi --query-gpu=uuid --format=csv,noheader');
  expect(result.stdout.toString()).toBe('GPU-00000000-0000-4000-8000-000000000000\n');
});

test('standard output and standard error stay apart, and a signal is reported as a signal', async () => {
  const both = await ssh(target, 'echo out; echo err >&2; exit 3');
  expect({ ...both, stdout: both.stdout.toString() }).toEqual({
    code: 3,
    signal: null,
    stdout: 'out\n',
    stderr: 'err\n',
  });
  // OpenSSH's client ends with 255 if the server has sent exit-signal.
  expect((await ssh(target, 'kill -TERM $$')).code).toBe(255);
});

test('after the end of its input (half-close), the output of a command still arrives', async () => {
  const bytes = randomBytes(3_000_000);
  const result = await ssh(target, 'cat > /root/g; md5sum < /root/g', { input: bytes });
  expect(result.stdout.toString().slice(0, 32)).toBe(md5(bytes));
});

test('256 MiB arrive unchanged in both directions', async () => {
  const bytes = randomBytes(256 * 1024 * 1024);
  const result = await ssh(target, 'cat', { input: bytes });
  expect(result.code).toBe(0);
  expect(result.stdout.length).toBe(bytes.length);
  expect(md5(result.stdout)).toBe(md5(bytes));
});

test('a terminal gets a UTF-8 locale if none is set; a command gets the locale of the image', async () => {
  const plain = ['-o', 'SendEnv=-*'];
  const locale = async (options: string[]): Promise<string> =>
    (await ssh(target, 'echo "[$LANG$LC_ALL]"', { options })).stdout.toString().trim();
  expect(await locale(['-tt', ...plain])).toBe('[C.UTF-8]');
  expect(await locale(['-tt', ...plain, '-o', 'SetEnv=LC_ALL=de_DE.UTF-8'])).toBe('[de_DE.UTF-8]');
  expect(await locale(plain)).toBe('[]');
});

test('a terminal has the right size, and all output of a program that ends at once arrives', async () => {
  const sized = await ssh(target, 'stty size; test -t 0 && echo terminal', { options: ['-tt'] });
  expect(sized.stdout.toString()).toBe('24 80\r\nterminal\r\n');
  const many = await ssh(target, 'seq 1 20000', { options: ['-tt'] });
  expect(many.stdout.toString().trimEnd().split('\r\n')).toHaveLength(20_000);
  expect((await ssh(target, 'exit 7', { options: ['-tt'] })).code).toBe(7);
});

test('a window that changes reaches the program', async () => {
  const client = spawnPty('ssh', [...sshArgs(target), '-t', 'root@127.0.0.1'], { cols: 91, rows: 31 });
  let output = '';
  client.onData((text) => (output += text));
  const exited = new Promise<number>((resolve) => client.onExit(({ exitCode }) => resolve(exitCode)));
  const see = (text: string): Promise<boolean> =>
    eventually(text, 15_000, () => Promise.resolve(output.includes(text) ? true : undefined));
  await see('# ');
  client.write('stty size\r');
  await see('31 91');
  client.resize(66, 17);
  await eventually('new size', 15_000, async () => {
    client.write('stty size\r');
    await new Promise((resolve) => setTimeout(resolve, 50));
    return output.includes('17 66') ? true : undefined;
  });
  client.write('exit 5\r');
  expect(await exited).toBe(5);
});

test('the client may set variables, except those that describe the session itself', async () => {
  const options = ['-o', 'SetEnv=FOO=bar HOME=/nowhere'];
  expect((await ssh(target, 'echo $FOO $HOME', { options })).stdout.toString()).toBe('bar /root\n');
});

test('a wrong key is refused', async () => {
  const stranger = await world.identity('stranger');
  const result = await ssh({ ...target, keyFile: stranger.keyFile }, 'true');
  expect(result.code).toBe(255);
  expect(result.stderr).toContain('Permission denied (publickey)');
});

test('keys count from the next connection on', async () => {
  const late = await world.identity('late');
  expect((await ssh({ ...target, keyFile: late.keyFile }, 'true')).code).toBe(255);
  keys.authorized_keys.push(late.publicKey);
  expect((await ssh({ ...target, keyFile: late.keyFile }, 'true')).code).toBe(0);
});

test('the probe authenticates and gets no channel', async () => {
  const key = await world.identity('probe');
  const port = await world.plane.sshPort('wl_busybox', () => ({ probe_key: key.publicKey }));
  const asProbe = await ssh({ port, keyFile: key.keyFile }, 'true', { options: ['-o', 'LogLevel=INFO'] });
  expect(asProbe.code).toBe(255);
  expect(asProbe.stderr).toMatch(/open failed|administratively prohibited/);
  expect((await ssh({ ...target, keyFile: key.keyFile }, 'true')).stderr).toContain('Permission denied');
  expect((await ssh({ port, keyFile: target.keyFile }, 'true')).stderr).toContain('Permission denied');
});

test('a forwarded port reaches a listener inside, and fails if nothing listens', async () => {
  const [open, closed] = [await freePort(), await freePort()];
  const forwards = ['-L', `127.0.0.1:${open}:127.0.0.1:9000`, '-L', `127.0.0.1:${closed}:127.0.0.1:9001`];
  const listener = ssh(target, 'echo from inside | nc -l -p 9000');
  const child = spawn('ssh', [...sshArgs(target), '-N', ...forwards, 'root@127.0.0.1'], { stdio: 'ignore' });
  const reached = await eventually(
    'answer through the forward',
    15_000,
    async () => (await readAll(open)) || undefined,
  );
  expect(reached).toBe('from inside\n');
  expect(await readAll(closed)).toBe('');
  expect((await listener).code).toBe(0);
  child.kill();
});

describe('a port inside that is forwarded to the client (-R)', () => {
  const STRICT = ['-o', 'ExitOnForwardFailure=yes'];
  let local: Server;
  let localPort: number;
  beforeAll(async () => {
    // Answers with the bytes and their number. This tests both directions, and the end of one before the other.
    local = createServer({ allowHalfOpen: true }, (socket) => {
      const hash = createHash('md5');
      socket.on('data', (chunk: Buffer) => void hash.update(chunk));
      socket.once('end', () => socket.end(`${hash.digest('hex')}\n`));
      socket.on('error', () => socket.destroy());
    });
    local.listen(0, '127.0.0.1');
    await once(local, 'listening');
    localPort = (local.address() as AddressInfo).port;
  });
  afterAll(() => local.close());

  test('carries every byte both ways, many connections at a time', async () => {
    const one = 'head -c 8000000 /dev/zero | nc 127.0.0.1 7070';
    const options = [...STRICT, '-R', `7070:127.0.0.1:${localPort}`];
    const result = await ssh(target, `(${one})& (${one})& (${one})& wait`, { options });
    const sum = md5(Buffer.alloc(8_000_000));
    expect(result.stdout.toString()).toBe(`${sum}\n${sum}\n${sum}\n`);
  });

  test('may be any free port, whose number is sent to the client', async () => {
    const options = [...STRICT, '-R', `0:127.0.0.1:${localPort}`, '-o', 'LogLevel=INFO'];
    const result = await ssh(target, 'netstat -ltn', { options });
    const port = /Allocated port (\d+) for remote forward/.exec(result.stderr)?.[1];
    expect(result.stdout.toString()).toContain(`127.0.0.1:${port} `);
  });

  test('is refused if it is in use, and is free again when the client has gone', async () => {
    const options = [...STRICT, '-R', `7071:127.0.0.1:${localPort}`];
    const holder = spawn('ssh', [...sshArgs(target, options), 'root@127.0.0.1', 'echo listening; cat'], {
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    await once(holder.stdout, 'data');
    const refused = await ssh(target, 'true', { options });
    expect(refused).toMatchObject({ code: 255, stderr: expect.stringContaining('remote port forwarding failed') });
    holder.kill('SIGKILL');
    await eventually(
      'a free port',
      10_000,
      async () => (await ssh(target, 'true', { options })).code === 0 || undefined,
    );
  });

  test('closes only the one connection if the client has no listener', async () => {
    const options = [...STRICT, '-R', '7072:127.0.0.1:1'];
    const result = await ssh(target, 'nc 127.0.0.1 7072 </dev/null; echo still here', { options });
    expect(result.stdout.toString()).toBe('still here\n');
  });
});

describe("the client's SSH agent (-A)", () => {
  let agent: ChildProcess;
  let socket: string;
  beforeAll(async () => {
    socket = `${world.dir}/agent`;
    agent = spawn('ssh-agent', ['-D', '-a', socket], { stdio: 'ignore' });
    const env = { SSH_AUTH_SOCK: socket };
    await eventually('an agent', 10_000, () =>
      runProgram({ command: 'ssh-add', args: [target.keyFile], env }).catch(() => undefined),
    );
  });
  afterAll(() => agent.kill());

  // The bundle's own Node asks what ssh-add would ask: the images here have no OpenSSH. It prints the answer.
  const list = `for loader in /.svc/ld-*; do $loader --library-path /.svc/lib /.svc/node -e '
    require("net").connect(process.env.SSH_AUTH_SOCK, function () {
      this.write(Buffer.from([0, 0, 0, 1, 11]));
      this.once("data", (answer) => { console.log(answer.toString("base64")); this.end(); });
    });'; done`;

  test('is reached from inside, and is gone with the session', async () => {
    const result = await ssh(target, `${list}; ls -d /dev/shm/ssh-*`, {
      options: ['-A', '-o', `IdentityAgent=${socket}`],
    });
    const answer = Buffer.from(result.stdout.toString().split('\n')[0] ?? '', 'base64');
    expect(answer[4]).toBe(12);
    const key = Buffer.from(keys.authorized_keys[0]?.split(' ')[1] ?? '', 'base64');
    expect(answer.includes(key)).toBe(true);
    const folder = result.stdout.toString().split('\n')[1] ?? '';
    expect(folder).toMatch(/^\/dev\/shm\/ssh-/);
    await eventually('its end', 5_000, async () => (await ssh(target, `ls -d ${folder}`)).code !== 0 || undefined);
  });

  test('does not exist for a client that does not offer it', async () => {
    expect((await ssh(target, 'echo "[$SSH_AUTH_SOCK]"')).stdout.toString()).toBe('[]\n');
  });
});

test('twenty readers that have stopped reading do not hold up anyone else', async () => {
  const stalled = Array.from({ length: 20 }, () =>
    spawn('ssh', [...sshArgs(target), 'root@127.0.0.1', 'yes'], { stdio: ['ignore', 'pipe', 'ignore'] }),
  );
  await Promise.all(stalled.map((child) => new Promise((resolve) => child.stdout.once('readable', resolve))));
  expect((await ssh(target, 'cat', { input: 'still quick' })).stdout.toString()).toBe('still quick');
  const rssKib = Number(
    /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${world.holderPid('wl_busybox')}/status`, 'utf8'))?.[1],
  );
  expect(rssKib).toBeLessThan(400 * 1024);
  for (const child of stalled) child.kill('SIGKILL');
});

test('a holder has a heap limit, and OpenSSH is given a fast cipher', async () => {
  const argv = readFileSync(`/proc/${world.holderPid('wl_busybox')}/cmdline`, 'utf8').split('\0');
  expect(argv).toContain('--max-old-space-size=192');
  const { stderr } = await ssh(target, 'true', { options: ['-v'] });
  expect(stderr).toContain('kex: server->client cipher: aes128-gcm@openssh.com');
});

test('a holder runs as its own user without rights, and is killed first if memory runs out', () => {
  const pid = world.holderPid('wl_busybox');
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const field = (name: string): string => new RegExp(`^${name}:[ \\t]*(.*)$`, 'm').exec(status)?.[1] ?? '';
  const uid = userOf('wl_busybox');
  expect(field('Uid').split('\t')).toEqual(Array.from({ length: 4 }, () => String(uid)));
  expect(field('Gid').split('\t')).toEqual(Array.from({ length: 4 }, () => String(uid)));
  expect(field('Groups').trim()).toBe('');
  expect([field('CapPrm'), field('CapEff'), field('NoNewPrivs')]).toEqual([
    '0000000000000000',
    '0000000000000000',
    '1',
  ]);
  expect(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8')).toBe('500\n');
  // It can open neither the engine's socket nor the agent's files.
  const { uid: owner, mode } = statSync(world.engine.socketPath);
  expect([owner, mode & 0o007]).toEqual([0, 0]);
  expect(statSync(`${world.stateDir}/workloads/wl_busybox/host_key`).mode & 0o777).toBe(0o600);
});

// The agent of this file runs as the unit svc-agent.service, so all tests here pass under its filter.
test('a holder inherits the filter of system calls that the unit of the agent sets', async () => {
  const status = readFileSync(`/proc/${world.holderPid('wl_busybox')}/status`, 'utf8');
  expect(status).toMatch(/^Seccomp:\t2$/m);
  const { stdout } = await world.svcAgent('status');
  expect(stdout.toString()).toMatch(/^holders: /m);
  expect(stdout.toString()).not.toContain('no filter of system calls');
});

test('several sessions share one connection', async () => {
  const control = `${world.dir}/control`;
  const options = ['-o', `ControlPath=${control}`];
  const master = spawn('ssh', [...sshArgs(target), ...options, '-M', '-N', 'root@127.0.0.1'], { stdio: 'ignore' });
  await eventually('control socket', 15_000, async () =>
    (await ssh(target, 'true', { options })).code === 0 ? true : undefined,
  );
  const results = await Promise.all([1, 2, 3, 4].map((n) => ssh(target, `sleep 0.2; exit ${n}`, { options })));
  expect(results.map((result) => result.code)).toEqual([1, 2, 3, 4]);
  master.kill();
});

test('a subsystem that is not there is refused with a sentence', async () => {
  const netconf = await ssh(target, 'netconf', { options: ['-s'] });
  expect(netconf.code).toBe(1);
  expect(netconf.stderr).toContain('the subsystem netconf is not available here, only sftp is');
});

test('a client that hangs up ends its program', async () => {
  const child = spawn('ssh', [...sshArgs(target), 'root@127.0.0.1', 'echo begun; exec sleep 54321'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  await new Promise((resolve) => child.stdout.once('data', resolve));
  child.kill('SIGKILL');
  await eventually('end of the program', 10_000, async () => {
    const { stdout } = await ssh(target, 'ps | grep -c "sleep 5432[1]"');
    return stdout.toString() === '0\n' ? true : undefined;
  });
});

test('a scratch image without a shell says so, and its main process runs as its own user', async () => {
  const image = await scratchImage(world.registry, { config: { User: '1000' } });
  world.plane.desire([
    world.workload('wl_busybox', busybox.pinnedRef, { gpu_uuids: ['GPU-00000000-0000-4000-8000-000000000000'] }),
    world.workload('wl_scratch', image.pinnedRef),
  ]);
  await world.plane.phase('wl_scratch', 'running');
  const port = await world.plane.sshPort('wl_scratch', () => keys);
  const result = await ssh({ ...target, port }, 'true');
  expect(result.code).toBe(255);
  expect(result.stderr).toContain('this image has no shell');
});

test('an image with a named user: everything runs as that user, in its home', async () => {
  const image = await busyboxImage(world.registry, { name: 'named', config: { User: 'user' } });
  world.plane.desire([
    world.workload('wl_busybox', busybox.pinnedRef, { gpu_uuids: ['GPU-00000000-0000-4000-8000-000000000000'] }),
    world.workload('wl_named', image.pinnedRef),
  ]);
  await world.plane.phase('wl_named', 'running');
  const port = await world.plane.sshPort('wl_named', () => keys);
  const plain = await ssh({ ...target, port }, 'id -un; pwd');
  expect(plain.stdout.toString()).toBe('user\n/home/user\n');
  const onTerminal = await ssh({ ...target, port }, 'id -un', { options: ['-tt'] });
  expect(onTerminal.stdout.toString()).toBe('user\r\n');
});

test('after the end of the main process the container stays reachable, and the exit code is reported', async () => {
  world.plane.desire([
    world.workload('wl_busybox', busybox.pinnedRef, { gpu_uuids: ['GPU-00000000-0000-4000-8000-000000000000'] }),
    world.workload('wl_short', busybox.pinnedRef, { command: { entrypoint: null, cmd: ['sh', '-c', 'exit 9'] } }),
  ]);
  await world.plane.phase('wl_short', 'running');
  const observed = await eventually('main exit', 10_000, () => {
    const one = world.plane.observed()?.workloads.find((workload) => workload.workload_id === 'wl_short');
    return Promise.resolve(one?.main_exit === null ? undefined : one);
  });
  expect(observed.main_exit).toEqual({ code: 9, signal: null });
  expect(observed.phase).toBe('running');
  const port = await world.plane.sshPort('wl_short', () => keys);
  expect((await ssh({ ...target, port }, 'echo still here')).stdout.toString()).toBe('still here\n');
});

async function readAll(port: number): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => socket.destroy());
  let text = '';
  for await (const chunk of socket) text += String(chunk);
  return text;
}
