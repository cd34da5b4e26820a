// Second factors that are typed: the codes of an authenticator app (TOTP, RFC 6238), and recovery codes. Each code works once.
import { generateURI, verifySync } from 'otplib';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Tx } from '../db/db.ts';
import type { Sealing } from '../http/sealing.ts';
import * as rows from './credential-store.ts';
import type { UserRow } from './store.ts';

/** Clocks of telephones may be wrong by this. */
const TOLERANCE_SECONDS = 30;
const RECOVERY_CODES = 10;
const RECOVERY_BYTES = 10;
/** The secret is as long as the hash that TOTP uses (RFC 4226, section 4). */
const TOTP_BYTES = 20;
const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';

export interface NewTotp {
  /** Base32, for people who type it. */
  secret: string;
  /** `otpauth://...`, for a QR code. */
  uri: string;
}

export interface SecondFactors {
  /**
   * Uses up a code of the app or a recovery code. False if the code is wrong or was used before. The transaction must have locked the
   * person.
   */
  use(tx: Tx, userId: string, code: string): Promise<boolean>;
  /** Replaces an app that was not confirmed. @throws ServiceError `conflict` if there is one */
  enrolTotp(tx: Tx, user: UserRow): Promise<NewTotp>;
  /** The first code confirms the app. @throws ServiceError `conflict` if there is none to confirm, `validation_failed` for a wrong code */
  confirmTotp(tx: Tx, userId: string, code: string): Promise<void>;
  /** Makes new recovery codes, which replace all old ones. They are shown once. */
  newRecoveryCodes(tx: Tx, userId: string): Promise<string[]>;
}

interface Deps {
  clock: Clock;
  ids: Ids;
  sealing: Sealing;
  /** The name that the app shows. */
  issuer: string;
}

export function openSecondFactors(deps: Deps): SecondFactors {
  const { clock, ids, sealing, issuer } = deps;
  /** Accepts only a code with a later time step than the last one used. So nobody can use an overheard code again. */
  const useTotp = async (tx: Tx, row: rows.CredentialRow, code: string): Promise<boolean> => {
    const nowMs = clock.now();
    const checked = verifySync({
      secret: sealing.open(placeOf(row.user_id), row.secret),
      token: code,
      epoch: Math.floor(nowMs / 1000),
      epochTolerance: TOLERANCE_SECONDS,
    });
    // The library has an option for this. It throws if the clock was set back and is now behind the last code.
    if (!checked.valid || !('timeStep' in checked) || checked.timeStep <= row.counter) return false;
    return rows.useCredential(tx, row.id, { from: row.counter, to: checked.timeStep, nowMs });
  };
  return {
    use: async (tx, userId, given) => {
      const code = given.replaceAll(/[\s-]/g, '').toLowerCase();
      if (!/^\d{6}$/.test(code)) return rows.takeRecoveryCode(tx, userId, code);
      const [row] = await rows.credentialsOf(tx, userId, 'totp');
      return row !== undefined && row.confirmed_ms !== null && useTotp(tx, row, code);
    },
    enrolTotp: async (tx, user) => {
      const [before] = await rows.credentialsOf(tx, user.id, 'totp');
      if (before !== undefined && before.confirmed_ms !== null)
        fail('conflict', 'An authenticator app is set up already. Remove it with DELETE /v1/auth/totp first.');
      await rows.deleteCredentials(tx, user.id, 'totp');
      const secret = base32(ids.secret(TOTP_BYTES)).toUpperCase();
      await rows.insertCredential(tx, {
        id: ids.prefixed('cred'),
        user_id: user.id,
        kind: 'totp',
        name: 'authenticator app',
        external_id: null,
        secret: sealing.seal(placeOf(user.id), secret),
        counter: 0,
        transports: [],
        confirmed_ms: null,
        created_ms: clock.now(),
      });
      return { secret, uri: generateURI({ issuer, label: user.email, secret }) };
    },
    confirmTotp: async (tx, userId, code) => {
      const [row] = await rows.credentialsOf(tx, userId, 'totp');
      if (row === undefined || row.confirmed_ms !== null)
        return fail('conflict', 'No authenticator app waits for its first code. Begin with POST /v1/auth/totp.');
      if (!/^\d{6}$/.test(code) || !(await useTotp(tx, row, code)))
        failField('code', 'must be the code that the app shows now; check the clock of the telephone');
    },
    newRecoveryCodes: async (tx, userId) => {
      await rows.deleteRecoveryCodes(tx, userId);
      const codes = Array.from({ length: RECOVERY_CODES }, () => newCode(ids));
      for (const code of codes) await rows.insertRecoveryCode(tx, userId, code.replaceAll('-', ''), clock.now());
      return codes;
    },
  };
}

function placeOf(userId: string): string {
  return `totp ${userId}`;
}

/** Sixteen characters in groups of four: 80 random bits. */
function newCode(ids: Ids): string {
  return base32(ids.secret(RECOVERY_BYTES)).match(/.{4}/g)?.join('-') ?? '';
}

/** `secret` is base64url of a multiple of five bytes. */
function base32(secret: string): string {
  const bits = Array.from(Buffer.from(secret, 'base64url'), (byte) => byte.toString(2).padStart(8, '0')).join('');
  return (bits.match(/.{5}/g) ?? []).map((five) => BASE32.charAt(Number.parseInt(five, 2))).join('');
}
