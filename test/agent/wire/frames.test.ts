// The decoder of frames: a frame that comes in pieces of any size is whole, and small pieces cost no more memory than their bytes.
import { expect, test } from 'vitest';
import { createFrameDecoder, FRAME, FRAME_BYTES_MAX } from '../../../agent/wire/frames.ts';
import { isForgotten } from '../../kit/garbage.ts';

/** A data frame with a payload of this size, whose bytes count on. */
function frameOf(length: number): Buffer {
  const header = Buffer.from([FRAME.data, 0, 0, 0, 0]);
  header.writeUInt32BE(length, 1);
  return Buffer.concat([header, Buffer.from(Array.from({ length }, (_, i) => i % 251))]);
}

test.each([1, 3, 4_999, 5_005, 70_000])('frames that come in pieces of %i bytes are whole and in order', (size) => {
  const frames = [frameOf(0), frameOf(1), frameOf(5_000), frameOf(100_000)];
  const bytes = Buffer.concat(frames);
  const decode = createFrameDecoder(FRAME_BYTES_MAX);
  const read: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size)
    for (const { payload } of decode(bytes.subarray(at, at + size))) read.push(Buffer.from(payload));
  expect(read.map((payload, at) => payload.equals(frames[at]?.subarray(5) ?? Buffer.alloc(0)))).toEqual(
    Array.from({ length: frames.length }, () => true),
  );
});

test('a frame that comes byte by byte keeps no object for each byte', async () => {
  const decode = createFrameDecoder(FRAME_BYTES_MAX);
  const bytes = frameOf(1_000);
  const kept: WeakRef<Buffer>[] = [];
  for (const byte of bytes.subarray(0, 900)) {
    const piece = Buffer.alloc(1, byte);
    kept.push(new WeakRef(piece));
    expect([...decode(piece)]).toEqual([]);
  }
  expect(await isForgotten(kept[500])).toBe(true);
  expect([...decode(bytes.subarray(900))]).toEqual([{ type: FRAME.data, payload: bytes.subarray(5) }]);
});
