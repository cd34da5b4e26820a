// Carries bytes between a session's connection to the holder and what it reaches inside the container: a program, or a TCP connection that
// was dialled for a client or accepted by a client's listener.
import { connect, type Socket } from 'node:net';
import type { Clock } from '../../shared/clock.ts';
import { SESSION_LINGER_MS } from '../../shared/limits.ts';
import { FRAME, sendFrame, sendJson, eachFrame, FRAME_BYTES_MAX, type FrameType } from '../wire/frames.ts';
import type { SessionMessage, SessionRequest } from '../wire/guest-messages.ts';
import type { Readable, Writable } from 'node:stream';

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

/** Carries a connection inside on the session's socket. */
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
    // If it were closed at once, the kernel would drop bytes that the program has not read yet, as soon as the program answers.
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
