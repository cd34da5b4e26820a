// Device logins (RFC 8628): a program shows a code, a person who has signed in types it and approves, and the program fetches an API key.
//
// The key is made when the program fetches it, so it does not exist before. The row of the login is deleted at the same time, so nobody can
// fetch the key again. Only a request of a confirmed session approves a login. A link that contains the code only fills the code in. If that session
// ends before the key is fetched, there is no key: somebody else may have approved with it.
import type { DeviceCodes, DeviceLogin } from '../../../shared/api/device-login.ts';
import { USER_CODE_CHARS, USER_CODE_LETTERS } from '../../../shared/api/device-login.ts';
import type { NewApiKey } from '../../../shared/api/account.ts';
import type { z } from 'zod';
import { networkOf } from '../../../shared/client-network.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Rng } from '../../../shared/rng.ts';
import { assertKeyCount, hashOf, issueKey, scopesOf } from '../accounts/api-keys.ts';
import { assertOrg } from '../accounts/orgs.ts';
import type { Tx } from '../db/db.ts';
import type { SessionCall } from '../http/route.ts';
import { type Scope, scopeText } from '../http/scopes.ts';
import * as rows from './device-store.ts';
import type { PeopleDeps } from './people.ts';
import { scopesOfRole } from './roles.ts';
import { findSession } from './session-store.ts';
import { findMember } from './store.ts';

const DEVICE_CODE_BYTES = 32;
const LOGIN_MS = 600_000;
const INTERVAL_MS = 5_000;
const KEY_DAYS = 90;
const DAY_MS = 86_400_000;
/** Maximum number of logins from one network that wait for a person at the same time. */
const OPEN_PER_NETWORK_MAX = 20;

type SessionCaller = SessionCall<unknown, unknown, unknown>['caller'];

export interface DeviceLogins {
  /** @throws ServiceError `validation_failed` for an unknown scope, `rate_limit_exceeded` */
  begin(request: { host: string; scopes: string[] }, clientIp: string): Promise<z.infer<typeof DeviceCodes>>;
  /**
   * Makes the key if the person has approved. @throws ServiceError `authorization_pending`, `slow_down`, `access_denied`, `expired_token`,
   * `conflict` if the organisation has too many keys
   */
  redeem(deviceCode: string): Promise<NewApiKey>;
  /** Returns what the person is asked to approve. @throws ServiceError `not_found` */
  show(caller: SessionCaller, userCode: string): Promise<DeviceLogin>;
  /** The key gets what was asked for and the person may do. @throws ServiceError `not_found`, `insufficient_scope` if that is nothing */
  approve(caller: SessionCaller, userCode: string): Promise<void>;
  /** @throws ServiceError `not_found` */
  deny(caller: SessionCaller, userCode: string): Promise<void>;
}

type Deps = Pick<PeopleDeps, 'db' | 'clock' | 'ids' | 'events' | 'origin' | 'sessions'> & { rng: Rng };

