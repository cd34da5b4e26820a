// `ssh -R`: the client has a port listened on inside the container, and every connection to it is a channel back to the client.
import type { Connection, ServerChannel, TcpipBindInfo } from 'ssh2';
import { SSH_CHANNELS_MAX } from '../../shared/limits.ts';
import type { GuestSession } from './guests.ts';
import { serveForward, type SessionHost } from './ssh-session.ts';

type Accept = ((chosenPort?: number) => void) | undefined;
type Reject = (() => void) | undefined;

/** Answers what a client that has logged in asks for. Its listeners end with it; each counts as a channel. */
export function serveReverse(client: Connection, host: SessionHost): void {
  const listeners = new Map<number, GuestSession>();
  let gone = false;
  client.on('request', (accept: Accept, reject: Reject, name: string, info: TcpipBindInfo) => {
    if (name === 'tcpip-forward') {
      void listen(info, client, host).then(
        (listener) => {
          if (gone) return void listener.socket.destroy();
          listeners.set(listener.port ?? info.bindPort, listener);
          return accept?.(listener.port);
        },
        () => reject?.(),
      );
    } else if (name === 'cancel-tcpip-forward' && listeners.has(info.bindPort)) {
      listeners.get(info.bindPort)?.socket.destroy();
      listeners.delete(info.bindPort);
      accept?.();
    } else {
      reject?.();
    }
  });
  client.once('close', () => {
    gone = true;
    for (const { socket } of listeners.values()) socket.destroy();
  });
}

/** Rejects where the port cannot be listened on. The address that the client names is only told back: all is on the container's loopback. */
async function listen(
  { bindAddr, bindPort }: TcpipBindInfo,
  client: Connection,
  host: SessionHost,
): Promise<GuestSession> {
  if (host.sessions >= SSH_CHANNELS_MAX) throw new Error('too many channels');
  host.sessions += 1;
  try {
    const listener = await host.guests.open(
      { kind: 'listen', port: bindPort },
      {
        onData: () => undefined,
        onEof: () => undefined,
        onAccepted: ({ connection, host: from, port }) => {
          if (host.sessions >= SSH_CHANNELS_MAX) return;
          const open = (): Promise<ServerChannel> =>
            new Promise((resolve, reject) => {
              const boundPort = listener.port ?? bindPort;
              client.forwardOut(bindAddr, boundPort, from, port, (error, channel) =>
                error === undefined || error === null ? resolve(channel) : reject(error),
              );
            });
          void serveForward({ kind: 'take', connection }, { open }, host);
        },
        onEnd: () => undefined,
      },
    );
    listener.socket.once('close', () => (host.sessions -= 1));
    return listener;
  } catch (error) {
    host.sessions -= 1;
    throw error;
  }
}
