// Decides which caller of the public SSH server may log in next, so that strangers cannot lock customers out, and who may log in at all.
//
// A caller is first `waiting`, then `logging in`, then `logged in`. There are few places for logging in:
// - The number of callers that log in at the same time is limited, in total and per network. Others wait for a limited time, and
//   nothing is read from them.
// - A waiting caller takes the place of the oldest one that has had enough time for an honest login. It takes the place at once if
//   the other caller's network has at least two places more than its own.
// - If there are too many connections, the oldest caller that has not logged in is cut.
// Example: 24 idle connections from two networks hold ten places. A customer from a third network gets one of them at once.
import type { Duplex } from 'node:stream';
import { firstOfLargestNetwork } from '../../shared/client-network.ts';
import type { Clock } from '../../shared/clock.ts';
import {
  SSH_CONNECTIONS_MAX,
  SSH_LOGIN_FAIR_MS,
  SSH_LOGIN_GRACE_MS,
  SSH_QUEUE_MS_MAX,
  SSH_UNAUTHENTICATED_MAX,
  SSH_UNAUTHENTICATED_PER_ADDRESS_MAX,
  SSH_AUTH_TRIES_MAX,
  SSH_KEY_OFFERS_MAX,
} from '../../shared/limits.ts';
import ssh2, { type AuthContext, type ParsedKey, type PublicKeyAuthContext } from 'ssh2';

export interface Admission {
  /** `begin` is called when the caller may log in. Throws if there is no place for one more connection. */
  enter(stream: Duplex, network: string, begin: () => void): void;
  /** The caller has authenticated, so its place is free. */
  loggedIn(stream: Duplex): void;
  close(): void;
}

interface Caller {
  stream: Duplex;
  network: string;
  begin(): void;
  /** When the login began; null while the caller waits. */
  begunMs: number | null;
  cancel(): void;
}

export function openAdmission(clock: Clock): Admission {
  const open = new Set<Duplex>();
  /** Callers that have not logged in yet, oldest first. */
  const callers = new Map<Duplex, Caller>();
  const waiting = (): Caller[] => [...callers.values()].filter(({ begunMs }) => begunMs === null);
  const loggingIn = (): Caller[] => [...callers.values()].filter(({ begunMs }) => begunMs !== null);

  const begin = (caller: Caller): void => {
    caller.cancel();
    caller.begunMs = clock.monotonicMs();
    const cancels = [
      clock.after(SSH_LOGIN_GRACE_MS, () => caller.stream.destroy()),
      clock.after(SSH_LOGIN_FAIR_MS, makePlace),
    ];
    caller.cancel = () => cancels.forEach((cancel) => cancel());
    caller.begin();
  };
  const leave = (stream: Duplex): void => {
    callers.get(stream)?.cancel();
    if (callers.delete(stream)) admit();
  };
  const admit = (): void => {
    for (;;) {
      const begun = loggingIn();
      const next = fairest(waiting(), begun);
      if (next === undefined || !hasPlace(begun, next)) return;
      begin(next);
    }
  };
  const makePlace = (): void => {
    const begun = loggingIn();
    const next = fairest(waiting(), begun);
    if (next === undefined || hasPlace(begun, next)) return;
    const isFull = begun.length >= SSH_UNAUTHENTICATED_MAX;
    const oldest = isFull ? firstOfLargestNetwork(begun) : begun.find(({ network }) => network === next.network);
    if (oldest === undefined) return;
    const hadTime = clock.monotonicMs() - (oldest.begunMs ?? 0) >= SSH_LOGIN_FAIR_MS;
    const isCrowd = countOf(begun, oldest.network) > countOf(begun, next.network) + 1;
    if (hadTime || isCrowd) oldest.stream.destroy();
  };

  return {
    enter: (stream, network, begun) => {
      if (open.size >= SSH_CONNECTIONS_MAX) {
        const oldest = firstOfLargestNetwork([...callers.values()]);
        if (oldest === undefined) throw new Error('too many SSH connections to this workload');
        open.delete(oldest.stream);
        oldest.stream.destroy();
        leave(oldest.stream);
      }
      open.add(stream);
      stream.on('error', () => stream.destroy());
      const cancel = clock.after(SSH_QUEUE_MS_MAX, () => stream.destroy());
      callers.set(stream, { stream, network, begin: begun, begunMs: null, cancel });
      stream.once('close', () => {
        open.delete(stream);
        leave(stream);
      });
      makePlace();
      admit();
    },
    loggedIn: leave,
    close: () => {
      for (const stream of open) stream.destroy();
    },
  };
}

export type LoginDecision = 'accept' | 'reject' | 'disconnect';

/**
 * Judges the attempts of one connection in order. It accepts public keys only, and only those in `lines`, from the stream's `open` message. An
 * invalid signature counts as a try. An offer of a key without a signature is only a question. RSA keys must sign with SHA-2.
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

function hasPlace(begun: readonly Caller[], { network }: Caller): boolean {
  return begun.length < SSH_UNAUTHENTICATED_MAX && countOf(begun, network) < SSH_UNAUTHENTICATED_PER_ADDRESS_MAX;
}

function countOf(callers: readonly Caller[], network: string): number {
  return callers.filter((each) => each.network === network).length;
}

/** The caller that has waited longest among those of the network with the fewest places. */
function fairest(waiting: readonly Caller[], begun: readonly Caller[]): Caller | undefined {
  let best: { caller: Caller; places: number } | undefined;
  for (const caller of waiting) {
    const places = countOf(begun, caller.network);
    if (best === undefined || places < best.places) best = { caller, places };
  }
  return best?.caller;
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
