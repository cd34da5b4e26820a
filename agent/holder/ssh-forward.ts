// Port forwarding: connections from the client into the container (`-L`, `-D`), and from the container to the client (`-R`, `-A`).
import type { ServerChannel } from 'ssh2';
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

/**
 * Makes the guest listen. For each connection to the listener, `open` opens a channel to the client. The listener itself counts as a
 * channel. Rejects if there are too many channels, or if the guest cannot listen.
 */
export async function listenInside(
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
