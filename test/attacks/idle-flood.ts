// Idle connections to the SSH port of a rental, from two addresses: each is opened again as soon as it is closed.
import { connect, type Socket } from 'node:net';

export interface IdleFlood {
  /** Connections so far. */
  opened(): number;
  stop(): void;
}

const PER_ADDRESS = 12;
const ADDRESSES = ['127.0.0.2', '127.0.0.3'];
const AGAIN_MS = 100;
/** The attack is bounded. */
const OPENED_MAX = 20_000;

export function floodIdle(port: number): IdleFlood {
  const sockets = new Set<Socket>();
  let isOver = false;
  let opened = 0;
  const open = (localAddress: string): void => {
    if (isOver || opened >= OPENED_MAX) return;
    opened += 1;
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.resume();
    socket.once('close', () => {
      sockets.delete(socket);
      setTimeout(() => open(localAddress), AGAIN_MS);
    });
  };
  for (const address of ADDRESSES) for (let i = 0; i < PER_ADDRESS; i += 1) open(address);
  return {
    opened: () => opened,
    stop: () => {
      isOver = true;
      for (const socket of sockets) socket.destroy();
    },
  };
}
