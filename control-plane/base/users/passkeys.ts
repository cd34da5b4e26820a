// Passkeys (WebAuthn): an authenticator of the person signs a challenge of ours, for our origin alone.
import type { AuthenticationResponseJSON, RegistrationResponseJSON } from '@simplewebauthn/server';
import { z } from 'zod';
import type { PasskeyAnswer } from '../../../shared/api/auth.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Tx } from '../db/db.ts';
import type { Sealing } from '../http/sealing.ts';
import * as rows from './credential-store.ts';
import type { NewSession, Visitor } from './sessions.ts';
import { failSignIn, type Principal, type SignInDeps } from './sign-in.ts';
import { findUser } from './store.ts';

const CHALLENGE_MS = 5 * 60_000;
const PASSKEYS_MAX = 20;
/** 1023 bytes in base64url: the longest id of a passkey (WebAuthn, section 4). */
const ID_CHARS_MAX = 1_364;
/** How the authenticator can be reached, in words of the browser. There are six of them. */
const Transports = z.array(z.string().max(32)).max(16).default([]);
/** Sealed texts of this kind are challenges. */
const PLACE = 'passkey challenge';

export interface Passkeys {
  /** Options for `navigator.credentials.create`. */
  registrationOptions(userId: string): Promise<Options>;
  /**
   * Stores a passkey. If the person had no recovery codes, the answer has new ones. @throws ServiceError `validation_failed`, `conflict`
   */
  register(principal: Principal, passkey: { name: string; answer: PasskeyAnswer }): Promise<Registered>;
  /** Options for `navigator.credentials.get`. They name no person, so they do not reveal who has an account. */
  signInOptions(): Promise<Options>;
  /** @throws ServiceError `sign_in_failed` */
  signIn(answer: PasskeyAnswer, visitor: Visitor): Promise<NewSession>;
  /** Confirms that the person of the session is present. @throws ServiceError `sign_in_failed` */
  confirm(principal: Principal, answer: PasskeyAnswer): Promise<NewSession>;
}

type Options = { challenge: string; [name: string]: unknown };

export interface Registered {
  row: rows.CredentialRow;
  recoveryCodes: string[];
  session: NewSession;
}

interface Deps extends SignInDeps {
  sealing: Sealing;
  origin: string;
}

/** Loaded when it is first needed: it takes a quarter of a second. */
const library = () => import('@simplewebauthn/server');

export function openPasskeys(deps: Deps): Passkeys {
  const { db, clock, sealing, sessions } = deps;
  const rpID = new URL(deps.origin).hostname;
  const newChallenge = (): Uint8Array<ArrayBuffer> =>
    new Uint8Array(Buffer.from(sealing.seal(PLACE, String(clock.now() + CHALLENGE_MS)), 'base64url'));
  return {
    registrationOptions: async (userId) => {
      const user = await findUser(db.read, userId);
      const known = await rows.credentialsOf(db.read, userId, 'passkey');
      const { generateRegistrationOptions } = await library();
      return {
        ...(await generateRegistrationOptions({
          rpID,
          rpName: rpID,
          userName: user?.email ?? '',
          userDisplayName: user?.name ?? '',
          userID: new Uint8Array(Buffer.from(userId)),
          challenge: newChallenge(),
          excludeCredentials: known.map((row) => ({ id: row.external_id ?? '', transports: row.transports })),
          authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
        })),
      };
    },
    register: (principal, passkey) => register(principal, passkey, deps),
    signInOptions: async () => {
      const { generateAuthenticationOptions } = await library();
      return {
        ...(await generateAuthenticationOptions({ rpID, challenge: newChallenge(), userVerification: 'required' })),
      };
    },
    signIn: async (answer, visitor) => {
      const proof = await verify(answer, deps);
      const { user_id: userId } = proof.row;
      return db.tx('users.passkey_sign_in', async (tx) => {
        await tx.lock('user', userId);
        await useProof(tx, proof, deps);
        return sessions.begin(tx, { userId, visitor, isStrong: true, method: 'passkey' });
      });
    },
    confirm: async ({ id, userId }, answer) => {
      const proof = await verify(answer, deps);
      if (proof.row.user_id !== userId) failSignIn();
      return db.tx('users.passkey_step_up', async (tx) => {
        await tx.lock('user', userId);
        await useProof(tx, proof, deps);
        return sessions.confirm(tx, id, { isStrong: true });
      });
    },
  };
}

