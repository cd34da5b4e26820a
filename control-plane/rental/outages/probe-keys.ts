// The keys with which probes log in: ed25519, as OpenSSH files. Each launch makes one, so the file is built here: the library that reads such files
// takes ten times as long to write one.
import { generateKeyPairSync } from 'node:crypto';
import type { ProbeKey } from '../endpoints/endpoints.ts';

/** The user name of a probe. The holder checks only the key. */
export const PROBE_USER = 'svc-probe';
const KEY_BYTES = 32;
const LINE_CHARS = /.{70}/g;

const TYPE = sshString('ssh-ed25519');
const PUBLIC_BYTES = TYPE.length + 4 + KEY_BYTES;
const COMMENT = sshString(PROBE_USER);
/** The check number, the public key, the secret key, and the comment. */
const SECRET_BYTES = 8 + PUBLIC_BYTES + 4 + 2 * KEY_BYTES + COMMENT.length;
const PADDING = Buffer.from(Array.from({ length: (8 - (SECRET_BYTES % 8)) % 8 }, (_, i) => i + 1));

/** The parts of the file around the key: it has no passphrase. The check number stands there twice; any number will do, for example 0. */
const HEAD = Buffer.concat([
  Buffer.from('openssh-key-v1\0'),
  ...['none', 'none', ''].map(sshString),
  uint32(1),
  uint32(PUBLIC_BYTES),
]);
const PUBLIC = Buffer.concat([TYPE, uint32(KEY_BYTES)]);
const SECRET = Buffer.concat([uint32(SECRET_BYTES + PADDING.length), Buffer.alloc(8)]);
const PAIR = uint32(2 * KEY_BYTES);

/** A new key, for the probes of one endpoint. */
export function newProbeKey(): ProbeKey {
  const { x = '', d = '' } = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const [key, seed] = [Buffer.from(x, 'base64url'), Buffer.from(d, 'base64url')];
  const file = Buffer.concat([HEAD, PUBLIC, key, SECRET, PUBLIC, key, PAIR, seed, key, COMMENT, PADDING]);
  const lines = file.toString('base64').replaceAll(LINE_CHARS, '$&\n');
  return {
    privateKey: `-----BEGIN OPENSSH PRIVATE KEY-----\n${lines}\n-----END OPENSSH PRIVATE KEY-----\n`,
    publicLine: `ssh-ed25519 ${Buffer.concat([PUBLIC, key]).toString('base64')} ${PROBE_USER}`,
  };
}

/** RFC 4251, section 5: the length before the bytes. */
function sshString(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([uint32(bytes.length), bytes]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}
