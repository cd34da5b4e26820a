// `ssh -R`: the client has a port listened on inside the container, and every connection to it is a channel back to the client.
import type { Connection, ServerChannel, TcpipBindInfo } from 'ssh2';
import type { GuestSession } from './guest-connection.ts';
import type { SessionHost } from './ssh-channel.ts';
import { listenInside } from './ssh-forward.ts';

type Accept = ((chosenPort?: number) => void) | undefined;
type Reject = (() => void) | undefined;

/** Answers what a client that has logged in asks for. */
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

/** Rejects where the port cannot be listened on. The address that the client names is only told back: all is on the container's loopback. */
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
