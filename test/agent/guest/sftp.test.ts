// The guest's SFTP server against packets that no honest client sends, and the limits that one meets.
import { execFileSync } from 'node:child_process';
import {
  mkdtempSync,
  opendirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createFrameDecoder, FRAME, FRAME_BYTES_MAX, sendFrame } from '../../../agent/wire/frames.ts';
import { serveSftp } from '../../../agent/guest/sftp.ts';
import { listedEntry } from '../../../agent/guest/sftp-names.ts';
import {
  ANSWER,
  createPacketDecoder,
  encodePacket,
  type Fields,
  type Part,
  PACKET_BYTES_MAX,
  readFields,
  REQUEST,
  STATUS,
} from '../../../agent/guest/sftp-wire.ts';

const NO_ATTRIBUTES = 0;
const [READ, WRITE, APPEND, CREATE] = [1, 2, 4, 8];
let home: string;
let server: Server;
let socket: Socket;
let ended: Promise<unknown>;
let answers: Fields[];
let wake: () => void;

beforeEach(async () => {
  home = mkdtempSync(join(tmpdir(), 'sftp-'));
  const served = Promise.withResolvers<unknown>();
  server = createServer((guestEnd) => {
    served.resolve(
      serveSftp(guestEnd, home)
        .then(() => 'ended')
        .catch((error: unknown) => error),
    );
  });
  server.listen(join(home, 'socket'));
  await once(server, 'listening');
  socket = connect(join(home, 'socket'));
  ended = served.promise;
  answers = [];
  wake = () => undefined;
  const [frames, packets] = [createFrameDecoder(FRAME_BYTES_MAX), createPacketDecoder()];
  socket.on('data', (chunk: Buffer) => {
    for (const { payload } of frames(chunk)) answers.push(...packets(payload).map(readFields));
    wake();
  });
});

afterEach(() => {
  socket.destroy();
  server.close();
  rmSync(home, { recursive: true });
});

const send = (bytes: Buffer): void => sendFrame(socket, FRAME.data, bytes);

async function nextAnswer(): Promise<Fields> {
  while (answers.length === 0) await new Promise<void>((resolve) => (wake = resolve));
  return answers.shift() ?? readFields(Buffer.alloc(0));
}

/** The type of the answer and what follows its id. */
async function ask(type: number, ...parts: Part[]): Promise<{ type: number; fields: Fields }> {
  send(encodePacket(type, [7, ...parts]));
  const fields = await nextAnswer();
  const answered = fields.uint8();
  expect(fields.uint32()).toBe(7);
  return { type: answered, fields };
}

async function status(type: number, ...parts: Part[]): Promise<number> {
  const answer = await ask(type, ...parts);
  expect(answer.type).toBe(ANSWER.status);
  return answer.fields.uint32();
}

async function open(name: string, flags: number): Promise<Buffer> {
  const { type, fields } = await ask(REQUEST.open, name, flags, NO_ATTRIBUTES);
  expect(type).toBe(ANSWER.handle);
  return fields.bytes();
}

async function greet(): Promise<void> {
  send(encodePacket(REQUEST.init, [3]));
  expect((await nextAnswer()).uint8()).toBe(ANSWER.version);
}

describe('bytes that are not SFTP end the session', () => {
  test('a request before the greeting', async () => {
    send(encodePacket(REQUEST.stat, [1, '/']));
    expect(await ended).toMatchObject({ message: 'the first packet must be SSH_FXP_INIT' });
  });
  test.each([0, PACKET_BYTES_MAX + 1])('a packet of %d bytes', async (length) => {
    await greet();
    const head = Buffer.alloc(4);
    head.writeUInt32BE(length);
    send(head);
    expect(await ended).toMatchObject({ message: 'a packet has no such length' });
  });
});

test('the longest packet is taken, in whatever pieces it comes', async () => {
  await greet();
  const handle = await open('file', WRITE | CREATE);
  const around = encodePacket(REQUEST.write, [7, handle, 0n, '']).length - 4;
  const bytes = Buffer.alloc(PACKET_BYTES_MAX - around, 'x');
  const packet = encodePacket(REQUEST.write, [7, handle, 0n, bytes]);
  expect(packet.length - 4).toBe(PACKET_BYTES_MAX);
  for (let at = 0; at < packet.length; at += 99_991) send(packet.subarray(at, at + 99_991));
  const answer = await nextAnswer();
  expect([answer.uint8(), answer.uint32(), answer.uint32()]).toEqual([ANSWER.status, 7, STATUS.ok]);
  expect(readFileSync(join(home, 'file')).equals(bytes)).toBe(true);
});

test.each([
  ['a request that does not exist', 99, []],
  ['an extension that does not exist', REQUEST.extended, ['copy-data']],
  ['an extension by the name of something else', REQUEST.extended, ['toString']],
  ['a request in the place of an extension', REQUEST.extended, [String(REQUEST.remove), 'file']],
])('%s is unsupported, and the session goes on', async (_what, type, parts) => {
  await greet();
  writeFileSync(join(home, 'file'), 'here');
  expect(await status(type, ...parts)).toBe(STATUS.unsupported);
  expect(await status(REQUEST.remove, 'file')).toBe(STATUS.ok);
});

test('a request that is cut short is a bad message, and the session goes on', async () => {
  await greet();
  expect(await status(REQUEST.open, 'file')).toBe(STATUS.bad_message);
  expect(await status(REQUEST.mkdir, 'folder', NO_ATTRIBUTES)).toBe(STATUS.ok);
});

