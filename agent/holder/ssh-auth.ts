// Decides who may log in over SSH: public keys only, and only those in this connection's open message.
import ssh2, { type AuthContext, type ParsedKey, type PublicKeyAuthContext } from 'ssh2';
import { SSH_AUTH_TRIES_MAX, SSH_KEY_OFFERS_MAX } from '../../shared/limits.ts';

export type LoginDecision = 'accept' | 'reject' | 'disconnect';

/**
 * Judges the attempts of one connection in order. An invalid signature counts as a try. An offer of a key without a signature is only
 * a question. RSA keys must sign with SHA-2.
 */
export function createLoginJudge(lines: readonly string[]): (attempt: AuthContext) => LoginDecision {
  const keys = parseLines(lines);
  let tries = 0;
  let offers = 0;
  return (attempt) => {
    offers += 1;
    if (offers > SSH_KEY_OFFERS_MAX) return 'disconnect';
    if (attempt.method !== 'publickey') return 'reject';
    const key = findKey(keys, attempt);
    if (key !== undefined && isSound(attempt, key)) return 'accept';
    if (attempt.signature !== undefined) tries += 1;
    return tries >= SSH_AUTH_TRIES_MAX ? 'disconnect' : 'reject';
  };
}

/** Skips lines that ssh2 cannot read (security keys, certificates): nobody can log in with them. */
function parseLines(lines: readonly string[]): ParsedKey[] {
  return lines.flatMap((line) => {
    const parsed = ssh2.utils.parseKey(line);
    return parsed instanceof Error || parsed.isPrivateKey() ? [] : [parsed];
  });
}

function findKey(keys: readonly ParsedKey[], attempt: PublicKeyAuthContext): ParsedKey | undefined {
  return keys.find((key) => key.type === attempt.key.algo && key.getPublicSSH().equals(attempt.key.data));
}

/** True for a question about a known key, and for a valid signature over this session. */
function isSound(attempt: PublicKeyAuthContext, key: ParsedKey): boolean {
  const { signature, blob, hashAlgo } = attempt;
  if (signature === undefined && blob === undefined) return true;
  if (signature === undefined || blob === undefined) return false;
  if (key.type === 'ssh-rsa' && hashAlgo !== 'sha256' && hashAlgo !== 'sha512') return false;
  // verify() returns an Error if the digest does not fit. An Error is truthy, so only `true` counts.
  const answer: boolean | Error = key.verify(blob, signature, hashAlgo);
  return answer === true;
}
