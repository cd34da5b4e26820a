// Checks that a server's answer is a video file, so that an error page with status 200 is not charged.

/** The server answered 200 without an MP4. */
export class NoVideo extends Error {}

/** The type of an MP4's first box. It follows the four bytes of the length. */
const FIRST_BOX = 'ftyp';
const HEAD_BYTES = 8;

/** Yields the bytes of `body` unchanged. @throws NoVideo before the first byte if it is not an MP4, and what `body` throws */
export async function* checkedVideo(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let head = Buffer.alloc(0);
  for await (const piece of body) {
    if (head.length >= HEAD_BYTES) {
      yield piece;
      continue;
    }
    head = Buffer.concat([head, piece]);
    if (head.length < HEAD_BYTES) continue;
    if (head.toString('latin1', 4, HEAD_BYTES) !== FIRST_BOX) break;
    yield head;
  }
  if (head.toString('latin1', 4, HEAD_BYTES) !== FIRST_BOX) throw new NoVideo('what came is no MP4 file');
}
