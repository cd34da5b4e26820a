// File attributes in SFTP: answers to stat, lines of listings, and the changes that a client requests.
import type { Stats, StatsFs } from 'node:fs';
import * as fs from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { ANSWER, type Answer, attributesOf, type Attributes, type Part } from './sftp-wire.ts';

export function attributesAnswer(stats: Stats): Answer {
  return { type: ANSWER.attrs, parts: [attributesOf(stats)] };
}

/** One entry of a folder: its name, a line like that of `ls -n`, and its attributes. */
export function listedEntry(name: Buffer, stats: Stats): Part[] {
  const size = String(stats.size).padStart(12);
  const time = stats.mtime.toISOString().slice(0, 16).replace('T', ' ');
  const line = `${modeText(stats.mode)} ${String(stats.nlink).padStart(4)} ${stats.uid} ${stats.gid} ${size} ${time} `;
  return [name, Buffer.concat([Buffer.from(line), name]), attributesOf(stats)];
}

/** The answer to statvfs@openssh.com: block sizes, counts of blocks and files, an id, flags, the longest name. */
export function fileSystemAnswer({ bsize, blocks, bfree, bavail, files, ffree }: StatsFs): Answer {
  const parts = [bsize, bsize, blocks, bfree, bavail, files, ffree, ffree, 0, 0, 255];
  return { type: ANSWER.extended, parts: parts.map(BigInt) };
}

/** Changes a file in the order of OpenSSH's server. The times come after the size, because a change of size sets them. */
export async function changeFile(file: FileHandle, { size, mode, times, owner }: Attributes): Promise<void> {
  if (size !== undefined) await file.truncate(Number(size));
  if (mode !== undefined) await file.chmod(mode);
  if (times !== undefined) await file.utimes(times.atime_s, times.mtime_s);
  if (owner !== undefined) await file.chown(owner.uid, owner.gid);
}

export async function changeName(name: Buffer, { size, mode, times, owner }: Attributes): Promise<void> {
  if (size !== undefined) await fs.truncate(name, Number(size));
  if (mode !== undefined) await fs.chmod(name, mode);
  if (times !== undefined) await fs.utimes(name, times.atime_s, times.mtime_s);
  if (owner !== undefined) await fs.chown(name, owner.uid, owner.gid);
}

/** Changes a symbolic link itself, which has no mode. */
export async function changeLink(name: Buffer, { times, owner }: Attributes): Promise<void> {
  if (times !== undefined) await fs.lutimes(name, times.atime_s, times.mtime_s);
  if (owner !== undefined) await fs.lchown(name, owner.uid, owner.gid);
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
