// SFTP requests on names: moving, linking and removing a file, and resolving a name. Attributes of a file: answers to stat, lines of listings, and
// the changes that a client requests.
import type { Stats, StatsFs } from 'node:fs';
import * as fs from 'node:fs/promises';
import {
  ANSWER,
  type Answer,
  done,
  NO_ATTRIBUTES,
  type Operations,
  REQUEST,
  SftpError,
  STATUS,
  attributesOf,
  type Attributes,
  type Part,
} from './sftp-wire.ts';
import type { FileHandle } from 'node:fs/promises';
import { codeOf } from '../../shared/errors.ts';

const MODE_DEFAULT = 0o777;
const SLASH = Buffer.from('/');
/** A program can set any time of a file, also one that a Date cannot hold. The line of a listing shows a time between these. */
const [LISTED_MS_MIN, LISTED_MS_MAX] = [Date.parse('0001-01-01'), Date.parse('9999-12-31')];

/** `home` is absolute. */
export function nameOperations(locate: (name: Buffer) => Buffer, home: Buffer): Operations {
  return {
    [REQUEST.lstat]: async (fields) => attributesAnswer(await fs.lstat(locate(fields.bytes()))),
    [REQUEST.stat]: async (fields) => attributesAnswer(await fs.stat(locate(fields.bytes()))),
    [REQUEST.setstat]: (fields) => done(changeName(locate(fields.bytes()), fields.attributes())),
    [REQUEST.remove]: (fields) => done(fs.unlink(locate(fields.bytes()))),
    [REQUEST.mkdir]: (fields) => {
      const [name, { mode = MODE_DEFAULT }] = [locate(fields.bytes()), fields.attributes()];
      return done(fs.mkdir(name, mode));
    },
    [REQUEST.rmdir]: (fields) => done(fs.rmdir(locate(fields.bytes()))),
    [REQUEST.realpath]: async (fields) => nameAnswer(await realPath(locate(fields.bytes()))),
    [REQUEST.rename]: (fields) => done(renameToNew(locate(fields.bytes()), locate(fields.bytes()))),
    [REQUEST.readlink]: async (fields) => nameAnswer(await fs.readlink(locate(fields.bytes()), { encoding: 'buffer' })),
    // OpenSSH sends the target first, contrary to the draft, and all clients do the same.
    [REQUEST.symlink]: (fields) => {
      const [target, name] = [fields.bytes(), locate(fields.bytes())];
      return done(fs.symlink(target, name));
    },
    'posix-rename@openssh.com': (fields) => done(fs.rename(locate(fields.bytes()), locate(fields.bytes()))),
    'hardlink@openssh.com': (fields) => done(fs.link(locate(fields.bytes()), locate(fields.bytes()))),
    'lsetstat@openssh.com': (fields) => done(changeLink(locate(fields.bytes()), fields.attributes())),
    'statvfs@openssh.com': async (fields) => fileSystemAnswer(await fs.statfs(locate(fields.bytes()))),
    'expand-path@openssh.com': async (fields) => nameAnswer(await realPath(locate(expandTilde(fields.bytes(), home)))),
  };
}

/** Returns a function that makes a name absolute, relative to `home`. */
export function locateFrom(home: Buffer): (name: Buffer) => Buffer {
  return (name) => (name[0] === SLASH[0] ? name : joined(home, name));
}

export function attributesAnswer(stats: Stats): Answer {
  return { type: ANSWER.attrs, parts: [attributesOf(stats)] };
}

/** One entry of a folder: its name, a line like that of `ls -n`, and its attributes. */
export function listedEntry(name: Buffer, stats: Stats): Part[] {
  const size = String(stats.size).padStart(12);
  const shown = new Date(Math.min(Math.max(stats.mtimeMs, LISTED_MS_MIN), LISTED_MS_MAX));
  const time = shown.toISOString().slice(0, 16).replace('T', ' ');
  const line = `${modeText(stats.mode)} ${String(stats.nlink).padStart(4)} ${stats.uid} ${stats.gid} ${size} ${time} `;
  return [name, Buffer.concat([Buffer.from(line), name]), attributesOf(stats)];
}

