// Binds a server to a TCP address, or to a unix socket that only its owner may use.
import { chmodSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { messageOf } from '../../../shared/errors.ts';

export type ListenAddress = { host: string; port: number } | { socketPath: string };

export async function listenOn(app: FastifyInstance, address: ListenAddress): Promise<void> {
  if (!('socketPath' in address)) {
    await app.listen(address).catch((error: unknown) => {
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

function unboundText({ host, port }: { host: string; port: number }, error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'EADDRINUSE') return `another process listens on ${host} port ${port}: end it, or set another port`;
  return `${host} port ${port} cannot be listened on: ${messageOf(error)}`;
}

/** A socket file that nobody answers on was left behind by a killed process. */
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
