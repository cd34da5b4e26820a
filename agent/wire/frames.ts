// Frames between holder and guest, and between supervisor and holder, over unix sockets: a type byte, a 32-bit length, a payload.
import type { Socket } from 'node:net';
import { openPieces, type Pieces } from '../../shared/pieces.ts';

export const FRAME = { json: 0, data: 1, stderr: 2, eof: 3 } as const;
export type FrameType = (typeof FRAME)[keyof typeof FRAME];

export interface Frame {
  type: FrameType;
  payload: Buffer;
}

/** A larger frame ends the connection. An honest peer sends what it has read in one piece, at most 64 KiB. */
export const FRAME_BYTES_MAX = 512 * 1024;
const HEADER_BYTES = 5;

/** Sends one frame. `done` is called when the socket can take more, but not if the socket closes first. */
export function sendFrame(socket: Socket, type: FrameType, payload: Uint8Array, done?: () => void): void {
  const header = Buffer.allocUnsafe(HEADER_BYTES);
  header.writeUInt8(type, 0);
  header.writeUInt32BE(payload.length, 1);
  socket.cork();
  socket.write(header);
  const ready = socket.write(payload);
  socket.uncork();
  if (done === undefined) return;
  if (ready) done();
  else socket.once('drain', done);
}

/** Sends a value as one JSON frame. */
export function sendJson(socket: Socket, value: unknown): void {
  sendFrame(socket, FRAME.json, Buffer.from(JSON.stringify(value)));
}

/**
 * Calls `handle` for every frame in order and waits for it before reading on, so that a slow consumer slows the sender down. Resolves
 * when the peer ends or the socket closes. Rejects if a frame is malformed or larger than `bytesMax`, or if `handle` throws; then the
 * socket is destroyed.
 */
export async function eachFrame(
  socket: Socket,
  bytesMax: number,
  handle: (frame: Frame) => Promise<void> | undefined | void,
): Promise<void> {
  const decode = createFrameDecoder(bytesMax);
  const chunks: AsyncIterable<Buffer> = socket;
  let refusal: { error: unknown } | undefined;
  const take = async (chunk: Buffer): Promise<void> => {
    for (const frame of decode(chunk)) {
      const handled = handle(frame);
      if (handled !== undefined) await handled;
    }
  };
  try {
    for await (const chunk of chunks) {
      await take(chunk).catch((error: unknown) => (refusal = { error }));
      if (refusal !== undefined) break;
    }
  } catch {
    // A broken connection counts as closed.
  }
  if (refusal !== undefined) throw refusal.error;
}

/** The peer has broken the rules of the wire. */
export class FrameError extends Error {}

/**
 * Decodes chunks of bytes into frames. It yields them lazily, because a chunk may contain thousands. All frames of a chunk must be
 * consumed before the next chunk. Throws FrameError on malformed bytes.
 */
export function createFrameDecoder(bytesMax: number): (chunk: Buffer) => Generator<Frame> {
  /** The beginning of a frame. A program of the tenant can send it in pieces of one byte, and then nothing more. */
  let pending: Pieces | undefined;
  let neededBytes = HEADER_BYTES;
  return function* decode(chunk) {
    pending?.add(chunk);
    if (pending !== undefined && pending.bytes < neededBytes) return;
    let rest = pending === undefined ? chunk : Buffer.concat(pending.list());
    neededBytes = HEADER_BYTES;
    while (rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32BE(1);
      if (length > bytesMax) throw new FrameError('a frame is too large');
      neededBytes = HEADER_BYTES + length;
      if (rest.length < neededBytes) break;
      yield { type: frameType(rest.readUInt8(0)), payload: rest.subarray(HEADER_BYTES, neededBytes) };
      rest = rest.subarray(neededBytes);
      neededBytes = HEADER_BYTES;
    }
    pending = undefined;
    if (rest.length === 0) return;
    pending = openPieces();
    pending.add(rest);
  };
}

function frameType(value: number): FrameType {
  if (value === FRAME.json || value === FRAME.data || value === FRAME.stderr || value === FRAME.eof) return value;
  throw new FrameError('a frame has an unknown type');
}