export function openDeviceLogins(deps: Deps): DeviceLogins {
  const { db, clock, sessions } = deps;
  const pending = async (userCode: string): Promise<rows.DeviceLoginRow> =>
    (await rows.loginWithUserCode(db.read, codeHash(userCode), clock.now())) ??
    fail('not_found', 'This code is unknown, was used, or has ended. Begin the login again on the machine.');
  const decide = async (
    caller: SessionCaller,
    { id }: rows.DeviceLoginRow,
    decided: Pick<rows.Decision, 'state' | 'scopes'>,
  ): Promise<void> => {
    const { orgId, principalId: sessionId, session } = caller;
    const decision = { ...decided, userId: session.userId, orgId, sessionId };
    const done = await db.tx('users.decide_device', async (tx) => {
      await tx.lock('user', decision.userId);
      await sessions.present(tx, caller, 'session');
      return rows.decide(tx, id, decision, clock.now());
    });
    if (!done) fail('not_found', 'Somebody has decided about this code, or it has ended.');
  };
  return {
    begin: (request, clientIp) => begin(request, clientIp, deps),
    redeem: (deviceCode) => redeem(hashOf(deviceCode), deps),
    show: async (caller, userCode) => {
      const row = await pending(userCode);
      const org = await assertOrg(db.read, caller.orgId);
      return {
        host: row.host,
        client_ip: row.client_ip,
        ...shareOut(row.scopes, caller),
        org: { id: org.id, name: org.name },
        created_at: isoTime(row.created_ms),
        expires_at: isoTime(row.expires_ms),
      };
    },
    approve: async (caller, userCode) => {
      const row = await pending(userCode);
      const { scopes, withheld_scopes: withheld } = shareOut(row.scopes, caller);
      const [missing = ''] = withheld;
      if (scopes.length === 0) {
        fail('insufficient_scope', {
          detail: `The program asks for "${withheld.join(', ')}", and you may do none of it yourself. Deny it, and begin with other scopes.`,
          extra: { required_scope: missing },
        });
      }
      await decide(caller, row, { state: 'approved', scopes });
    },
    deny: async (caller, userCode) => {
      const row = await pending(userCode);
      await decide(caller, row, { state: 'denied', scopes: row.scopes });
    },
  };
}

/** Divides what a program asks for into what the person can give, and the rest (RFC 8628 lets a server give less than was asked for). */
function shareOut(asked: readonly string[], caller: SessionCaller): Pick<DeviceLogin, 'scopes' | 'withheld_scopes'> {
  const scopes = scopesOf(asked);
  const isGiven = (scope: Scope): boolean => caller.scopes.includes(scope);
  if (scopes.every(isGiven)) return { scopes: [...asked], withheld_scopes: [] };
  return {
    scopes: scopes.filter(isGiven).map(scopeText),
    withheld_scopes: scopes.filter((scope) => !isGiven(scope)).map(scopeText),
  };
}

async function begin(
  { host, scopes }: { host: string; scopes: string[] },
  clientIp: string,
  deps: Deps,
): Promise<z.infer<typeof DeviceCodes>> {
  const { db, clock, ids, rng, origin } = deps;
  scopesOf(scopes);
  const network = networkOf(clientIp);
  const nowMs = clock.now();
  const deviceCode = ids.secret(DEVICE_CODE_BYTES);
  const userCode = newUserCode(rng);
  const row: rows.DeviceLoginRow = {
    id: ids.prefixed('dvl'),
    device_hash: hashOf(deviceCode),
    user_code_hash: codeHash(userCode),
    host,
    client_ip: clientIp,
    network,
    scopes,
    state: 'pending',
    user_id: null,
    org_id: null,
    session_id: null,
    polled_ms: null,
    interval_ms: INTERVAL_MS,
    created_ms: nowMs,
    expires_ms: nowMs + LOGIN_MS,
  };
  const added = await db.tx('users.begin_device', (tx) => rows.insertDeviceLogin(tx, row, OPEN_PER_NETWORK_MAX));
  if (added === 0) await failBegin(network, deps);
  const uri = `${origin}/device`;
  return {
    device_code: deviceCode,
    user_code: userCode,
    verification_uri: uri,
    verification_uri_complete: `${uri}#${userCode}`,
    expires_in: LOGIN_MS / 1000,
    interval: INTERVAL_MS / 1000,
  };
}

async function failBegin(network: string, { db, clock }: Deps): Promise<never> {
  if ((await rows.openLoginsOf(db.read, network, clock.now())) < OPEN_PER_NETWORK_MAX)
    return fail('unavailable', { detail: 'This code is in use. Begin again.', retryAfterSeconds: 1 });
  return fail('rate_limit_exceeded', {
    detail: `From your address ${OPEN_PER_NETWORK_MAX} logins wait already; approve or deny one, or wait until they end.`,
    retryAfterSeconds: LOGIN_MS / 1000,
  });
}

/** The result of one request for the key. A refusal is a value and not an error, because its transaction must be committed. */
type Outcome =
  | { key: NewApiKey }
  | { refusal: 'authorization_pending' | 'slow_down' | 'access_denied' | 'expired_token' };

