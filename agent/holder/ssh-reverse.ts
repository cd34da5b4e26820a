// Serves `ssh -R`: the guest listens on a port inside the container, and every connection to it becomes a channel to the client.
import type { Connection, ServerChannel, TcpipBindInfo } from 'ssh2';
import type { GuestSession } from './guest-connection.ts';
import type { SessionHost } from './ssh-channel.ts';
import { listenInside } from './ssh-forward.ts';

type Accept = ((chosenPort?: number) => void) | undefined;
type Reject = (() => void) | undefined;

/** Handles the requests of a client that has logged in. */
export function serveReverse(host: SessionHost): void {
  const { client } = host;
  const listeners = new Map<number, GuestSession>();
  client.on('request', (accept: Accept, reject: Reject, name: string, info: TcpipBindInfo) => {
    if (name === 'tcpip-forward') {
      void listen(info, host).then(
        (listener) => {
          listeners.set(listener.port ?? info.bindPort, listener);
          accept?.(listener.port);
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
