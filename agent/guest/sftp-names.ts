// SFTP requests on names: what a file is, moving, linking and removing it, and where a name leads.
import type { Stats } from 'node:fs';
import * as fs from 'node:fs/promises';
import { attributesAnswer, changeLink, changeName, fileSystemAnswer } from './sftp-attributes.ts';
import { ANSWER, type Answer, done, NO_ATTRIBUTES, type Operations, REQUEST, SftpError, STATUS } from './sftp-wire.ts';

const MODE_DEFAULT = 0o777;
const SLASH = Buffer.from('/');

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
    // OpenSSH sends the target first, other than the draft says, and everybody follows it.
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

/** A name as it is seen from `home`. */
export function locateFrom(home: Buffer): (name: Buffer) => Buffer {
  return (name) => (name[0] === SLASH[0] ? name : joined(home, name));
}

function nameAnswer(name: Buffer): Answer {
  return { type: ANSWER.name, parts: [1, name, name, NO_ATTRIBUTES] };
}

/** The last part of the name need not exist: clients ask where a file that they are about to write will be. */
async function realPath(name: Buffer): Promise<Buffer> {
  try {
    return await fs.realpath(name, { encoding: 'buffer' });
  } catch (error) {
    const cut = name.lastIndexOf('/');
    const [folder, last] = [name.subarray(0, Math.max(cut, 1)), name.subarray(cut + 1)];
    if (!isOwnOutage(error) || last.length === 0) throw error;
    return joined(await fs.realpath(folder, { encoding: 'buffer' }), last);
  }
}

/** What is at `to` stays: version 3 refuses it, and clients that want it replaced use posix-rename. */
async function renameToNew(from: Buffer, to: Buffer): Promise<void> {
  const there: Stats | undefined = await fs.lstat(to).catch((error: unknown) => {
    if (isOwnOutage(error)) return undefined;
    throw error;
  });
  if (there !== undefined) throw new SftpError(STATUS.failure, 'there is something by the new name already');
  await fs.rename(from, to);
}

function expandTilde(name: Buffer, home: Buffer): Buffer {
  const text = name.toString('latin1');
  if (text === '~') return home;
  if (text.startsWith('~/')) return joined(home, name.subarray(2));
  if (text.startsWith('~')) throw new SftpError(STATUS.failure, 'only the own home is known here, as ~');
  return name;
}

function joined(folder: Buffer, name: Buffer): Buffer {
  return folder.at(-1) === SLASH[0] ? Buffer.concat([folder, name]) : Buffer.concat([folder, SLASH, name]);
}

function isOwnOutage(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
