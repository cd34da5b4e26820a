// What an SSH client has us listen on inside the container, ports (`ssh -R`) and an agent's socket (`ssh -A`): who connects is told to the
// holder, which takes them one by one.
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Clock } from '../../shared/clock.ts';
import { sendJson } from '../wire/frames.ts';
import type { SessionMessage } from '../wire/guest-messages.ts';

export interface Listeners {
  /** Listens for as long as `session` is open. `port` 0: any that is free. */
  listen(session: Socket, port: number): void;
  /** The same on a new socket that only the image's user can reach. Throws where none can be made. */
  listenAgent(session: Socket): void;
  /** The connection that was told by this number, once; undefined where it is gone. */
  take(connection: number): Socket | undefined;
}

/** As sshd does unless it is told otherwise: what is forwarded is for programs in here. */
const LOOPBACK = '127.0.0.1';
/** The engine makes it in every container, writable for every user; an image need not have /tmp. */
const AGENT_FOLDERS = '/dev/shm/ssh-';
/** A connection that nobody takes is closed. */
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
