// Finds the key and the address of the API: in the environment, then in the profile of credentials.json.
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { homedir, hostname } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { codeOf, messageOf } from '../../shared/errors.ts';
import { EXIT, SvcError } from './exit.ts';

/** One login. `expires_at` is null for a key without an end. */
const Profile = z.strictObject({
  base_url: z.url(),
  api_key: z.string(),
  expires_at: z.string().nullable().default(null),
});
export type Profile = z.infer<typeof Profile>;

const Credentials = z.strictObject({ profiles: z.record(z.string(), Profile) });

/** Bits of a file's mode that give rights to other users than its owner. */
const OTHERS = 0o077;

export interface Login extends Profile {
  /** The source of the key: the file and the profile, or the name of the environment variable. */
  source: string;
  /** The address for which the key was stored; null for a key of the environment, which is for the address that is used with it. */
  made_for: string | null;
  /** The file of the key, if other users of the machine may read or change it; else null. */
  exposed: string | null;
}

export interface Logins {
  /** The login of a profile. SVC_API_KEY and SVC_BASE_URL have precedence. */
  find(profile: string): Login | undefined;
  /** The address of the API, for requests that need no key; undefined if it is not known. */
  baseUrl(profile: string): string | undefined;
  save(profile: string, login: Profile): string;
  /** Removes a profile. False if it did not exist. */
  remove(profile: string): boolean;
  /** The folder of our files. */
  readonly folder: string;
  readonly host: string;
}

interface Environment {
  SVC_API_KEY?: string | undefined;
  SVC_BASE_URL?: string | undefined;
  XDG_CONFIG_HOME?: string | undefined;
  HOME?: string | undefined;
}

export function openLogins(env: Environment): Logins {
  // An empty or relative name counts as not set, as the XDG base directory specification has it.
  const { XDG_CONFIG_HOME: given = '' } = env;
  const folder = join(isAbsolute(given) ? given : join(env.HOME || homedir(), '.config'), 'svc');
  const file = join(folder, 'credentials.json');
  const stored = (): Record<string, Profile> => readProfiles(file);
  // An empty variable counts as not set.
  const [apiUrl, apiKey] = [env.SVC_BASE_URL || undefined, env.SVC_API_KEY || undefined];
  const baseUrl = (profile: string): string | undefined => apiUrl ?? stored()[profile]?.base_url;
  return {
    folder,
    host: hostname(),
    baseUrl,
    find: (profile) => {
      const found = stored()[profile];
      const address = baseUrl(profile);
      if (apiKey !== undefined && address !== undefined)
        return {
          base_url: address,
          api_key: apiKey,
          expires_at: null,
          source: 'SVC_API_KEY',
          made_for: null,
          exposed: null,
        };
      if (found === undefined || address === undefined) return undefined;
      const exposed = (statSync(file).mode & OTHERS) === 0 ? null : file;
      return { ...found, base_url: address, source: `${file} (profile ${profile})`, made_for: found.base_url, exposed };
    },
    save: (profile, login) => {
      writeProfiles(file, { ...stored(), [profile]: login });
      return file;
    },
    remove: (profile) => {
      const { [profile]: removed, ...others } = stored();
      if (removed === undefined) return false;
      writeProfiles(file, others);
      return true;
    },
  };
}

/** The environment of this process. */
export function environment(): Environment & { NO_COLOR?: string | undefined } {
  return process.env;
}

/** A variable of this process that only the person has a use for. */
export function variable(name: string): string | undefined {
  return process.env[name];
}

function readProfiles(file: string): Record<string, Profile> {
  try {
    return Credentials.parse(JSON.parse(readFileSync(file, 'utf8'))).profiles;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return {};
    const message = `${file} cannot be read: ${messageOf(error)}`;
    throw new SvcError(EXIT.failed, {
      code: 'credentials_invalid',
      message,
      next: 'Remove it and sign in again: svc auth login',
    });
  }
}

function writeProfiles(file: string, profiles: Record<string, Profile>): void {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  chmodSync(dirname(file), 0o700);
  replaceFile(file, `${JSON.stringify({ profiles }, undefined, 2)}\n`);
}

/** Replaces the file as a whole, so that neither a crash nor a reader finds half a file. Other users can never read it. */
export function replaceFile(file: string, text: string): void {
  const half = `${file}.${process.pid}`;
  try {
    writeFileSync(half, text, { mode: 0o600 });
    renameSync(half, file);
  } finally {
    rmSync(half, { force: true });
  }
}
