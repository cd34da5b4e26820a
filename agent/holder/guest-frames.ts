// The frames between a holder and its container: the bytes that a client sends into a session, and how fast the holder reads what comes back.
// The speed is bounded, so that a tenant who sends much cannot keep the holder from other clients.
import type { Clock } from '../../shared/clock.ts';
import { GUEST_BYTES_PER_SECOND_MAX, GUEST_FRAMES_PER_SECOND_MAX, SESSION_LINGER_MS } from '../../shared/limits.ts';
import { FRAME, FRAME_BYTES_MAX, type Frame, sendFrame, sendJson } from '../wire/frames.ts';
import type { GuestOrder } from '../wire/guest-messages.ts';
import type { Socket } from 'node:net';
import { type Readable, Writable } from 'node:stream';

/** Bytes of orders that a guest may leave unread. Any program of the tenant can be the guest and never read, while a client opens sessions. */
export const UNREAD_ORDERS_BYTES_MAX = 1024 ** 2;

/** Sends an order to open a session. Throws if the guest has too much to read already, and if it would not accept an order of this size. */
export function sendOpen(control: Socket, order: Extract<GuestOrder, { kind: 'open' }>): void {
  if (isBehind(control)) throw new Error('the helper inside the container does not read its orders');
  const payload = Buffer.from(JSON.stringify(order));
  if (payload.length > FRAME_BYTES_MAX) throw new Error('the request for this session is too long');
  sendFrame(control, FRAME.json, payload);
}

/** Sends any other order. A resize or a signal is lost if the guest has too much to read already; there is at most one `cut` per session. */
export function sendOrder(control: Socket, order: Exclude<GuestOrder, { kind: 'open' }>): void {
  if (order.kind === 'cut' || !isBehind(control)) sendJson(control, order);
}

function isBehind(control: Socket): boolean {
  return control.writableLength > UNREAD_ORDERS_BYTES_MAX;
}

/** A stream whose bytes go to the guest as data frames, and whose end becomes an EOF frame. The other direction stays open. */
export function frameSink(socket: Socket): Writable {
  const sink = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      if (socket.writable) sendFrame(socket, FRAME.data, chunk, done);
      else done();
    },
    final: (done) => {
      if (socket.writable) sendFrame(socket, FRAME.eof, Buffer.alloc(0));
      done();
    },
  });
  socket.once('close', () => sink.destroy());
  return sink;
}

/** Sends the client's bytes into the sink. After the session has ended, they are dropped, so that the end of the client is still seen. */
export function feed(client: Readable, sink: Writable): void {
  client.pipe(sink);
  // `pipe` pauses the client when the sink closes. This listener is added after the one of `pipe`, and so comes after it.
  sink.once('close', () => client.resume());
}

/** Call after a client has sent its EOF and left. Bytes still on their way to `sink` arrive inside, for at most SESSION_LINGER_MS. */
export function leaveSession(socket: Socket, sink: Writable, clock: Clock): void {
  const giveUp = clock.after(SESSION_LINGER_MS, () => socket.destroy());
  socket.once('close', giveUp);
  if (sink.writableFinished) socket.end();
  else sink.once('finish', () => socket.end());
}

/** Called after each frame of a connection. Resolves when the next frame may be read; undefined if it may be read now. */
export type Rest = (frame: Frame) => Promise<void> | undefined;

/** Frames of one connection that are read in one turn of the event loop. */
const FRAMES_PER_TURN = 16;
/** Number of data frames that cost as much as one JSON message, which is parsed. */
const MESSAGE_COST = 10;
/** After a pause, frames that together cost this time are read without a wait. */
const BURST_MS = 100;

/** Returns a function that makes the `Rest` of one connection. All connections of a container share the bound on speed. */
export function createGuestPace(clock: Clock): () => Rest {
  /** Monotonic time until which the frames that were read so far take up the bounded speed. It may be in the future. */
  let paidMs = clock.monotonicMs();
  const pay = ({ type, payload }: Frame): number => {
    const nowMs = clock.monotonicMs();
    const frames = type === FRAME.json ? MESSAGE_COST : 1;
    const costMs = (1000 * frames) / GUEST_FRAMES_PER_SECOND_MAX + (1000 * payload.length) / GUEST_BYTES_PER_SECOND_MAX;
    paidMs = Math.max(paidMs, nowMs) + costMs;
    return paidMs - nowMs;
  };
  return () => {
    let taken = 0;
    return (frame) => {
      const aheadMs = pay(frame);
      taken += 1;
      if (aheadMs > BURST_MS) return clock.sleep(aheadMs - BURST_MS / 2);
      return taken % FRAMES_PER_TURN === 0 ? clock.nextTurn() : undefined;
    };
  };
}