const DETAILS = {
  authorization_pending: 'Nobody has approved the login yet. Ask again after the interval.',
  slow_down: 'Wait five seconds longer between two requests from now on.',
  access_denied:
    'The login was denied, the session that approved it has ended, or the person may not do this any more.',
  expired_token: 'The code is unknown, was used, or has ended. Begin the login again.',
};

async function redeem(deviceHash: string, deps: Deps): Promise<NewApiKey> {
  const { db, clock } = deps;
  const found = await rows.loginWithDeviceCode(db.read, deviceHash);
  if (found === undefined) return fail('expired_token', DETAILS.expired_token);
  const outcome = await db.tx('users.redeem_device', async (tx): Promise<Outcome> => {
    await tx.lock('org', found.org_id ?? '');
    // A session of the person may end at the same moment.
    await tx.lock('user', found.user_id ?? '');
    const row = await rows.loginWithDeviceCode(tx, deviceHash);
    const nowMs = clock.now();
    if (row === undefined || row.expires_ms <= nowMs) return { refusal: 'expired_token' };
    if (row.state === 'denied') return { refusal: 'access_denied' };
    if (row.state === 'pending' || row.org_id !== found.org_id) return { refusal: await poll(tx, row, nowMs) };
    // If several requests come at once, one deletes the row, and the others find nothing.
    if (!(await rows.takeLogin(tx, row.id))) return { refusal: 'expired_token' };
    return mint(tx, row, deps);
  });
  return 'key' in outcome ? outcome.key : fail(outcome.refusal, DETAILS[outcome.refusal]);
}

async function poll(tx: Tx, row: rows.DeviceLoginRow, nowMs: number): Promise<'authorization_pending' | 'slow_down'> {
  const isEarly = row.polled_ms !== null && nowMs - row.polled_ms < row.interval_ms;
  await rows.notePoll(tx, row.id, { nowMs, slowDownMs: isEarly ? INTERVAL_MS : 0 });
  return isEarly ? 'slow_down' : 'authorization_pending';
}

/**
 * Makes the key. What the person may do now decides, not what the person could do at the approval. The transaction must have locked the organisation
 * and the person.
 */
async function mint(tx: Tx, row: rows.DeviceLoginRow, deps: Deps): Promise<Outcome> {
  const { org_id: orgId, user_id: userId } = row;
  const nowMs = deps.clock.now();
  if ((await findSession(tx, row.session_id ?? '', nowMs)) === undefined) return { refusal: 'access_denied' };
  const member = await findMember(tx, orgId ?? '', userId ?? '');
  const allowed = member === undefined ? [] : scopesOfRole(member.role);
  if (orgId === null || userId === null || scopesOf(row.scopes).some((scope) => !allowed.includes(scope)))
    return { refusal: 'access_denied' };
  const expiresMs = nowMs + KEY_DAYS * DAY_MS;
  const request = { orgId, name: `cli@${row.host}`, scopes: row.scopes, expiresMs, by: userId, userId };
  const key = await issueKey(tx, request, deps);
  await assertKeyCount(tx, orgId, nowMs);
  return { key };
}

/** `BCDF-GHJK`. A byte is taken again if it would favour some letters. */
function newUserCode(rng: Rng): string {
  const letters: string[] = [];
  const limit = 256 - (256 % USER_CODE_LETTERS.length);
  while (letters.length < USER_CODE_CHARS) {
    for (const byte of rng.bytes(USER_CODE_CHARS)) {
      if (byte < limit) letters.push(USER_CODE_LETTERS.charAt(byte % USER_CODE_LETTERS.length));
    }
  }
  return `${letters.slice(0, 4).join('')}-${letters.slice(4, USER_CODE_CHARS).join('')}`;
}

function codeHash(userCode: string): string {
  return hashOf(`user code ${userCode.toUpperCase().replaceAll(/[^A-Z]/g, '')}`);
}
