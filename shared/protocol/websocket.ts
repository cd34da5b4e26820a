// The part of RFC 6455 that data streams need: the answer to the handshake, frame headers, and a reader that passes the bytes of a
// message on as they arrive.
//
// Why not `ws`: it collects each message before it emits it. For a byte stream that means a copy of every byte and a third more CPU.
// The wire is the same, and the tests use `ws` as the peer.
import { createHash } from 'node:crypto';

export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
export type Opcode = (typeof OPCODE)[keyof typeof OPCODE];

/** RFC 6455, section 1.3. */
const HANDSHAKE_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const FINAL = 0x80;
const RESERVED = 0x70;
const MASKED = 0x80;
const LENGTH = 0x7f;
const MASK_BYTES = 4;
/** The RFC's limit for control frames. Our text messages keep to it too. */
const SHORT_BYTES_MAX = 125;
const LENGTH_IN_16_BITS = 126;
const LENGTH_IN_64_BITS = 127;
const HEADER_BYTES_MAX = 2 + 8 + MASK_BYTES;
const U32 = 2 ** 32;
const NOTHING = Buffer.alloc(0);

/** The server's answer to a `Sec-WebSocket-Key`. */
export function acceptOf(key: string): string {
  return createHash('sha1')
    .update(key + HANDSHAKE_GUID)
    .digest('base64');
}

/**
 * The header of a whole message. The RFC requires the end that dials to mask its frames (`masked`); we use the mask zero. A mask prevents
 * that a web page's bytes look like HTTP to a proxy. Ours are encrypted by SSH or TLS, and masking would cost more than encrypting.
 */
export function frameHeader(opcode: Opcode, length: number, masked: boolean): Buffer {
  const mark = lengthMarkOf(length);
  const lengthBytes = lengthBytesOf(mark);
  const header = Buffer.alloc(2 + lengthBytes + (masked ? MASK_BYTES : 0));
  header[0] = FINAL | opcode;
  header[1] = masked ? MASKED | mark : mark;
  if (lengthBytes === 2) header.writeUInt16BE(length, 2);
  if (lengthBytes === 8) header.writeBigUInt64BE(BigInt(length), 2);
  return header;
}

/** What the second byte of a header says about the length: a short length itself, or in how many bytes a longer one follows. */
function lengthMarkOf(length: number): number {
  if (length <= SHORT_BYTES_MAX) return length;
  return length < 2 ** 16 ? LENGTH_IN_16_BITS : LENGTH_IN_64_BITS;
}

function lengthBytesOf(mark: number): 0 | 2 | 8 {
  if (mark === LENGTH_IN_16_BITS) return 2;
  return mark === LENGTH_IN_64_BITS ? 8 : 0;
}

export interface FrameEvents {
  /** Some bytes of a binary message, in order; not empty. */
  onBytes(bytes: Buffer): void;
  /** A whole message of another kind, at most 125 bytes. */
  onShort(opcode: Opcode, bytes: Buffer): void;
}

/**
 * Returns a function that takes the bytes of the wire in pieces of any size. `masked` tells whether the peer must mask its frames. Any
 * other frame, or a malformed one, throws; the reader must not be used after that.
 */
