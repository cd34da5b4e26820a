// Port forwarding: connections from the client into the container (`-L`, `-D`), and from the container to the client (`-R`, `-A`).
// For `-R` the guest listens on a port inside the container. For `-A` it listens on a socket, through which programs inside reach the client's
// own SSH agent. Every connection to such a listener becomes a channel to the client.
import type { Duplex } from 'node:stream';
import type { Connection, ServerChannel, TcpipBindInfo } from 'ssh2';
import { SSH_CHANNELS_MAX } from '../../shared/limits.ts';
import type { GuestSession } from './guest-connection.ts';
import type { SessionRequest } from '../wire/guest-messages.ts';
import { attach, type Attached, feedInside, type SessionHost } from './ssh-channel.ts';

/**
 * Carries one connection inside the container on its own channel. Calls `open` once the connection inside exists, and `reject` if it
 * fails. For `-L` and `-D` the guest dials, so an address has the meaning that it has inside the container.
 */
export async function serveForward(
  request: Extract<SessionRequest, { kind: 'dial' | 'take' }>,
  channel: { open: () => ServerChannel | Promise<ServerChannel>; reject?: () => void },
  host: SessionHost,
): Promise<void> {
  host.sessions += 1;
  // Resolves with undefined if there is no channel. It never rejects, because a rejection might have no handler.
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

type Caller = { host: string; port: number };

/** Internals of ssh2 that open channels from the server to the client. */
interface Internals {
  _chanMgr: { add(opened: Opened): number };
  _protocol: { openssh_authAgent(channel: number, windowBytes: number, packetBytes: number): void };
}

type Opened = ((error: Error | undefined, channel: ServerChannel) => void) & { type: string };

/** The values that ssh2 itself uses. ssh2 always counts down from this window, so another value must not be sent to the client. */
const WINDOW_BYTES = 2 * 1024 * 1024;
const PACKET_BYTES = 32 * 1024;
const NO_CHANNEL = -1;

/** Listens inside the container. The result's `path` is the value of SSH_AUTH_SOCK. Rejects as listenInside does. */
export function forwardAgent(host: SessionHost): Promise<GuestSession> {
  return listenInside({ kind: 'listen_agent' }, () => openAgentChannel(host.client), host);
}

type Accept = ((chosenPort?: number) => void) | undefined;
type Reject = (() => void) | undefined;

/**
 * Handles the requests of a client that has logged in. Nothing is read from its stream while the guest has not answered one: ssh2 answers requests
 * in order, and keeps the answers to all later ones without a limit.
 */
export function serveReverse(stream: Duplex, host: SessionHost): void {
  const { client } = host;
  const listeners = new Map<number, GuestSession>();
  let unanswered = 0;
  const answered = (answer: () => void): void => {
    answer();
    unanswered -= 1;
    if (unanswered === 0) stream.resume();
  };
  client.on('request', (accept: Accept, reject: Reject, name: string, info: TcpipBindInfo) => {
    if (name === 'tcpip-forward') {
      unanswered += 1;
      void listen(info, host).then(
        (listener) => {
          listeners.set(listener.port ?? info.bindPort, listener);
          answered(() => accept?.(listener.port));
        },
        () => answered(() => reject?.()),
      );
    } else if (name === 'cancel-tcpip-forward' && listeners.has(info.bindPort)) {
      listeners.get(info.bindPort)?.socket.destroy();
      listeners.delete(info.bindPort);
      accept?.();
    } else {
      reject?.();
    }
  });
  // A listener of its own, because a stream that has drained is read again.
  stream.on('data', () => {
    if (unanswered > 0) stream.pause();
  });
}

/**
 * Makes the guest listen. For each connection to the listener, `open` opens a channel to the client. The listener itself counts as a
 * channel. Rejects if there are too many channels, or if the guest cannot listen.
 */
async function listenInside(
  request: Extract<SessionRequest, { kind: 'listen' | 'listen_agent' }>,
  open: (caller: Caller, listener: GuestSession) => Promise<ServerChannel>,
  host: SessionHost,
): Promise<GuestSession> {
  if (host.sessions >= SSH_CHANNELS_MAX) throw new Error('too many channels');
  host.sessions += 1;
  try {
    const listener = await host.guests.open(request, {
      onData: () => undefined,
      onEof: () => undefined,
      onAccepted: ({ connection, ...caller }) => {
        if (host.sessions >= SSH_CHANNELS_MAX) return;
        void serveForward({ kind: 'take', connection }, { open: () => open(caller, listener) }, host);
      },
      onEnd: () => undefined,
    });
    const end = (): void => void listener.socket.destroy();
    listener.socket.once('close', () => {
      host.sessions -= 1;
      host.gone.removeEventListener('abort', end);
    });
    if (host.gone.aborted) end();
    else host.gone.addEventListener('abort', end);
    return listener;
  } catch (error) {
    host.sessions -= 1;
    throw error;
  }
}

/** Rejects if the client refuses the channel, which it may do at any time. */
function openAgentChannel(client: Connection): Promise<ServerChannel> {
  return new Promise((resolve, reject) => {
    if (!hasInternals(client)) throw new Error('ssh2 changed: a server cannot open a channel to an agent');
    const opened: Opened = Object.assign(
      (error: Error | undefined, channel: ServerChannel) => (error === undefined ? resolve(channel) : reject(error)),
      { type: 'auth-agent@openssh.com' },
    );
    const channel = client._chanMgr.add(opened);
    if (channel === NO_CHANNEL) throw new Error('too many channels');
    client._protocol.openssh_authAgent(channel, WINDOW_BYTES, PACKET_BYTES);
  });
}

function hasInternals(client: Connection): client is Connection & Internals {
  return '_chanMgr' in client && '_protocol' in client;
}

/** Rejects if the guest cannot listen on the port. The client's bind address is only echoed: all listeners are on the loopback. */
function listen({ bindAddr, bindPort }: TcpipBindInfo, host: SessionHost): Promise<GuestSession> {
  return listenInside(
    { kind: 'listen', port: bindPort },
    (caller, listener) => openChannel(host.client, { bindAddr, bindPort: listener.port ?? bindPort }, caller),
    host,
  );
}

function openChannel(
  client: Connection,
  { bindAddr, bindPort }: TcpipBindInfo,
  caller: { host: string; port: number },
): Promise<ServerChannel> {
  return new Promise((resolve, reject) => {
    client.forwardOut(bindAddr, bindPort, caller.host, caller.port, (error, channel) =>
      error === undefined || error === null ? resolve(channel) : reject(error),
    );
  });
}
