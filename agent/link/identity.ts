// The identity of this host: an ed25519 key that never leaves it, its machine id from the control plane, and the clone token.
import { createPrivateKey, generateKeyPairSync, sign } from 'node:crypto';
import { join } from 'node:path';
import { z } from 'zod';
import { linkProof } from '../../shared/protocol/link.ts';
import { readJson, writeJson, type StateFiles } from '../host/state.ts';
import type { Log } from '../../shared/log.ts';

const Identity = z.strictObject({
  /** PKCS#8 PEM. */
  private_key: z.string(),
  /** Raw 32 bytes, base64url. */
  public_key: z.string().length(43),
  /** Set by a successful enrolment. */
  enrolled: z.strictObject({ url: z.string(), machine_id: z.string(), link_path: z.string() }).nullable(),
});
export type Identity = z.infer<typeof Identity>;

/** The stored identity; if there is none, makes and stores one. An interrupted enrolment is therefore repeated with the same key. */
export async function loadIdentity(stateDir: string): Promise<Identity> {
  const stored = await readIdentity(stateDir);
  if (stored !== undefined) return stored;
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const identity: Identity = {
    private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    public_key: publicKey.export({ format: 'jwk' }).x ?? '',
    enrolled: null,
  };
  await storeIdentity(stateDir, identity);
  return identity;
}

/** The stored identity; undefined on a host that has never tried to enrol. */
export function readIdentity(stateDir: string): Promise<Identity | undefined> {
  return readJson(identityFile(stateDir), Identity);
}

export function storeIdentity(stateDir: string, identity: Identity): Promise<void> {
  return writeJson(identityFile(stateDir), identity);
}

/** Signature over the server's nonce (base64url), which proves that this host is `machineId`. */
export function proveIdentity(identity: Identity, machineId: string, nonce: string): string {
  return sign(null, linkProof(machineId, nonce), createPrivateKey(identity.private_key)).toString('base64url');
}

/**
 * Exposes copies of this host. The control plane sends a new value every minute, and the host shows the newest at its next link. A copy of the
 * disk that is started elsewhere shows an old one.
 */
export interface CloneToken {
  /** The newest stored value; null before the first. */
  shown(): Promise<string | null>;
  /** Resolves with true once the value is on disk. If the write fails, resolves with false, and the value before is shown again. */
  keep(value: string): Promise<boolean>;
}

const Kept = z.strictObject({ value: z.string() });

export async function openCloneToken(
  stateDir: string,
  { files, log }: { files: StateFiles; log: Log },
): Promise<CloneToken> {
  const file = join(stateDir, 'clone-token.json');
  let kept = await files.read(file, Kept).catch((error: unknown) => {
    log.error({ err: error }, 'the stored clone token is damaged: this host may be mistaken for a copy of itself');
    return undefined;
  });
  let storing: Promise<unknown> = Promise.resolve();
  const store = async (value: string): Promise<boolean> => {
    try {
      await files.write(file, { value });
      kept = { value };
      return true;
    } catch (error) {
      log.error({ err: error }, 'the clone token could not be stored; the one before is shown again');
      return false;
    }
  };
  return {
    shown: async () => {
      await storing;
      return kept?.value ?? null;
    },
    keep: (value) => {
      const stored = storing.then(() => store(value));
      storing = stored;
      return stored;
    },
  };
}

function identityFile(stateDir: string): string {
  return join(stateDir, 'identity.json');
}