export function openFrameReader(masked: boolean, events: FrameEvents): (chunk: Buffer) => void {
  const header = Buffer.alloc(HEADER_BYTES_MAX);
  let headerHas = 0;
  let headerNeeds = 2;
  let frame: FrameStart = { opcode: OPCODE.binary, isBinary: true, isFinal: true };
  let left = 0;
  let taken = 0;
  let mask: Buffer | undefined;
  let isWithinBinary = false;
  let shortPieces: Buffer[] = [];

  const take = (bytes: Buffer): void => {
    if (mask !== undefined) unmask(bytes, mask, taken);
    taken += bytes.length;
    left -= bytes.length;
    if (frame.isBinary && bytes.length > 0) events.onBytes(bytes);
    else if (!frame.isBinary) shortPieces.push(bytes);
    if (left > 0) return;
    headerHas = 0;
    headerNeeds = 2;
    if (frame.isBinary) return;
    const whole = Buffer.concat(shortPieces);
    shortPieces = [];
    events.onShort(frame.opcode, whole);
  };

  /** Takes what the header needs from the chunk. Returns the place after it. */
  const takeHeader = (chunk: Buffer, at: number): number => {
    const copied = chunk.copy(header, headerHas, at, at + headerNeeds - headerHas);
    headerHas += copied;
    if (headerHas === 2 && headerNeeds === 2) {
      frame = startOf(header, { masked, isWithinBinary });
      if (frame.isBinary) isWithinBinary = !frame.isFinal;
      headerNeeds = headerLength(header);
    }
    if (headerHas === headerNeeds) beginPayload();
    return at + copied;
  };

  const beginPayload = (): void => {
    left = lengthOf(header);
    taken = 0;
    mask = maskOf(header.subarray(0, headerNeeds));
    if (left === 0) take(NOTHING);
  };

  return (chunk) => {
    let at = 0;
    while (at < chunk.length) {
      if (headerHas < headerNeeds) {
        at = takeHeader(chunk, at);
        continue;
      }
      const bytes = chunk.subarray(at, at + left);
      at += bytes.length;
      take(bytes);
    }
  };
}

interface FrameStart {
  opcode: Opcode;
  /** The frame belongs to a binary message. */
  isBinary: boolean;
  /** The frame is the last one of its message. */
  isFinal: boolean;
}

/** Checks the first two bytes at once: a peer with another protocol may wait for an answer before it sends a whole header. @throws Error */
function startOf(header: Buffer, { masked, isWithinBinary }: { masked: boolean; isWithinBinary: boolean }): FrameStart {
  const [first = 0, second = 0] = header;
  if ((first & RESERVED) !== 0) throw new Error('a frame has reserved bits set');
  if (((second & MASKED) !== 0) !== masked) throw new Error(masked ? 'a frame has no mask' : 'a frame has a mask');
  const isFinal = (first & FINAL) !== 0;
  const opcode = opcodeOf(first & 0x0f);
  const isBinary = opcode === OPCODE.binary || opcode === OPCODE.continuation;
  if (!isBinary && (!isFinal || (second & LENGTH) > SHORT_BYTES_MAX))
    throw new Error('a text or control message is fragmented or over 125 bytes');
  if (isBinary && isWithinBinary !== (opcode === OPCODE.continuation))
    throw new Error('a frame begins within another message, or continues no message');
  return { opcode, isBinary, isFinal };
}

function opcodeOf(value: number): Opcode {
  const known = Object.values(OPCODE).find((each) => each === value);
  if (known === undefined) throw new Error(`a frame has the unknown opcode ${value}`);
  return known;
}

function headerLength(header: Buffer): number {
  const second = header[1] ?? 0;
  return 2 + lengthBytesOf(second & LENGTH) + ((second & MASKED) === 0 ? 0 : MASK_BYTES);
}

function lengthOf(header: Buffer): number {
  const length = (header[1] ?? 0) & LENGTH;
  if (length === LENGTH_IN_16_BITS) return header.readUInt16BE(2);
  if (length !== LENGTH_IN_64_BITS) return length;
  const whole = header.readUInt32BE(2) * U32 + header.readUInt32BE(6);
  if (!Number.isSafeInteger(whole)) throw new Error('a frame has an impossible length');
  return whole;
}

function maskOf(header: Buffer): Buffer | undefined {
  if (((header[1] ?? 0) & MASKED) === 0) return undefined;
  const mask = Buffer.from(header.subarray(header.length - MASK_BYTES));
  return mask.every((byte) => byte === 0) ? undefined : mask;
}

/** Unmasks in place: nobody else uses the buffers that the socket has just read. */
function unmask(bytes: Buffer, mask: Buffer, from: number): void {
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = (bytes[i] ?? 0) ^ (mask[(from + i) & 3] ?? 0);
}
