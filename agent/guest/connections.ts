// Carries TCP connections inside the container as sessions: dialled for a client, or accepted by a client's listener.
import { connect, type Socket } from 'node:net';
import type { Clock } from '../../shared/clock.ts';
import { SESSION_LINGER_MS } from '../../shared/limits.ts';
import { feed, pump } from './flow.ts';
import { FRAME, sendFrame, sendJson } from '../wire/frames.ts';
import type { SessionMessage, SessionRequest } from '../wire/guest-messages.ts';

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