// OpenSSH's client takes an answer without entries as the end of the folder.
test('a folder is listed to its end if so many entries vanish that one answer would have none', async () => {
  for (let i = 0; i < 250; i += 1) writeFileSync(join(home, `f${i}`), '');
  await greet();
  const { fields } = await ask(REQUEST.opendir, '.');
  const handle = fields.bytes();
  const first = await ask(REQUEST.readdir, handle);
  expect([first.type, first.fields.uint32()]).toEqual([ANSWER.name, 100]);
  for (const name of inOrder(home).slice(100, 200)) rmSync(join(home, name));
  const second = await ask(REQUEST.readdir, handle);
  // The socket of this test is in the folder too.
  expect([second.type, second.fields.uint32()]).toEqual([ANSWER.name, 51]);
  expect(await status(REQUEST.readdir, handle)).toBe(STATUS.eof);
});

/** The names in the order of the file system. */
function inOrder(folder: string): string[] {
  const dir = opendirSync(folder);
  const names: string[] = [];
  for (let entry = dir.readSync(); entry !== null; entry = dir.readSync()) names.push(entry.name);
  dir.closeSync();
  return names;
}

test('at most 256 handles can be open at a time', async () => {
  await greet();
  const handles: Buffer[] = [];
  for (let i = 0; i < 256; i += 1) handles.push(await open(`f${i}`, WRITE | CREATE));
  expect(await status(REQUEST.open, 'more', WRITE | CREATE, NO_ATTRIBUTES)).toBe(STATUS.failure);
  expect(readdirSync(home)).not.toContain('more');
  expect(await status(REQUEST.close, handles[100] ?? '')).toBe(STATUS.ok);
  await open('more', WRITE | CREATE);
});

test('a handle that is closed, or never existed, is refused', async () => {
  await greet();
  const handle = await open('file', WRITE | CREATE);
  await status(REQUEST.close, handle);
  expect(await status(REQUEST.write, handle, 0n, 'x')).toBe(STATUS.failure);
  expect(await status(REQUEST.close, Buffer.from('nonsense'))).toBe(STATUS.failure);
});

test('a read of more than a packet can carry gets one packet; a read after the end gets the end', async () => {
  await greet();
  writeFileSync(join(home, 'file'), Buffer.alloc(300_000, 'x'));
  const handle = await open('file', READ);
  const first = await ask(REQUEST.read, handle, 0n, 0xffff_ffff);
  expect([first.type, first.fields.bytes().length]).toEqual([ANSWER.data, PACKET_BYTES_MAX - 1024]);
  expect(await status(REQUEST.read, handle, 300_000n, 10)).toBe(STATUS.eof);
});

test('a write to a file opened for appending goes to its end, whatever the offset', async () => {
  await greet();
  writeFileSync(join(home, 'log'), 'one ');
  const handle = await open('log', WRITE | APPEND);
  expect(await status(REQUEST.write, handle, 0n, 'two')).toBe(STATUS.ok);
  expect(readFileSync(join(home, 'log')).toString()).toBe('one two');
});

test('a rename does not replace a file, but the extension of OpenSSH does', async () => {
  await greet();
  writeFileSync(join(home, 'new'), 'new');
  writeFileSync(join(home, 'old'), 'old');
  expect(await status(REQUEST.rename, 'new', 'old')).toBe(STATUS.failure);
  expect(readFileSync(join(home, 'old')).toString()).toBe('old');
  expect(await status(REQUEST.extended, 'posix-rename@openssh.com', 'new', 'old')).toBe(STATUS.ok);
  expect(readFileSync(join(home, 'old')).toString()).toBe('new');
});

test.each([
  [0, '1970-01-01 00:00'],
  [-1, '1969-12-31 23:59'],
  [Date.UTC(2026, 1, 3, 4, 5), '2026-02-03 04:05'],
  [Date.UTC(10_000, 0), '9999-12-31 00:00'],
  [8.64e15 + 1, '9999-12-31 00:00'],
  [99_999_999_999_999_000, '9999-12-31 00:00'],
  [-8.64e15 - 1, '0001-01-01 00:00'],
])('a file whose time is %d ms after 1970 is listed with %s', (mtimeMs, shown) => {
  const stats = Object.assign(statSync(home), { mtimeMs });
  const packet = encodePacket(ANSWER.name, listedEntry(Buffer.from('file'), stats));
  expect(packet.toString('latin1')).toContain(` ${shown} file`);
});

test('a FIFO without a writer does not block the session', async () => {
  await greet();
  execFileSync('mkfifo', [join(home, 'fifo')]);
  await open('fifo', READ);
  expect(await status(REQUEST.mkdir, 'after', NO_ATTRIBUTES)).toBe(STATUS.ok);
});

test.each(['disconnects', 'sends EOF'])('the open files of a client are closed when it %s', async (how) => {
  await greet();
  await open('left', WRITE | CREATE);
  expect(openFiles()).toContain(join(home, 'left'));
  if (how === 'disconnects') socket.destroy();
  else sendFrame(socket, FRAME.eof, Buffer.alloc(0));
  expect(await ended).toBe('ended');
  expect(openFiles()).not.toContain(join(home, 'left'));
});

/** The open files of this process, which is the server's. */
function openFiles(): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return [];
    }
  });
}
