// The SSH host key of one workload. It is made on this host at the first start, never changes, and the private part is never sent.
import { readFile } from 'node:fs/promises';
import ssh2 from 'ssh2';
import { isMissing, writeFileSafely } from '../host/state.ts';

export interface HostKey {
  /** OpenSSH private key text. */
  privateKey: string;
  /** `ssh-ed25519 AAAA...` */
  publicLine: string;
}

/** Reads the key in `file`; makes and stores one (0600) if there is none. */
export async function loadHostKey(file: string): Promise<HostKey> {
  const stored = await readStored(file);
  if (stored !== undefined) return { privateKey: stored, publicLine: publicLineOf(stored) };
  const made = makeKeyPair().private;
  await writeFileSafely(file, made);
  return { privateKey: made, publicLine: publicLineOf(made) };
}

/** ssh2 drops a leading zero byte of a public key, so one pair in 256 is unreadable. In that case another pair is made. */
export function makeKeyPair(): { private: string; public: string } {
  for (;;) {
    const pair = ssh2.utils.generateKeyPairSync('ed25519');
    if (!(ssh2.utils.parseKey(pair.private) instanceof Error)) return pair;
  }
}

async function readStored(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

function publicLineOf(privateKey: string): string {
  const key = ssh2.utils.parseKey(privateKey);
  if (key instanceof Error) throw key;
  return `${key.type} ${key.getPublicSSH().toString('base64')}`;
}
