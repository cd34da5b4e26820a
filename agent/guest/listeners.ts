// Listens inside the container for an SSH client: on ports (`ssh -R`) and on an agent's socket (`ssh -A`). Each connection is announced
// to the holder, which then opens a session to take it over.
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Clock } from '../../shared/clock.ts';
import { sendJson } from '../wire/frames.ts';
import type { SessionMessage } from '../wire/guest-messages.ts';

export interface Listeners {
  /** Listens as long as `session` is open. Port 0 means any free port. */
  listen(session: Socket, port: number): void;
  /** Listens on a new unix socket that only the image's user can reach. Throws if it cannot be created. */
  listenAgent(session: Socket): void;
  /** Hands out the connection that was announced with this number, once; undefined if it is gone. */
  take(connection: number): Socket | undefined;
}

/** A forwarded port is for programs in this container only. This is the default of sshd. */
const LOOPBACK = '127.0.0.1';
/** Prefix of the folder. /dev/shm exists in every container and every user can write there; an image need not have /tmp. */
const AGENT_FOLDERS = '/dev/shm/ssh-';
/** A connection that is not taken over in this time is closed. */
const TAKE_MS_MAX = 10_000;
const WAITING_MAX = 64;

export function createListeners(clock: Clock): Listeners {
  const waiting = new Map<number, { socket: Socket; cancel(): void }>();
  let last = 0;

  const forget = (connection: number): Socket | undefined => {
    const found = waiting.get(connection);
    waiting.delete(connection);
    found?.cancel();
    return found?.socket;
  };
  const offer = (socket: Socket, tell: (news: SessionMessage) => void): void => {
    if (waiting.size >= WAITING_MAX) return void socket.destroy();
    last += 1;
    const connection = last;
    const giveUp = (): void => void forget(connection)?.destroy();
    waiting.set(connection, { socket, cancel: clock.after(TAKE_MS_MAX, giveUp) });
    socket.on('error', () => socket.destroy());
    socket.once('close', giveUp);
    tell({ kind: 'accepted', connection, host: socket.remoteAddress ?? '', port: socket.remotePort ?? 0 });
  };

  const open = (
    session: Socket,
    start: (server: Server) => void,
    describe: (server: Server) => SessionMessage,
  ): void => {
    const tell = (news: SessionMessage): void => {
      if (session.writable) sendJson(session, news);
    };
    const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, (socket) =>
      offer(socket, tell),
    );
    server.once('listening', () => tell(describe(server)));
    server.once('error', (error) => {
      tell({ kind: 'failed', detail: error.message });
      session.end();
    });
    session.once('end', () => session.end());
    session.once('close', () => server.close());
    session.resume();
    start(server);
  };

  return {
    listen: (session, port) =>
      open(
        session,
        (server) => server.listen(port, LOOPBACK),
        (server) => ({ kind: 'started', port: portOf(server) ?? port }),
      ),
    listenAgent: (session) => {
      const folder = mkdtempSync(AGENT_FOLDERS);
      const path = join(folder, 'agent');
      session.once('close', () => rmSync(folder, { recursive: true, force: true }));
      open(
        session,
        (server) => server.listen(path),
        () => ({ kind: 'started', path }),
      );
    },
    take: forget,
  };
}

function portOf(server: Server): number | undefined {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : undefined;
}
