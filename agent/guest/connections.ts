// Carries bytes between a session's connection to the holder and a program or a TCP connection inside the container. The guest dials a TCP
// connection for a client. For an SSH client it can also listen: on ports (`ssh -R`) and on an agent's socket (`ssh -A`). Each connection that
// it accepts there is announced to the holder, which then opens a session to take the connection over.
import { connect, type Socket, createServer, type Server } from 'node:net';
import type { Clock } from '../../shared/clock.ts';
import { SESSION_LINGER_MS } from '../../shared/limits.ts';
import { FRAME, sendFrame, sendJson, eachFrame, FRAME_BYTES_MAX, type FrameType } from '../wire/frames.ts';
import type { SessionMessage, SessionRequest } from '../wire/guest-messages.ts';
import type { Readable, Writable } from 'node:stream';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';

/** Connects inside and carries the connection on `socket`, or sends the reason why it cannot. */
export function dial(socket: Socket, request: Extract<SessionRequest, { kind: 'dial' }>, clock: Clock): void {
  const target = connect({ host: request.host, port: request.port, allowHalfOpen: true, noDelay: true });
  const abandon = (): void => void target.destroy();
  const failed = (error: Error): void => {
    const news: SessionMessage = { kind: 'failed', detail: error.message };
    if (socket.writable) sendJson(socket, news);
    socket.end();
  };
  socket.once('close', abandon);
  target.once('error', failed);
  target.once('connect', () => {
    socket.off('close', abandon);
    target.off('error', failed);
    carry(socket, target, clock);
  });
}

/** Carries bytes in both directions between `target`, a connection inside the container, and the session's socket. */
export function carry(socket: Socket, target: Socket, clock: Clock): void {
  const started: SessionMessage = { kind: 'started' };
  let whole = false;
  if (socket.writable) sendJson(socket, started);
  target.once('end', () => {
    if (socket.writable) sendFrame(socket, FRAME.eof, Buffer.alloc(0));
  });
  // After a broken connection, bytes that came before are still sent out, but no EOF.
  target.on('error', () => target.destroy());
  target.once('close', () => socket.destroySoon());
  pump(target, socket, FRAME.data);
  void feed(socket, target, () => {
    whole = true;
    target.end();
  });
  socket.once('close', () => {
    if (!whole) return void target.destroy();
    // If `target` were closed at once, the kernel would drop bytes that the program has not read yet, as soon as the program answers.
    const giveUp = clock.after(SESSION_LINGER_MS, () => target.destroy());
    target.once('close', giveUp);
  });
  target.resume();
}

/** Sends output to the holder. A slow holder slows the source down. After the end of the session, output is dropped. */
export function pump(source: Readable, socket: Socket, type: FrameType): void {
  source.on('data', (chunk: Buffer) => {
    if (socket.destroyed) return;
    let ready = false;
    sendFrame(socket, type, chunk, () => {
      ready = true;
      if (source.isPaused()) source.resume();
    });
    if (!ready) source.pause();
  });
  // The holder reads no more, so the source must not stay paused.
  socket.once('close', () => source.resume());
}

/**
 * Passes input from the holder to a program. A slow program slows the holder down. `onEof` is called after the client's EOF. If the
 * holder has left, the session is closed once the program has read the last byte.
 */
export async function feed(socket: Socket, sink: Writable, onEof: () => void): Promise<void> {
  const write = (payload: Buffer): Promise<void> | undefined => {
    if (sink.destroyed || !sink.writable || sink.write(payload)) return undefined;
    return new Promise((resolve) => {
      const done = (): void => {
        sink.off('drain', done);
        sink.off('close', done);
        resolve();
      };
      sink.once('drain', done);
      sink.once('close', done);
    });
  };
  await eachFrame(socket, FRAME_BYTES_MAX, ({ type, payload }) => {
    if (type === FRAME.eof) onEof();
    return type === FRAME.data ? write(payload) : undefined;
  }).catch(() => undefined);
  socket.destroy();
}

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
    server.on('error', (error) => {
      // A connection that cannot be accepted does not end the listener.
      if (server.listening) return;
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
