// Serves one SSH session: a shell, a command or SFTP, carried between the client and the guest inside the container.
import { constants } from 'node:os';
import type { ServerChannel, Session } from 'ssh2';
import { messageOf } from '../../shared/errors.ts';
import type { GuestSession } from './guest-connection.ts';
import type { Exit, Pty, SessionRequest } from '../wire/guest-messages.ts';
import { forwardAgent } from './ssh-forward.ts';
import { attach, type Attached, feedInside, forgetSent, type SessionHost } from './ssh-channel.ts';

const ENV_NAMES_MAX = 128;
const ENV_CHARS_MAX = 16_384;
/** All variables of one session, as they are sent to the guest. */
export const ENV_BYTES_MAX = 128 * 1024;
/** The exit code that SSH clients use for a session that was lost. */
const LOST = 255;
const ENV_TOO_LARGE = `the environment of this session is larger than ${ENV_BYTES_MAX / 1024} KiB`;
const NO_SUBSYSTEM = 1;
/** A shell reports a program that a signal has ended by this sum with the signal's number. */
const SIGNALLED = 128;
/** The signals that have a name in SSH. ssh2 throws if it has to send another one. */
const SSH_SIGNALS = new Set([
  'ABRT',
  'ALRM',
  'FPE',
  'HUP',
  'ILL',
  'INT',
  'KILL',
  'PIPE',
  'QUIT',
  'SEGV',
  'TERM',
  'USR1',
  'USR2',
]);

/** Serves one `session` channel: first the environment and the terminal, then one shell or command. */
export function serveSession(session: Session, host: SessionHost): void {
  const env = collectEnv(session, host);
  let pty: Pty | null = null;
  let inside: GuestSession | undefined;
  host.sessions += 1;
  let counted = true;
  let agent: Promise<GuestSession | undefined> | undefined;
  const over = (): void => {
    if (counted) host.sessions -= 1;
    counted = false;
    env.forget();
    void agent?.then((listener) => listener?.socket.destroy());
  };
  session.once('close', over);

  session.on('pty', (accept, _reject, { term, cols, rows }) => {
    pty = { term: /^[\w.+-]{1,64}$/.test(term) ? term : 'xterm', cols, rows };
    accept?.();
  });
  session.on('window-change', (accept, _reject, { cols, rows }) => {
    if (pty !== null) pty = { ...pty, cols, rows };
    inside?.resize(cols, rows);
    accept?.();
  });
  session.on('signal', (accept, _reject, { name }) => {
    inside?.signal(name.replace(/^SIG/, '').slice(0, 16));
    accept?.();
  });
  session.on('auth-agent', (accept, reject) => {
    if (agent !== undefined) return reject?.();
    // The session goes on if agent forwarding fails. sshd does the same.
    agent = forwardAgent(host).catch(() => undefined);
    accept?.();
  });
  /** A session has one channel. If a client asks for a second shell or command on it, ssh2 returns none. */
  const open = (accept: () => ServerChannel | undefined): Attached | undefined => {
    const channel = accept();
    return channel && attach(channel, host);
  };
  const start = async (served: Attached | undefined, request: SessionRequest): Promise<void> => {
    if (served === undefined) return;
    served.closed.addEventListener('abort', over);
    const path = (await agent)?.path;
    if (path !== undefined) env.values['SSH_AUTH_SOCK'] = path;
    inside = await runInside(served, request, host);
    // The window may have changed while the guest started the shell.
    if (request.kind === 'exec' && pty !== null && pty !== request.pty) inside?.resize(pty.cols, pty.rows);
  };
  const run = (accept: () => ServerChannel | undefined, command: string | null): void => {
    const served = open(accept);
    if (served !== undefined && env.isTooLarge()) return finish(served.channel, LOST, ENV_TOO_LARGE);
    void start(served, { kind: 'exec', command, env: env.values, pty });
  };
  session.on('shell', (accept) => run(accept, null));
  session.on('exec', (accept, _reject, { command }) => run(accept, command));
  // No listener for `sftp`: ssh2 would then parse the protocol on this host. The guest parses it inside the container.
  session.on('subsystem', (accept, _reject, { name }) => {
    if (name === 'sftp') return void start(open(accept), { kind: 'sftp' });
    const served = open(accept);
    if (served === undefined) return;
    finish(served.channel, NO_SUBSYSTEM, `the subsystem ${name.slice(0, 32)} is not available here, only sftp is`);
  });
}

interface SessionEnv {
  values: Record<string, string>;
  /** True if a variable was refused because of the size of all. The session must not run without it. */
  isTooLarge(): boolean;
  /** Must be called at the end of the session. */
  forget(): void;
}

/** Collects the variables that the client sets. Their bytes count as bytes that its connection holds in memory. */
function collectEnv(session: Session, host: SessionHost): SessionEnv {
  const values: Record<string, string> = {};
  let bytes = 0;
  let tooLarge = false;
  session.on('env', (accept, reject, { key, val }) => {
    if (!mayBeSet(key) || val.length > ENV_CHARS_MAX || Object.keys(values).length >= ENV_NAMES_MAX) return reject?.();
    const more = Buffer.byteLength(JSON.stringify({ [key]: val }));
    tooLarge ||= bytes + more > ENV_BYTES_MAX;
    if (tooLarge) return reject?.();
    bytes += more;
    host.envBytes += more;
    values[key] = val;
    accept?.();
  });
  const forget = (): void => {
    host.envBytes -= bytes;
    bytes = 0;
  };
  return { values, isTooLarge: () => tooLarge, forget };
}

async function runInside(
  attached: Attached,
  request: SessionRequest,
  host: SessionHost,
): Promise<GuestSession | undefined> {
  const { channel, closed } = attached;
  const { guests, pace } = host;
  try {
    const inside = await guests.open(request, {
      onData: async (type, bytes) => {
        await pace.write(type === 'stdout' ? channel : channel.stderr, bytes, closed);
        forgetSent(channel);
      },
      onEof: () => {},
      onEnd: (exit) => end(channel, exit),
    });
    feedInside(attached, inside, host);
    return inside;
  } catch (error) {
    finish(channel, LOST, messageOf(error));
    return undefined;
  }
}

function end(channel: ServerChannel, exit: Exit | undefined): void {
  if (exit === undefined) return finish(channel, LOST, 'the helper inside the container went away');
  if (!channel.writable) return;
  const name = exit.signal?.replace(/^SIG/, '') ?? '';
  if (SSH_SIGNALS.has(name)) channel.exit(name, false, '');
  else channel.exit(exitCode(exit));
  channel.end();
}

/** The code of an exit that SSH cannot report as a signal. The guest may be hostile, so the signal can be any text. */
function exitCode({ code, signal }: Exit): number {
  const [, number] = Object.entries(constants.signals).find(([name]) => name === signal) ?? [];
  return number === undefined ? (code ?? LOST) : SIGNALLED + number;
}

/** Writes a sentence to the client's standard error, then ends the channel. */
function finish(channel: ServerChannel, code: number, sentence: string): void {
  if (!channel.writable) return;
  channel.stderr.write(`svc: ${sentence}\r\n`);
  channel.exit(code);
  channel.end();
}

/** True if a client may set this variable. We set the variables that describe the session itself. */
function mayBeSet(name: string): boolean {
  return (
    /^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(name) && !['HOME', 'USER', 'LOGNAME', 'SHELL', 'PATH', 'IFS'].includes(name)
  );
}