async function register(
  { id, userId }: Principal,
  { name, answer }: { name: string; answer: PasskeyAnswer },
  deps: Deps,
): Promise<Registered> {
  const { db, clock, ids, secondFactors, sessions } = deps;
  const { challenge, ...read } =
    (await readRegistration(answer, deps)) ??
    failField('passkey', 'must be the answer of an authenticator to POST /v1/auth/passkeys/registration');
  const nowMs = clock.now();
  const row: rows.CredentialRow = {
    id: ids.prefixed('cred'),
    user_id: userId,
    kind: 'passkey',
    name,
    ...read,
    confirmed_ms: nowMs,
    created_ms: nowMs,
    used_ms: null,
  };
  return db.tx('users.add_passkey', async (tx) => {
    await tx.lock('user', userId);
    await takeChallenge(tx, challenge, deps);
    const { passkey: count, codes } = await rows.factorsOf(tx, userId);
    if (count >= PASSKEYS_MAX) fail('conflict', `A person may have ${PASSKEYS_MAX} passkeys; remove one first.`);
    if ((await rows.insertCredential(tx, row)) === 0) fail('conflict', 'This passkey is registered already.');
    const recoveryCodes = codes > 0 ? [] : await secondFactors.newRecoveryCodes(tx, userId);
    return { row, recoveryCodes, session: await sessions.confirm(tx, id, { isStrong: true }) };
  });
}

/** What the authenticator says of the new passkey. */
type ReadPasskey = Pick<rows.CredentialRow, 'external_id' | 'secret' | 'counter' | 'transports'>;

/** The new passkey, and the challenge that it answers; undefined if the answer is not that of an authenticator. */
async function readRegistration(
  answer: PasskeyAnswer,
  { origin }: Deps,
): Promise<(ReadPasskey & { challenge: string }) | undefined> {
  const { verifyRegistrationResponse } = await library();
  let challenge = '';
  try {
    if (await hasCertificates(answer)) return undefined;
    const { registrationInfo } = await verifyRegistrationResponse({
      // The library checks every part of it.
      response: answer as unknown as RegistrationResponseJSON,
      // Whether the challenge is ours and unused is checked in the transaction (`takeChallenge`).
      expectedChallenge: (signed) => {
        challenge = signed;
        return true;
      },
      expectedOrigin: origin,
      expectedRPID: new URL(origin).hostname,
      requireUserVerification: true,
    });
    if (registrationInfo === undefined) return undefined;
    const { id, publicKey, counter, transports } = registrationInfo.credential;
    if (id.length > ID_CHARS_MAX) return undefined;
    const secret = Buffer.from(publicKey).toString('base64url');
    return { external_id: id, secret, counter, transports: Transports.parse(transports), challenge };
  } catch {
    return undefined;
  }
}

/**
 * Whether the answer has a statement with certificates about its authenticator. We ask for none, so browsers send no statement, or one that the new
 * key has signed itself. The library would ask the addresses that certificates name, whoever has made them.
 */
async function hasCertificates({ response }: PasskeyAnswer): Promise<boolean> {
  const { decodeAttestationObject, isoBase64URL } = await import('@simplewebauthn/server/helpers');
  const object = decodeAttestationObject(isoBase64URL.toBuffer(String(response['attestationObject'])));
  const format = object.get('fmt');
  return (format !== 'none' && format !== 'packed') || object.get('attStmt').get('x5c') !== undefined;
}

interface Proof {
  row: rows.CredentialRow;
  challenge: string;
  counter: number;
}

/** Checks the signature. Whether the challenge is ours and unused is checked in the transaction (`useProof`). */
async function verify(answer: PasskeyAnswer, { db, origin }: Deps): Promise<Proof> {
  const row = await rows.credentialWith(db.read, answer.id);
  if (row?.kind !== 'passkey') return failSignIn();
  const { verifyAuthenticationResponse } = await library();
  let challenge = '';
  const { verified, authenticationInfo } = await verifyAuthenticationResponse({
    // The library checks every part of it.
    response: answer as unknown as AuthenticationResponseJSON,
    expectedChallenge: (signed) => {
      challenge = signed;
      return true;
    },
    expectedOrigin: origin,
    expectedRPID: new URL(origin).hostname,
    requireUserVerification: true,
    credential: {
      id: answer.id,
      publicKey: new Uint8Array(Buffer.from(row.secret, 'base64url')),
      counter: row.counter,
    },
  }).catch(() => failSignIn());
  if (!verified) failSignIn();
  return { row, challenge, counter: authenticationInfo.newCounter };
}

async function useProof(tx: Tx, { row, challenge, counter }: Proof, deps: Deps): Promise<void> {
  await takeChallenge(tx, challenge, deps);
  const used = await rows.useCredential(tx, row.id, { from: row.counter, to: counter, nowMs: deps.clock.now() });
  if (!used) failSignIn();
}

/** @throws ServiceError `sign_in_failed` for a challenge that is not ours, too old, or was used */
async function takeChallenge(tx: Tx, challenge: string, { sealing, clock }: Deps): Promise<void> {
  const expiresMs = expiryOf(challenge, sealing);
  if (expiresMs <= clock.now() || !(await rows.useChallenge(tx, challenge, expiresMs))) failSignIn();
}

function expiryOf(challenge: string, sealing: Sealing): number {
  try {
    return Number(sealing.open(PLACE, challenge));
  } catch {
    return 0;
  }
}
