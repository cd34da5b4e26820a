// SFTP requests on open files and folders, by their handles.
import { constants, type Dir } from 'node:fs';
import * as fs from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { attributesAnswer, changeFile, listedEntry } from './sftp-names.ts';
import { ANSWER, type Answer, done, type Fields, type Operations, REQUEST, SftpError, STATUS } from './sftp-wire.ts';

export interface Handles {
  operations: Operations;
  /** Closes all open files and folders. */
  close(): Promise<void>;
}

export interface HandleLimits {
  handlesMax: number;
  /** Number of bytes that one read returns at most, even if the client requests more. */
  readBytesMax: number;
}

interface Folder {
  name: Buffer;
  dir: Dir;
}

const OPEN = { read: 1, write: 2, append: 4, create: 8, truncate: 16, exclusive: 32 } as const;
const MODE_DEFAULT = 0o666;
/** Entries per answer. Even with the longest names they fit into a packet. */
const ENTRIES_MAX = 100;
const END: Answer = { type: ANSWER.status, parts: [STATUS.eof, '', ''] };

/** `locate` makes a name absolute. */
export function handleOperations(locate: (name: Buffer) => Buffer, limits: HandleLimits): Handles {
  const files = new Map<number, FileHandle>();
  const folders = new Map<number, Folder>();
  const file = (fields: Fields): FileHandle => known(files.get(idOf(fields)));
  let lastId = 0;

  const keep = async <T>(place: Map<number, T>, open: () => Promise<T>): Promise<Answer> => {
    if (files.size + folders.size >= limits.handlesMax) {
      throw new SftpError(STATUS.failure, `at most ${limits.handlesMax} files and folders can be open at a time`);
    }
    const opened = await open();
    lastId += 1;
    place.set(lastId, opened);
    const id = Buffer.alloc(4);
    id.writeUInt32BE(lastId);
    return { type: ANSWER.handle, parts: [id] };
  };

  return {
    operations: {
      [REQUEST.open]: (fields) => {
        const [name, flags, { mode = MODE_DEFAULT }] = [locate(fields.bytes()), fields.uint32(), fields.attributes()];
        return keep(files, () => fs.open(name, openFlags(flags), mode));
      },
      [REQUEST.opendir]: (fields) => {
        const name = locate(fields.bytes());
        return keep(folders, async () => ({ name, dir: await openFolder(name) }));
      },
      [REQUEST.close]: (fields) => {
        const id = idOf(fields);
        const opened = known(files.get(id) ?? folders.get(id)?.dir);
        files.delete(id);
        folders.delete(id);
        return done(opened.close());
      },
      [REQUEST.read]: async (fields) => {
        const [from, position, wanted] = [file(fields), fields.uint64(), fields.uint32()];
        const buffer = Buffer.allocUnsafe(Math.min(wanted, limits.readBytesMax));
        const { bytesRead } = await from.read({ buffer, position });
        return bytesRead === 0 ? END : { type: ANSWER.data, parts: [buffer.subarray(0, bytesRead)] };
      },
      [REQUEST.write]: (fields) => done(writeAll(file(fields), Number(fields.uint64()), fields.bytes())),
      [REQUEST.fstat]: async (fields) => attributesAnswer(await file(fields).stat()),
      [REQUEST.fsetstat]: (fields) => done(changeFile(file(fields), fields.attributes())),
      [REQUEST.readdir]: (fields) => nextEntries(known(folders.get(idOf(fields)))),
      'fsync@openssh.com': (fields) => done(file(fields).sync()),
    },
    close: async () => {
      const open = [...files.values(), ...[...folders.values()].map(({ dir }) => dir)];
      await Promise.allSettled(open.map((one) => one.close()));
    },
  };
}

function idOf(fields: Fields): number {
  const id = fields.bytes();
  return id.length === 4 ? id.readUInt32BE() : 0;
}

function known<T>(opened: T | undefined): T {
  if (opened === undefined) throw new SftpError(STATUS.failure, 'nothing is open by this handle');
  return opened;
}

function openFlags(asked: number): number {
  const has = (flag: number): boolean => (asked & flag) !== 0;
  const readOrNot = has(OPEN.read) ? constants.O_RDWR : constants.O_WRONLY;
  return (
    // Without O_NONBLOCK, opening a FIFO without a peer would block a thread.
    constants.O_NONBLOCK |
    (has(OPEN.write) ? readOrNot : constants.O_RDONLY) |
    (has(OPEN.append) ? constants.O_APPEND : 0) |
    (has(OPEN.create) ? constants.O_CREAT : 0) |
    (has(OPEN.truncate) ? constants.O_TRUNC : 0) |
    (has(OPEN.exclusive) ? constants.O_EXCL : 0)
  );
}

/** Opens a folder whose entries' names are bytes. Node supports that, but its types do not. */
function openFolder(name: Buffer): Promise<Dir> {
  return fs.opendir(name, { encoding: 'buffer' as BufferEncoding, bufferSize: ENTRIES_MAX });
}

/** Reads the next entries. An entry that was removed meanwhile is left out. A client takes an answer without entries as the end of the folder. */
async function nextEntries({ name: folder, dir }: Folder): Promise<Answer> {
  for (;;) {
    const names = await nextNames(dir);
    if (names.length === 0) return END;
    const facts = await Promise.allSettled(
      names.map((name) => fs.lstat(Buffer.concat([folder, Buffer.from('/'), name]))),
    );
    const entries = facts.flatMap((one, i) =>
      one.status === 'fulfilled' ? [listedEntry(names[i] ?? Buffer.alloc(0), one.value)] : [],
    );
    if (entries.length > 0) return { type: ANSWER.name, parts: [entries.length, ...entries.flat()] };
  }
}

async function nextNames(dir: Dir): Promise<Buffer[]> {
  const names: Buffer[] = [];
  while (names.length < ENTRIES_MAX) {
    const entry = await dir.read();
    if (entry === null) break;
    names.push(entry.name as unknown as Buffer);
  }
  return names;
}

async function writeAll(file: FileHandle, position: number, bytes: Buffer): Promise<void> {
  let written = 0;
  while (written < bytes.length) {
    const { bytesWritten } = await file.write(bytes, written, bytes.length - written, position + written);
    written += bytesWritten;
  }
}
