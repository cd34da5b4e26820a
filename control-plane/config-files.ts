// Checks the directories in which the configuration puts files, before anything is made there.
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { blobsDirectory, type Config } from './config.ts';

/** Setting -> directory of the file that it names. */
type Directories = Record<string, string>;

/** The daemon calls it before it makes a file. @throws Error that lists the directories that are missing or read-only, and what to do */
export function assertDirectories(config: Config): void {
  const { admin_socket: socket, blobs_s3: s3 } = config;
  assertUsable({ admin_socket: dirname(socket), ...dataDirectories(config) }, config);
  // The first blob makes this directory, and those above it.
  if (s3 === undefined) assertWritable({ blobs_dir: nearest(blobsDirectory(config)) });
}

/** A command calls it that finds no daemon. The unit removes the directory of the socket when the daemon ends, so that one may be missing. */
export function assertDataDirectories(config: Config): void {
  assertUsable(dataDirectories(config), config);
}

function dataDirectories({ secret_file: secret, database }: Config): Directories {
  const sqlite = 'sqlite' in database ? { 'database.sqlite': dirname(database.sqlite) } : {};
  return { secret_file: dirname(secret), ...sqlite };
}

function assertUsable(directories: Directories, { secret_file: secret }: Config): void {
  const missing = Object.entries(directories).filter(([, path]) => !existsSync(path));
  if (missing.length > 0) {
    const paths = [...new Set(missing.map(([, path]) => path))].join(' ');
    throw new Error(
      `there is no directory for ${missing.map(([setting]) => setting).join(', ')}: make it with install -d -m 0700 ${paths}`,
    );
  }
  const { secret_file: ofSecret, ...others } = directories;
  // A secret that is there is only read.
  assertWritable(existsSync(secret) || ofSecret === undefined ? others : directories);
}

function assertWritable(directories: Directories): void {
  for (const [setting, path] of Object.entries(directories)) {
    try {
      accessSync(path, constants.W_OK | constants.X_OK);
    } catch (error) {
      throw new Error(
        `this process may not write to ${path} (${setting}): give the directory to its user, and name it in ReadWritePaths of its unit`,
        { cause: error },
      );
    }
  }
}

/** The directory itself, or the first one above it that exists. */
function nearest(path: string): string {
  return existsSync(path) ? path : nearest(dirname(path));
}
