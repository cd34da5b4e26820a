// The secret of this installation, and the file that holds it. Only the first start on a database makes the file: if it is missing later, its disk
// may not be mounted, and another secret in its place would be backed up as if it were the right one.
import { existsSync, linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { codeOf } from '../shared/errors.ts';
import type { Ids } from '../shared/ids.ts';
import type { Rng } from '../shared/rng.ts';
import { readNamed } from '../shared/yaml-config.ts';
import type { Db, Query } from './base/db/db.ts';
import { assertSecretFits, assertSecretKnown, isSealed, openSealing } from './base/http/sealing.ts';
import type { Config } from './config.ts';

const SECRET_BYTES = 32;

type Named = Pick<Config, 'secret_file'>;

export interface SecretFile {
  /**
   * A process that stands by calls it. The file is never made here, because the one that serves has made it.
   * @throws Error if the file is missing, or holds another secret than the one that the database was written under
   */
  assertKnown(query: Query): Promise<void>;
  /**
   * Returns the secret of the database. The first start on a database makes the file. Only a process that may write calls it. So of two that
   * start on an empty database, the one that has the lease makes the file, and the other one asks for it.
   * @throws Error as `assertKnown`, and then nothing was made
   */
  secretOf(db: Db): Promise<Buffer>;
}

/** Reads the file if it is there, so that a mistake in it is reported before anything is created. @throws Error if it is not a secret */
export function openSecretFile(config: Named, { ids, rng }: { ids: Ids; rng: Rng }): SecretFile {
  const { secret_file: path } = config;
  if (existsSync(path)) existingSecret(config);
  return {
    assertKnown: async (query) => assertSecretKnown(query, openSealing(existingSecret(config), ids)),
    secretOf: async (db) => {
      // A start on a full disk must not need space for a secret that is there.
      if (!existsSync(path) && !(await isSealed(db.read))) makeSecret(path, rng);
      const secret = existingSecret(config);
      await assertSecretFits(db, openSealing(secret, ids));
      return secret;
    },
  };
}

/** @throws Error if the file is missing, cannot be read or is not a secret */
export function existingSecret({ secret_file: path }: Named): Buffer {
  if (!existsSync(path))
    throw new Error(
      `secret_file names ${path}, which does not exist, although the database was written under the secret in it: mount the disk that has it, or put the file back (it belongs to each backup, and each control plane of the database has the same one)`,
    );
  const text = readNamed('secret_file', path, (file) => readFileSync(file, 'utf8')).trim();
  if (!/^[0-9a-f]{64}$/.test(text))
    throw new Error(`${path} must hold ${SECRET_BYTES} bytes as 64 hexadecimal characters`);
  return Buffer.from(text, 'hex');
}

function makeSecret(path: string, rng: Rng): void {
  const made = `${path}.${Buffer.from(rng.bytes(8)).toString('hex')}`;
  writeFileSync(made, `${Buffer.from(rng.bytes(SECRET_BYTES)).toString('hex')}\n`, { mode: 0o600, flush: true });
  try {
    // A link never overwrites a file and appears complete. So a crash, or a second process on the same disk, still leaves one valid secret.
    linkSync(made, path);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(made);
  }
}