/** Changes a file in the order of OpenSSH's server. The times come after the size, because a change of size sets them. */
export async function changeFile(file: FileHandle, { size, mode, times, owner }: Attributes): Promise<void> {
  if (size !== undefined) await file.truncate(Number(size));
  if (mode !== undefined) await file.chmod(mode);
  if (times !== undefined) await file.utimes(times.atime_s, times.mtime_s);
  if (owner !== undefined) await file.chown(owner.uid, owner.gid);
}

/** The answer to statvfs@openssh.com: block sizes, counts of blocks and files, an id, flags, the longest name. */
function fileSystemAnswer({ bsize, blocks, bfree, bavail, files, ffree }: StatsFs): Answer {
  const parts = [bsize, bsize, blocks, bfree, bavail, files, ffree, ffree, 0, 0, 255];
  return { type: ANSWER.extended, parts: parts.map(BigInt) };
}

async function changeName(name: Buffer, { size, mode, times, owner }: Attributes): Promise<void> {
  if (size !== undefined) await fs.truncate(name, Number(size));
  if (mode !== undefined) await fs.chmod(name, mode);
  if (times !== undefined) await fs.utimes(name, times.atime_s, times.mtime_s);
  if (owner !== undefined) await fs.chown(name, owner.uid, owner.gid);
}

/** Changes a symbolic link itself, which has no mode. */
async function changeLink(name: Buffer, { times, owner }: Attributes): Promise<void> {
  if (times !== undefined) await fs.lutimes(name, times.atime_s, times.mtime_s);
  if (owner !== undefined) await fs.lchown(name, owner.uid, owner.gid);
}

function nameAnswer(name: Buffer): Answer {
  return { type: ANSWER.name, parts: [1, name, name, NO_ATTRIBUTES] };
}

/** The last part of the name need not exist: clients ask for the path of a file that they are about to write. */
async function realPath(name: Buffer): Promise<Buffer> {
  try {
    return await fs.realpath(name, { encoding: 'buffer' });
  } catch (error) {
    const cut = name.lastIndexOf('/');
    const [folder, last] = [name.subarray(0, Math.max(cut, 1)), name.subarray(cut + 1)];
    if (!isMissing(error) || last.length === 0) throw error;
    return joined(await fs.realpath(folder, { encoding: 'buffer' }), last);
  }
}

/** Renames, unless `to` exists: SFTP version 3 refuses that, and clients that want to replace a file use posix-rename. */
async function renameToNew(from: Buffer, to: Buffer): Promise<void> {
  const there: Stats | undefined = await fs.lstat(to).catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });
  if (there !== undefined) throw new SftpError(STATUS.failure, 'a file with the new name exists already');
  await fs.rename(from, to);
}

function expandTilde(name: Buffer, home: Buffer): Buffer {
  const text = name.toString('latin1');
  if (text === '~') return home;
  if (text.startsWith('~/')) return joined(home, name.subarray(2));
  if (text.startsWith('~')) throw new SftpError(STATUS.failure, 'only ~ is known here, not the home of another user');
  return name;
}

function joined(folder: Buffer, name: Buffer): Buffer {
  return folder.at(-1) === SLASH[0] ? Buffer.concat([folder, name]) : Buffer.concat([folder, SLASH, name]);
}

function isMissing(error: unknown): boolean {
  return codeOf(error) === 'ENOENT';
}

const KINDS: Readonly<Record<number, string>> = {
  0o01: 'p',
  0o02: 'c',
  0o04: 'd',
  0o06: 'b',
  0o10: '-',
  0o12: 'l',
  0o14: 's',
};

function modeText(mode: number): string {
  const bits = Array.from('rwxrwxrwx', (letter, i) => ((mode >> (8 - i)) & 1 ? letter : '-')).join('');
  return `${KINDS[mode >> 12] ?? '?'}${bits}`;
}
