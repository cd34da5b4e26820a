// What a configuration allows although an operator probably does not want it. The daemon starts all the same, and its log says so.
import { statSync } from 'node:fs';
import { isIPv4 } from 'node:net';
import type { Config } from './config.ts';

export interface ConfigWarning {
  setting: string;
  /** What is wrong, and what to do. */
  what: string;
}

/** `file` is the one that holds the configuration. */
export function warningsOf(config: Config, file: string): ConfigWarning[] {
  return [...ofReadableFiles(config, file), ...ofAddresses(config)];
}

/**
 * Another control plane takes over without the files on the disk of this one. The one that serves alone needs no such store, so this is asked
 * only when there is a second one.
 */
export function unsharedFiles({ blobs_s3: s3 }: Config): ConfigWarning | undefined {
  if (s3 !== undefined) return undefined;
  const what =
    'uploads and outputs of models are on the disk of each control plane, so after a takeover those of the other one cannot be downloaded: keep them in an S3 store (blobs_s3)';
  return { setting: 'blobs_s3', what };
}

/** The bits of a file's mode that let its group and all other users do something. */
const OTHERS = 0o077;

/** Container platforms mount secrets so that everybody in the container may read them. So this is no reason to refuse the start. */
function ofReadableFiles(config: Config, file: string): ConfigWarning[] {
  return filesWithSecrets(config, file).flatMap(({ setting, path }) => {
    const mode = path === undefined ? undefined : openMode(path);
    if (mode === undefined) return [];
    const what = `${setting}: other users of this machine may read ${path}, which holds a secret (mode ${mode}): chmod 600 ${path}`;
    return [{ setting, what }];
  });
}

function filesWithSecrets(
  { secret_file: secret, database, smtp, oidc, blobs_s3: s3, tls, apps }: Config,
  file: string,
): { setting: string; path: string | undefined }[] {
  return [
    { setting: 'secret_file', path: secret },
    { setting: 'database.postgres', path: 'postgres' in database && hasPassword(database.postgres) ? file : undefined },
    { setting: 'smtp.password_file', path: smtp?.password_file },
    { setting: 'oidc.client_secret_file', path: oidc?.client_secret_file },
    { setting: 'blobs_s3.secret_key_file', path: s3?.secret_key_file },
    { setting: 'tls.key_file', path: tls?.key_file },
    { setting: 'apps.tls.key_file', path: apps?.tls?.key_file },
  ];
}

function hasPassword(url: string): boolean {
  const { password, searchParams } = new URL(url);
  return password !== '' || searchParams.has('password');
}

/** The mode of a file of ours that others may use; undefined if they may not. A file of another user is as that user wants it. */
function openMode(path: string): string | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined || !found.isFile() || found.uid !== process.getuid?.()) return undefined;
  return (found.mode & OTHERS) === 0 ? undefined : (found.mode & 0o7777).toString(8).padStart(4, '0');
}

/**
 * A name like `localhost` may be meant: a container listens on all its addresses, and its port may be published on the machine of its only user.
 */
function ofAddresses({ listen, base_url: url }: Config): ConfigWarning[] {
  if (isLoopback(listen.host) || listen.host === 'localhost' || !isLoopback(new URL(url).hostname)) return [];
  const what = `base_url is ${url}, so links in mails, the commands that enrol hosts and the addresses of instances point everybody to their own machine, although the API listens on ${listen.host}: set base_url to the address that customers and hosts use`;
  return [{ setting: 'base_url', what }];
}

/** `host` may be in the brackets of a URL. */
function isLoopback(host: string): boolean {
  return host === '::1' || host === '[::1]' || (isIPv4(host) && host.startsWith('127.'));
}
