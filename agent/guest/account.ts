// Reads our user's name, home and shell from the image's own passwd file, which need not exist.
import { accessSync, constants, readFileSync, statSync } from 'node:fs';

export interface Account {
  name: string;
  home: string;
  /** Absolute path of the shell to use; null if the image has none. */
  shell: string | null;
}

const SHELLS = ['/bin/bash', '/usr/bin/bash', '/bin/sh', '/usr/bin/sh', '/bin/busybox'];

/** The account of `uid`. A user without an entry has its number as name, and `/` as home. */
export function readAccount(uid: number, passwd: string = readPasswd()): Account {
  const entry = passwd
    .split('\n')
    .map((line) => line.split(':'))
    .find((fields) => fields[2] === String(uid));
  const [name = String(uid), , , , , home = '/', shell = ''] = entry ?? [];
  return { name, home: home || '/', shell: chooseShell(shell) };
}

/** True if `path` is a folder that this process may enter, so that it can be a working directory. */
export function canEnter(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

function readPasswd(): string {
  try {
    return readFileSync('/etc/passwd', 'utf8');
  } catch {
    return '';
  }
}

/** The user's login shell if it is a real shell, else bash, else sh. */
function chooseShell(login: string): string | null {
  const own = /\/(nologin|false|sync|shutdown|halt)$/.test(login) ? [] : [login];
  return [...own, ...SHELLS].find(isProgram) ?? null;
}

function isProgram(path: string): boolean {
  if (!path.startsWith('/')) return false;
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
