// How a server listens: on a TCP address, or on a unix socket that only its owner may use.
import { chmodSync, rmSync } from 'node:fs';
import type { IncomingMessage, Server as HttpServer } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { codeOf, messageOf } from '../../../shared/errors.ts';
import type { Tls } from './tls.ts';

export type ListenAddress = { host: string; port: number } | { socketPath: string };

export async function listenOn(app: FastifyInstance, address: ListenAddress): Promise<void> {
  if (!('socketPath' in address)) {
    // fastify adds members of its own to what it is given, and this is a part of the configuration.
    await app.listen({ ...address }).catch((error: unknown) => {
      throw new Error(unboundText(address, error), { cause: error });
    });
    return;
  }
  const { socketPath } = address;
  if (await answers(socketPath)) throw new Error(`another process is listening on ${socketPath}`);
  rmSync(socketPath, { force: true });
  // The socket file must never be accessible to others, not even between bind and chmod.
  const before = process.umask(0o177);
  try {
    await app.listen({ path: socketPath });
  } finally {
    process.umask(before);
  }
  chmodSync(socketPath, 0o600);
}

/**
 * The open connections that have not sent a request. Browsers and Node's `fetch` keep such connections ready, and Node's server would wait for their
 * first request until the time limit of a close.
 */
export function silentConnections(server: HttpServer, tls: Tls | undefined): ReadonlySet<Socket> {
  const silent = new Set<Socket>();
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    silent.add(socket);
    socket.once('close', () => silent.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage) => silent.delete(socket));
  server.on('upgrade', ({ socket }: IncomingMessage) => silent.delete(socket));
  return silent;
}

export function unboundText({ host, port }: { host: string; port: number }, error: unknown): string {
  if (codeOf(error) === 'EADDRINUSE')
    return `another process listens on ${host} port ${port}: end it, or set another port`;
  return `${host} port ${port} cannot be listened on: ${messageOf(error)}`;
}

/** Whether a process answers on the socket file. If none does, a killed process has left the file behind. */
function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
