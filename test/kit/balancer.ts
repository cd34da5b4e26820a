// A balancer as operators put in front of several control planes: it gives each new connection to the next one that takes it.
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface Balancer {
  port: number;
  /** How many connections each of its ports has taken, in their order. */
  taken: readonly number[];
  /** Ends all connections. */
  close(): void;
}

/** `ports` are those on the loopback interface that it leads to now. A connection that none of them takes is ended. */
export async function openBalancer(ports: () => readonly number[]): Promise<Balancer> {
  const taken: number[] = [];
  const sockets = new Set<Socket>();
  let turn = 0;
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
  };
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    keep(client);
    turn += 1;
    const all = ports();
    void firstThatTakes(
      all.map((_port, i) => (turn + i) % all.length).map((index) => ({ index, port: all[index] ?? 0 })),
    ).then((found) => {
      if (found === undefined) return void client.destroy();
      if (client.destroyed) return void found.socket.destroy();
      taken[found.index] = (taken[found.index] ?? 0) + 1;
      keep(found.socket);
      client.pipe(found.socket).pipe(client);
      client.once('close', () => found.socket.destroy());
      found.socket.once('close', () => client.destroy());
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    taken,
    close: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

async function firstThatTakes(
  targets: readonly { index: number; port: number }[],
): Promise<{ index: number; socket: Socket } | undefined> {
  for (const { index, port } of targets) {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    if (isOpen) return { index, socket };
  }
  return undefined;
}
