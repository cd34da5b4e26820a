// Frames of RFC 6455 as data streams read them: whatever the pieces in which they come, and nothing that is not one.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { acceptOf, frameHeader, OPCODE, openFrameReader } from '../../shared/protocol/websocket.ts';

interface Read {
  bytes: string;
  words: [number, string][];
}

function readAll(wire: Buffer, cuts: readonly number[], masked = false): Read {
  const read: Read = { bytes: '', words: [] };
  const feed = openFrameReader(masked, {
    onBytes: (bytes) => void (read.bytes += bytes.toString('latin1')),
    onShort: (opcode, bytes) => void read.words.push([opcode, bytes.toString('latin1')]),
  });
  const edges = [0, ...cuts.map((cut) => cut % (wire.length + 1)), wire.length].toSorted((a, b) => a - b);
  // A copy of each piece, as a socket would give it: unmasking changes it.
  edges.slice(1).forEach((edge, at) => feed(Buffer.from(wire.subarray(edges[at], edge))));
  return read;
}

/** A frame as another implementation may write it: with any mask, and with a length in more bytes than it needs. */
function frame(
  first: number,
  payload: Buffer,
  { mask, lengthBytes }: { mask?: Buffer; lengthBytes?: 2 | 8 } = {},
): Buffer {
  const flag = mask === undefined ? 0 : 0x80;
  const head =
    lengthBytes === undefined
      ? Buffer.from([first, flag | payload.length])
      : Buffer.alloc(2 + lengthBytes, Buffer.from([first, flag | (lengthBytes === 2 ? 126 : 127)]));
  if (lengthBytes === 2) head.writeUInt16BE(payload.length, 2);
  if (lengthBytes === 8) head.writeBigUInt64BE(BigInt(payload.length), 2);
  if (mask === undefined) return Buffer.concat([head, payload]);
  return Buffer.concat([head, mask, Buffer.from(payload.map((byte, at) => byte ^ (mask[at & 3] ?? 0)))]);
}

const BINARY = 0x80 | OPCODE.binary;
const TEXT = 0x80 | OPCODE.text;

test("the handshake's answer is the one of the RFC's example", () => {
  expect(acceptOf('dGhlIHNhbXBsZSBub25jZQ==')).toBe('s3pPLMBiTxaQ9kYGzzhZRbK+xOo=');
});

describe('a reader', () => {
  const payload = fc.uint8Array({ maxLength: 400 }).map((bytes) => Buffer.from(bytes));
  const piece = fc.record({
    isWord: fc.boolean(),
    payload,
    mask: fc.uint8Array({ minLength: 4, maxLength: 4 }),
    lengthBytes: fc.constantFrom(2 as const, 8 as const),
  });

  test('returns the same bytes and messages, whatever the pieces and the mask', () => {
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 8 }),
        fc.array(fc.nat(), { maxLength: 12 }),
        fc.boolean(),
        (all, cuts, masked) => {
          const want: Read = { bytes: '', words: [] };
          const wire = all.map(({ isWord, payload: bytes, mask, lengthBytes }) => {
            const own = isWord ? bytes.subarray(0, 125) : bytes;
            if (isWord) want.words.push([OPCODE.text, own.toString('latin1')]);
            else want.bytes += own.toString('latin1');
            return frame(isWord ? TEXT : BINARY, own, {
              ...(isWord ? {} : { lengthBytes }),
              ...(masked ? { mask: Buffer.from(mask) } : {}),
            });
          });
          expect(readAll(Buffer.concat(wire), cuts, masked)).toEqual(want);
        },
      ),
    );
  });

  test('reads what frameHeader writes, at the edges of its three lengths', () => {
    for (const length of [0, 1, 125, 126, 127, 65_535, 65_536, 70_000]) {
      const wire = Buffer.concat([frameHeader(OPCODE.binary, length, true), Buffer.alloc(length, 'x')]);
      expect(readAll(wire, [1, 3, 9], true).bytes.length).toBe(length);
    }
  });

  test('takes a message in fragments, with a ping between them', () => {
    const wire = [
      frame(OPCODE.binary, Buffer.from('a')),
      frame(0x80 | OPCODE.ping, Buffer.from('?')),
      frame(0x80, Buffer.from('b')),
    ];
    expect(readAll(Buffer.concat(wire), [])).toEqual({ bytes: 'ab', words: [[OPCODE.ping, '?']] });
  });

  const none = Buffer.alloc(0);
  const huge = Buffer.from([BINARY, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
  test.each([
    ['reserved bits', frame(0x40 | BINARY, none), 'reserved'],
    ['an unknown opcode', frame(0x83, none), 'opcode 3'],
    ['a mask where none must be', frame(BINARY, none, { mask: Buffer.alloc(4) }), 'has a mask'],
    ['a continuation of nothing', frame(0x80, none), 'continues no message'],
    [
      'a message within another',
      Buffer.concat([frame(OPCODE.binary, none), frame(BINARY, none)]),
      'within another message',
    ],
    ['a text or control message in fragments', frame(OPCODE.text, none), 'is fragmented'],
    ['a text or control message of 126 bytes', frame(TEXT, Buffer.alloc(126), { lengthBytes: 2 }), 'over 125'],
    ['a length beyond all numbers', huge, 'impossible length'],
  ])('refuses %s', (_what, wire, why) => {
    expect(() => readAll(wire, [])).toThrow(why);
  });

  test('refuses a frame without a required mask', () => {
    expect(() => readAll(frame(BINARY, none), [], true)).toThrow('no mask');
  });
});
