// Whether what comes from a server is a video file at all: a page of an error that came with 200 must not be charged for.

/** Answered with 200, and no MP4. */
export class NoVideo extends Error {}

/** An MP4 begins with a box of this type, behind the four bytes of its length. */
const FIRST_BOX = 'ftyp';
const HEAD_BYTES = 8;

/** The same bytes. @throws NoVideo before any of a file that is none; and what `body` throws */
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
