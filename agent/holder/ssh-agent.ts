// `ssh -A`: programs inside reach the client's own SSH agent through a socket, for as long as their session lives.
import type { Connection, ServerChannel } from 'ssh2';
import type { GuestSession } from './guest-connection.ts';
import type { SessionHost } from './ssh-channel.ts';
import { listenInside } from './ssh-forward.ts';

/** Internals of ssh2 that open channels from the server to the client. */
interface Internals {
  _chanMgr: { add(opened: Opened): number };
  _protocol: { openssh_authAgent(channel: number, windowBytes: number, packetBytes: number): void };
}

type Opened = ((error: Error | undefined, channel: ServerChannel) => void) & { type: string };

/** ssh2's own values. It always counts down from this window, so another value must not be sent to the client. */
const WINDOW_BYTES = 2 * 1024 * 1024;
const PACKET_BYTES = 32 * 1024;
const NO_CHANNEL = -1;

/** Listens inside the container. The result's `path` is the value of SSH_AUTH_SOCK. Rejects as listenInside does. */
export function forwardAgent(host: SessionHost): Promise<GuestSession> {
  return listenInside({ kind: 'listen_agent' }, () => openAgentChannel(host.client), host);
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
