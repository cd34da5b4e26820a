// The messages between the two ends of a tunnel. A request has 9 bytes: a command for the target, and a number of bytes.
import type { Socket } from 'node:net';

export const REQUEST_BYTES = 9;
/** Sent by the target before an upload, and after it. */
export const READY = Buffer.from('r');
export const ECHO_BYTES = 64;
/** Large, so that the ends cost little beside the tunnel between them. */
const PIECE = Buffer.alloc(1024 * 1024, 'bytes ');

export type Task = 'send' | 'take' | 'echo';

export function encodeRequest(task: Task, bytes: number): Buffer {
  const request = Buffer.alloc(REQUEST_BYTES);
  request.write(task.charAt(0), 'latin1');
  request.writeDoubleBE(bytes, 1);
  return request;
}

export function decodeRequest(request: Buffer): { task: Task; bytes: number } {
  const letter = request.toString('latin1', 0, 1);
  const task = (['send', 'take', 'echo'] as const).find((name) => name.startsWith(letter));
  if (task === undefined) throw new Error(`no task begins with ${letter}`);
  return { task, bytes: request.readDoubleBE(1) };
}

/** Writes this many bytes as fast as the other end takes them. */
export function writeBytes(socket: Socket, bytes: number): void {
  let left = bytes;
  const fill = (): void => {
    while (left > 0) {
      const piece = PIECE.subarray(0, Math.min(left, PIECE.length));
      left -= piece.length;
      if (!socket.write(piece)) break;
    }
    if (left > 0) socket.once('drain', fill);
  };
  fill();
}
