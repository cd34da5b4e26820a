// One SSH channel each: a shell, a command or a forwarded connection, carried between the client and the guest inside the container.
import type { ServerChannel, Session } from 'ssh2';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import { frameSink, leaveSession } from './frame-sink.ts';
import type { GuestSession, Guests } from './guests.ts';
import type { Exit, Pty, SessionRequest } from './guest/words.ts';
import type { Pace } from './ssh-pace.ts';

/** The connection that a channel belongs to. */
export interface SessionHost {
  guests: Guests;
  clock: Clock;
  pace: Pace;
  /** Open channels, watched for clients that write past their window. */
  channels: Set<WindowedChannel>;
  /** Channels counted from the moment they are asked for. */
  sessions: number;
  /** Aborted when the client has gone, however it went. */
  gone: AbortSignal;
}

/** ssh2's channel with the part of it that its types leave out. */
export type WindowedChannel = ServerChannel & { incoming: { window: number; state: string } };

const ENV_NAMES_MAX = 128;
const ENV_CHARS_MAX = 16_384;
/** What an SSH client sees for anything that did not end by itself. */
const LOST = 255;
const NO_SUBSYSTEM = 1;

/** Answers one `session` channel: environment and terminal first, then one shell or command. */
export function serveSession(session: Session, host: SessionHost): void {
  const env: Record<string, string> = {};
  let pty: Pty | null = null;
  let inside: GuestSession | undefined;
  host.sessions += 1;
  let counted = true;
  const over = (): void => {
    if (counted) host.sessions -= 1;
    counted = false;
  };
  session.once('close', over);

  session.on('env', (accept, reject, { key, val }) => {
    if (!mayBeSet(key) || val.length > ENV_CHARS_MAX || Object.keys(env).length >= ENV_NAMES_MAX) return reject?.();
    env[key] = val;
    accept?.();
  });
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
  const start = (channel: ServerChannel, request: SessionRequest): void => {
    const served = attach(channel, host);
    served.closed.addEventListener('abort', over);
    void runInside(served, request, host).then((started) => {
      inside = started;
    });
  };
  session.on('shell', (accept) => start(accept(), { kind: 'exec', command: null, env, pty }));
  session.on('exec', (accept, _reject, { command }) => start(accept(), { kind: 'exec', command, env, pty }));
  // A listener for `sftp` would have ssh2 take the protocol apart on this host; the guest does that, inside the container.
  session.on('subsystem', (accept, _reject, { name }) => {
    if (name === 'sftp') return start(accept(), { kind: 'sftp' });
    const { channel } = attach(accept(), host);
    finish(channel, NO_SUBSYSTEM, `the subsystem ${name.slice(0, 32)} is not available here, only sftp is`);
  });
}

/**
 * A connection inside the container, for `request`, on a channel of its own. `open` is called once there is one inside, `reject` where
 * there is none. For `-L` and `-D` the guest dials, so the addresses mean what they mean inside the container.
 */
export async function serveForward(
  request: Extract<SessionRequest, { kind: 'dial' | 'take' }>,
  channel: { open: () => ServerChannel | Promise<ServerChannel>; reject?: () => void },
  host: SessionHost,
): Promise<void> {
  host.sessions += 1;
  // Undefined where no channel came about. Never rejected: a channel that is refused must not be an error that nobody handles.
  const opened = Promise.withResolvers<Attached | undefined>();
  let inside: GuestSession | undefined;
  try {
    inside = await host.guests.open(request, {
      onData: async (_type, bytes) => {
        const outside = await opened.promise;
        if (outside !== undefined) await host.pace.write(outside.channel, bytes, outside.closed);
      },
      onEof: () => void opened.promise.then((outside) => outside?.channel.eof()),
      onEnd: () => void opened.promise.then((outside) => outside?.channel.end()),
    });
    if (host.gone.aborted) throw new Error('the client has gone');
    const attached = attach(await channel.open(), host);
    attached.closed.addEventListener('abort', () => (host.sessions -= 1));
    feedInside(attached, inside, host);
    opened.resolve(attached);
  } catch {
    host.sessions -= 1;
    inside?.socket.destroy();
    opened.resolve(undefined);
    channel.reject?.();
  }
}

interface Attached {
  channel: WindowedChannel;
  /** Aborted when the channel has closed, whoever closed it. */
  closed: AbortSignal;
  /** Aborted before that where the client was lost in the middle of what it said. */
  lost: AbortSignal;
}

function attach(channel: ServerChannel, host: SessionHost): Attached {
  if (!isWindowed(channel)) throw new Error('ssh2 changed: a channel has no window');
  const closing = new AbortController();
  const losing = new AbortController();
  const judge = (): void => void (channel.incoming.state === 'open' && losing.abort());
  host.gone.addEventListener('abort', judge);
  host.channels.add(channel);
  channel.on('error', () => {});
  channel.stderr.on('error', () => {});
  channel.once('close', () => {
    host.gone.removeEventListener('abort', judge);
    host.channels.delete(channel);
    closing.abort();
  });
  return { channel, closed: closing.signal, lost: losing.signal };
}

/** What the client says goes inside, also what it said last before it left. */
function feedInside({ channel, closed, lost }: Attached, { socket }: GuestSession, { clock, gone }: SessionHost): void {
  if (lost.aborted) return void socket.destroy();
  const sink = frameSink(socket);
  const leave = (): void => leaveSession(socket, sink, clock);
  lost.addEventListener('abort', () => socket.destroy());
  // A channel that is not read to its end does not close, though its client has gone.
  gone.addEventListener('abort', leave);
  closed.addEventListener('abort', () => {
    gone.removeEventListener('abort', leave);
    sink.end();
    leave();
  });
  if (gone.aborted) leave();
  channel.pipe(sink);
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
      onData: (type, bytes) => pace.write(type === 'stdout' ? channel : channel.stderr, bytes, closed),
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
  if (exit.signal === null) channel.exit(exit.code ?? LOST);
  else channel.exit(exit.signal.replace(/^SIG/, ''), false, '');
  channel.end();
}

/** A sentence on the client's standard error, then the end. */
function finish(channel: ServerChannel, code: number, sentence: string): void {
  if (!channel.writable) return;
  channel.stderr.write(`svc: ${sentence}\r\n`);
  channel.exit(code);
  channel.end();
}

/** A client may set what it likes except what makes the session what it is. */
function mayBeSet(name: string): boolean {
  return (
    /^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(name) && !['HOME', 'USER', 'LOGNAME', 'SHELL', 'PATH', 'IFS'].includes(name)
  );
}

function isWindowed(channel: ServerChannel): channel is WindowedChannel {
  return 'incoming' in channel;
}
