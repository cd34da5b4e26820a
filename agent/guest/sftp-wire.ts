// The wire format of SFTP version 3 (draft-ietf-secsh-filexfer-02) as in OpenSSH: packets from a byte stream, their fields, and answers.
import type { Stats } from 'node:fs';

export const REQUEST = {
  init: 1,
  open: 3,
  close: 4,
  read: 5,
  write: 6,
  lstat: 7,
  fstat: 8,
  setstat: 9,
  fsetstat: 10,
  opendir: 11,
  readdir: 12,
  remove: 13,
  mkdir: 14,
  rmdir: 15,
  realpath: 16,
  stat: 17,
  rename: 18,
  readlink: 19,
  symlink: 20,
  extended: 200,
} as const;

export const ANSWER = {
  version: 2,
  status: 101,
  handle: 102,
  data: 103,
  name: 104,
  attrs: 105,
  extended: 201,
} as const;

export const STATUS = {
  ok: 0,
  eof: 1,
  no_such_file: 2,
  permission_denied: 3,
  failure: 4,
  bad_message: 5,
  unsupported: 8,
} as const;

const ATTRIBUTE = { size: 1, owner: 2, mode: 4, times: 8, extended: 0x8000_0000 } as const;

/** OpenSSH's own limit; a longer packet ends the session. */
export const PACKET_BYTES_MAX = 256 * 1024;
const LENGTH_BYTES = 4;

/** Attributes that a client may set. Times are seconds since 1970. */
export interface Attributes {
  size?: bigint;
  owner?: { uid: number; gid: number };
  mode?: number;
  times?: { atime_s: number; mtime_s: number };
}

/** The failure of a request, with its SFTP status. */
export class SftpError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Takes chunks of bytes and returns the packets that are complete. Throws SftpError on an impossible length. */
export function createPacketDecoder(): (chunk: Buffer) => Buffer[] {
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    const packets: Buffer[] = [];
    while (rest.length >= LENGTH_BYTES) {
      const length = rest.readUInt32BE(0);
      if (length === 0 || length > PACKET_BYTES_MAX)
        throw new SftpError(STATUS.bad_message, 'a packet has no such length');
      if (rest.length < LENGTH_BYTES + length) break;
      packets.push(rest.subarray(LENGTH_BYTES, LENGTH_BYTES + length));
      rest = rest.subarray(LENGTH_BYTES + length);
    }
    return packets;
  };
}

/** Reads the fields of a packet in order. Each call throws SftpError if the packet is too short. */
export interface Fields {
  uint8(): number;
  uint32(): number;
  uint64(): bigint;
  /** A field with a length before it: data, a text or a name. Names stay bytes, because they need not be UTF-8. */
  bytes(): Buffer;
  attributes(): Attributes;
}

export function readFields(packet: Buffer): Fields {
  let at = 0;
  const take = (count: number): Buffer => {
    if (packet.length - at < count) throw new SftpError(STATUS.bad_message, 'the request is too short');
    at += count;
    return packet.subarray(at - count, at);
  };
  const uint32 = (): number => take(4).readUInt32BE(0);
  const bytes = (): Buffer => take(uint32());
  const attributes = (): Attributes => {
    const flags = uint32();
    const has = (flag: number): boolean => (flags & flag) !== 0;
    const found: Attributes = {
      ...(has(ATTRIBUTE.size) && { size: take(8).readBigUInt64BE(0) }),
      ...(has(ATTRIBUTE.owner) && { owner: { uid: uint32(), gid: uint32() } }),
      ...(has(ATTRIBUTE.mode) && { mode: uint32() & 0o7777 }),
      ...(has(ATTRIBUTE.times) && { times: { atime_s: uint32(), mtime_s: uint32() } }),
    };
    for (let left = has(ATTRIBUTE.extended) ? uint32() : 0; left > 0; left -= 1) void [bytes(), bytes()];
    return found;
  };
  return { uint8: () => take(1).readUInt8(0), uint32, uint64: () => take(8).readBigUInt64BE(0), bytes, attributes };
}

/** A number is sent as uint32, a bigint as uint64, text and bytes with a length before them, `raw` as it is. */
export type Part = number | bigint | string | Buffer | { raw: Buffer };

export interface Answer {
  type: number;
  /** The fields after the request's id. */
  parts: readonly Part[];
}

/** Performs one kind of request. Rejects with SftpError, or with the file system's error. */
export type Operation = (fields: Fields) => Promise<Answer>;

/** Operations by the number of the request, or by the name of the extension. */
export type Operations = Readonly<Record<string, Operation>>;

/** The answer to a request that has no result. */
export async function done(work: Promise<unknown>): Promise<Answer> {
  await work;
  return { type: ANSWER.status, parts: [STATUS.ok, '', ''] };
}

/** A whole packet with its length in front. */
export function encodePacket(type: number, parts: readonly Part[]): Buffer {
  const body = Buffer.concat(parts.map(encodePart));
  const head = Buffer.allocUnsafe(LENGTH_BYTES + 1);
  head.writeUInt32BE(body.length + 1, 0);
  head.writeUInt8(type, LENGTH_BYTES);
  return Buffer.concat([head, body]);
}

/** Attributes in the format of an answer. */
export function attributesOf(stats: Stats): { raw: Buffer } {
  const flags = ATTRIBUTE.size | ATTRIBUTE.owner | ATTRIBUTE.mode | ATTRIBUTE.times;
  const seconds = (ms: number): number => Math.min(Math.max(0, Math.floor(ms / 1000)), 0xffff_ffff);
  const { size, uid, gid, mode, atimeMs, mtimeMs } = stats;
  return {
    raw: Buffer.concat([flags, BigInt(size), uid, gid, mode, seconds(atimeMs), seconds(mtimeMs)].map(encodePart)),
  };
}

export const NO_ATTRIBUTES: { raw: Buffer } = { raw: encodePart(0) };

function encodePart(part: Part): Buffer {
  if (typeof part === 'number' || typeof part === 'bigint') {
    const number = Buffer.allocUnsafe(typeof part === 'number' ? 4 : 8);
    if (typeof part === 'number') number.writeUInt32BE(part, 0);
    else number.writeBigUInt64BE(part, 0);
    return number;
  }
  if (typeof part === 'object' && 'raw' in part) return part.raw;
  const bytes = typeof part === 'string' ? Buffer.from(part) : part;
  return Buffer.concat([encodePart(bytes.length), bytes]);
}
