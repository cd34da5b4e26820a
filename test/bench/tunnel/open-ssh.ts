// The named peer: OpenSSH's own reverse tunnel (`ssh -R`), server and client as processes of the bench on loopback.
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../kit/ports.ts';
import { eventually, startProgram, type Program } from '../../kit/processes.ts';
import { requireProgram } from '../../kit/setup.ts';
import { makeIdentity } from '../../kit/ssh-client.ts';
import type { Chain } from './chain.ts';

/** Its fastest. */
const CIPHER = 'aes128-gcm@openssh.com';
/** A path in Debian's sshd, which must exist if root starts sshd. */
const EMPTY_FOLDER = '/run/sshd';

/** A port in front whose connections sshd carries to the client, and the client to `targetPort`. `dir` is new. */
export async function openSshTunnel(dir: string, targetPort: number): Promise<Chain> {
  const [sshdPort, port] = [await freePort(), await freePort()];
  const server = await startServer(dir, sshdPort);
  const client = startProgram({
    command: requireProgram('ssh'),
    args: [
      `-i${join(dir, 'user')}`,
      `-p${sshdPort}`,
      `-c${CIPHER}`,
      `-R127.0.0.1:${port}:127.0.0.1:${targetPort}`,
      '-N',
      '-Fnone',
      '-oBatchMode=yes',
      '-oIdentitiesOnly=yes',
      '-oStrictHostKeyChecking=no',
      '-oUserKnownHostsFile=/dev/null',
      '-oExitOnForwardFailure=yes',
      `${userInfo().username}@127.0.0.1`,
    ],
  });
  const close = (): Promise<unknown> => Promise.all([client.stop(), server.stop()]);
  // They have process groups of their own, so that an interrupted bench ends them too.
  process.once('exit', () => void close());
  try {
    await isListening(port, client);
  } catch (error) {
    await close();
    throw new Error(`ssh -R did not come up:\n${client.output()}\n${server.output()}`, { cause: error });
  }
  return { port, pids: [client.pid, server.pid], close };
}

async function startServer(dir: string, port: number): Promise<Program> {
  const user = await makeIdentity(dir, 'user');
  const host = await makeIdentity(dir, 'host');
  writeFileSync(join(dir, 'authorized_keys'), user.publicKey, { mode: 0o600 });
  if (userInfo().uid === 0) mkdirSync(EMPTY_FOLDER, { recursive: true, mode: 0o755 });
  const config = join(dir, 'sshd_config');
  const options = {
    ListenAddress: `127.0.0.1:${port}`,
    HostKey: host.keyFile,
    AuthorizedKeysFile: join(dir, 'authorized_keys'),
    PidFile: 'none',
    // The folder lies below a temporary one, which others may write to.
    StrictModes: 'no',
    UsePAM: 'no',
    PermitRootLogin: 'prohibit-password',
    Ciphers: CIPHER,
  };
  const lines = Object.entries(options).map(([name, value]) => `${name} ${value}\n`);
  writeFileSync(config, lines.join(''));
  const server = startProgram({ command: requireProgram('sshd'), args: ['-D', '-e', '-f', config] });
  await isListening(port, server);
  return server;
}

/** Resolves when somebody accepts connections there; rejects when the program that should has ended. */
async function isListening(port: number, program: Program): Promise<void> {
  const ended = program.exited.then(() => {
    throw new Error(program.output());
  });
  const accepted = eventually(`listener on port ${port}`, 15_000, async () => {
    const socket = connect(port, '127.0.0.1');
    const { promise, resolve } = Promise.withResolvers<true | undefined>();
    socket.once('connect', () => resolve(true));
    socket.once('error', () => resolve(undefined));
    return promise.finally(() => socket.destroy());
  });
  await Promise.race([ended, accepted]);
}
