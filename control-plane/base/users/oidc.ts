// Signing in through the OpenID provider of the operator. The provider says who somebody is, and an account here says what that person may do.
import type { Configuration, CustomFetchOptions } from 'openid-client';
import { z } from 'zod';
import { codeOf, fail, failField, messageOf } from '../../../shared/errors.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { hashOf } from '../accounts/api-keys.ts';
import type { Query, Tx } from '../db/db.ts';
import type { Sealing } from '../http/sealing.ts';
import { readBytes } from '../outbound/outbound.ts';
import * as credentials from './credential-store.ts';
import type { NewSession, Visitor } from './sessions.ts';
import type { SignInDeps } from './sign-in.ts';
import { sessionWithToken } from './session-store.ts';
import { findUser, userWithEmail } from './store.ts';

const LOGIN_MS = 10 * 60_000;
const SECRET_BYTES = 32;
const STEP_SECONDS_MAX = 10;
const ANSWER_BYTES_MAX = 1024 ** 2;
/** How long what the provider says about itself is kept. Otherwise everybody could make this service ask it at any rate. */
const KNOWN_MS = 5 * 60_000;
/** The code of a refusal may be any text of the address that the browser brings. */
const REASON_CHARS_LOGGED = 200;
const PLACE = 'openid login';

export interface OidcSettings {
  issuer: string;
  clientId: string;
  clientSecret: string;
}

export interface Oidc {
  /** The operator has named a provider. */
  isConfigured: boolean;
  /** The browser goes to `url` and brings `login` back. @throws ServiceError `not_found` without a provider, `unavailable` */
  begin(): Promise<{ url: string; login: string }>;
  /**
   * `query` is what the provider has added to the address of our page. The login is used up, whether the provider accepts the answer or not.
   * @throws ServiceError `validation_failed` for a login that is not ours, `access_denied` if the person or the provider has refused, or if OpenID
   * does not allow the id of the person, `sign_in_failed`, `sign_up_closed` for a person without an account, `conflict` for an account that may
   * be somebody else's, `rate_limit_exceeded`, `unavailable`
   */
  finish(answer: { login: string; query: string }, visitor: Visitor): Promise<NewSession>;
}

interface Deps extends SignInDeps {
  sealing: Sealing;
  log: Log;
  origin: string;
  oidc: OidcSettings | undefined;
}

/** What the browser keeps for us between both requests. */
const Login = z.strictObject({ state: z.string(), nonce: z.string(), verifier: z.string(), expires_ms: z.number() });
type Login = z.infer<typeof Login>;

/** Some providers send "true" as a text, or null for an address that they do not know. A person with a link needs neither. */
const Claims = z.looseObject({
  sub: z.string().min(1),
  email: z.email().toLowerCase().optional().catch(undefined),
  email_verified: z
    .union([z.boolean(), z.literal('true').transform(() => true)])
    .optional()
    .catch(undefined),
});
type Claims = z.infer<typeof Claims>;

/** Loaded when it is first needed: most installations have no provider. */
const library = () => import('openid-client');

export function openOidc(deps: Deps): Oidc {
  const { db, clock, ids, attempts, sealing, sessions, oidc, origin } = deps;
  // Strangers can make the answers up that are logged.
  const log = throttledLog(deps.log, clock);
  const redirectUri = `${origin}/oidc`;
  const provider = openProvider(deps);
  return {
    isConfigured: oidc !== undefined,
    begin: async () => {
      const settings = assertConfigured(oidc);
      const { buildAuthorizationUrl, calculatePKCECodeChallenge } = await library();
      const config = await provider(settings);
      const state = ids.secret(SECRET_BYTES);
      const nonce = ids.secret(SECRET_BYTES);
      const verifier = ids.secret(SECRET_BYTES);
      const url = buildAuthorizationUrl(config, {
        redirect_uri: redirectUri,
        scope: 'openid email',
        state,
        nonce,
        code_challenge: await calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      });
      const login: Login = { state, nonce, verifier, expires_ms: clock.now() + LOGIN_MS };
      return { url: url.href, login: sealing.seal(PLACE, JSON.stringify(login)) };
    },
    finish: async ({ login: sealed, query }, visitor) => {
      const settings = assertConfigured(oidc);
      const login = readLogin(sealed, sealing);
      if (login === undefined || login.expires_ms <= clock.now())
        return failField('login', 'must be that of POST /v1/auth/oidc/begin, not older than ten minutes');
      const { authorizationCodeGrant } = await library();
      const config = await provider(settings);
      const claims = await attempts.asking(visitor.clientIp, async () => {
        // The login is used up before the provider is asked, so one login asks it once.
        const isNew = await db.tx('users.use_oidc_login', (tx) =>
          credentials.useChallenge(tx, `oidc ${login.state}`, login.expires_ms),
        );
        if (!isNew) return failLogin();
        const tokens = await authorizationCodeGrant(config, new URL(`${redirectUri}?${query}`), {
          expectedState: login.state,
          expectedNonce: login.nonce,
          pkceCodeVerifier: login.verifier,
          idTokenExpected: true,
        }).catch((error: unknown) => failGrant(error, { settings, log, clientIp: visitor.clientIp }));
        return Claims.safeParse(tokens.claims()).data ?? failLogin();
      });
      assertSubject(claims, settings, log);
      const { userId } = await personOf(db.read, claims, deps);
      return db.tx('users.oidc_sign_in', async (tx) => {
        await tx.lock('user', userId);
        // The link may have ended meanwhile, or the address may have got another account.
        const person = await personOf(tx, claims, deps);
        if (person.userId !== userId) failLogin();
        if (!person.isLinked) await assertOwn(tx, { userId, visitor }, deps);
        await credentials.insertCredential(tx, linkOf(userId, claims, deps));
        return sessions.begin(tx, { userId, visitor, isStrong: false, method: 'OpenID' });
      });
    },
  };
}

/** What the provider says about itself. All share one request for it. @throws ServiceError `unavailable` */
function openProvider({ clock, log }: Deps): (settings: OidcSettings) => Promise<Configuration> {
  let known: { config: Promise<Configuration>; untilMs: number } | undefined;
  const discover = async ({ issuer, clientId, clientSecret }: OidcSettings): Promise<Configuration> => {
    const { discovery, allowInsecureRequests, customFetch } = await library();
    // The configuration allows plain HTTP for a provider on this machine only.
    const execute = issuer.startsWith('http:') ? [allowInsecureRequests] : [];
    const options = { execute, timeout: STEP_SECONDS_MAX, [customFetch]: boundedFetch };
    return discovery(new URL(issuer), clientId, clientSecret, undefined, options).catch((error: unknown) => {
      known = undefined;
      return failAway(error, issuer, log);
    });
  };
  return (settings) => {
    const nowMs = clock.monotonicMs();
    if (known === undefined || known.untilMs <= nowMs)
      known = { config: discover(settings), untilMs: nowMs + KNOWN_MS };
    return known.config;
  };
}

/**
 * The library would read answers of any length. The bytes are counted after they are unpacked, so a small answer cannot become a long one.
 * @throws TypeError, as `fetch` does
 */
async function boundedFetch(url: string, options: CustomFetchOptions): Promise<Response> {
  const answer = await fetch(url, options as RequestInit);
  if (answer.body === null) return answer;
  const read = await readBytes(answer.body, ANSWER_BYTES_MAX + 1);
  if (read.length > ANSWER_BYTES_MAX) throw new TypeError(`an answer is longer than ${ANSWER_BYTES_MAX} bytes`);
  return new Response(read, answer);
}

/** Says why there are no tokens. @throws ServiceError `access_denied`, `unavailable`, `sign_in_failed` */
async function failGrant(
  error: unknown,
  { settings: { issuer }, log, clientIp }: { settings: OidcSettings; log: Log; clientIp: string },
): Promise<never> {
  const { AuthorizationResponseError } = await library();
  const refusal = error instanceof AuthorizationResponseError ? error.error : undefined;
  if (isAway(error) || refusal === 'server_error' || refusal === 'temporarily_unavailable')
    return failAway(error, issuer, log);
  const reason = (refusal ?? messageOf(error)).slice(0, REASON_CHARS_LOGGED);
  log.info({ issuer, client_ip: clientIp, reason }, 'a sign-in through the OpenID provider failed');
  if (refusal === undefined) return failLogin();
  return fail(
    'access_denied',
    'The OpenID provider did not sign you in: you have cancelled, or it has refused. Begin again, or sign in another way.',
  );
}

/** The connection failed, took too long or broke off, or the provider has answered with a failure of its own. */
function isAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // Only what `fetch` throws has no code.
  if (error instanceof TypeError) return codeOf(error) === undefined;
  return codeOf(error) === 'OAUTH_TIMEOUT' || (error.cause instanceof Response && error.cause.status >= 500);
}

function failAway(error: unknown, issuer: string, log: Log): never {
  log.warn({ issuer, reason: messageOf(error) }, 'the OpenID provider does not answer');
  return fail('unavailable', {
    detail: 'The OpenID provider does not answer. Try again later.',
    retryAfterSeconds: 30,
  });
}

function failLogin(): never {
  return fail('sign_in_failed', 'This sign-in through the OpenID provider is not valid, or was used. Begin again.');
}

/** The id of a person at the provider is stored, and OpenID allows nothing else. @throws ServiceError `access_denied` */
function assertSubject({ sub }: Claims, { issuer }: OidcSettings, log: Log): void {
  if (/^[\x20-\x7e]{1,255}$/.test(sub)) return;
  const chars = sub.length;
  log.warn({ issuer, chars }, 'the OpenID provider names a person by an id that OpenID does not allow');
  fail(
    'access_denied',
    'The OpenID provider knows you by an id that OpenID does not allow: it must have at most 255 ASCII characters. Tell the operator, or sign in another way.',
  );
}

/** @throws ServiceError `not_found` without a provider */
function assertConfigured(oidc: OidcSettings | undefined): OidcSettings {
  return oidc ?? fail('not_found', 'This installation has no OpenID provider. Sign in with a password or a passkey.');
}

/** The settings of the provider in the configuration. */
export const OidcProvider = z.strictObject({
  /** Plain HTTP is for a provider on this machine only. */
  issuer: z
    .url({ protocol: /^https?$/, error: 'must be a URL like https://login.example.com' })
    .regex(/^(https:|http:\/\/(localhost|127\.0\.0\.1)(:|\/|$))/, 'must begin with https:'),
  client_id: z.string().min(1),
  client_secret_file: z.string().startsWith('/', 'must be an absolute path'),
});

/** Undefined if there is no provider. `read` reads a file of a setting. */
export function oidcSettings(
  provider: z.infer<typeof OidcProvider> | undefined,
  read: (setting: string, file: string) => string,
): OidcSettings | undefined {
  if (provider === undefined) return undefined;
  const { issuer, client_id: clientId, client_secret_file: file } = provider;
  return { issuer, clientId, clientSecret: read('oidc.client_secret_file', file).trim() };
}

/**
 * The account of the person: the account that is linked with the person at the provider, or else the account with the verified e-mail
 * address. @throws ServiceError `sign_up_closed` if there is neither
 */
async function personOf(query: Query, claims: Claims, deps: Deps): Promise<{ userId: string; isLinked: boolean }> {
  const linked = await credentials.credentialWith(query, externalIdOf(claims, deps));
  if (linked !== undefined) return { userId: linked.user_id, isLinked: true };
  const { email, email_verified: isVerified } = claims;
  const user = isVerified === true && email !== undefined ? await userWithEmail(query, email) : undefined;
  if (user !== undefined) return { userId: user.id, isLinked: false };
  return fail('sign_up_closed', 'There is no account with your verified e-mail address. Ask for an invitation first.');
}

/**
 * Refuses a link with an account that may be somebody else's. A stranger may sign up with the address of another person, who would then get into an
 * account that the stranger has too. A provider may also give the address of a person who has left to a new one. So a link needs one of two things:
 * the browser is signed in to the account; or the operator has given the account to its person, and nobody else at the provider is linked with it.
 * @throws ServiceError `conflict`
 */
async function assertOwn(
  tx: Tx,
  { userId, visitor: { sessionToken } }: { userId: string; visitor: Visitor },
  deps: Deps,
): Promise<void> {
  const isVouched = (await findUser(tx, userId))?.is_vouched === true;
  const isFree = !(await credentials.credentialsOf(tx, userId, 'oidc')).some((link) => isOfProvider(link, deps));
  if (isVouched && isFree) return;
  const session =
    sessionToken === undefined ? undefined : await sessionWithToken(tx, hashOf(sessionToken), deps.clock.now());
  if (session?.user_id === userId) return;
  const doubt = isFree
    ? 'Somebody has made an account with your address here. If it was you'
    : 'The account with your address here is linked with somebody else at the OpenID provider. If it is yours';
  fail(
    'conflict',
    `${doubt}, sign in to it in this browser, and link single sign-on under Sign-in and security. If not, ask the operator for a link to it.`,
  );
}

function isOfProvider({ external_id: externalId }: credentials.CredentialRow, deps: Deps): boolean {
  return externalId?.startsWith(externalIdOf({ sub: '' }, deps)) === true;
}

/** The row that links an account with the person at the provider. It is inserted at each sign-in, and ignored from the second one on. */
function linkOf(userId: string, claims: Claims, deps: Deps): Parameters<typeof credentials.insertCredential>[1] {
  const nowMs = deps.clock.now();
  return {
    id: deps.ids.prefixed('cred'),
    user_id: userId,
    kind: 'oidc',
    name: 'OpenID provider',
    external_id: externalIdOf(claims, deps),
    secret: '',
    counter: 0,
    transports: [],
    confirmed_ms: nowMs,
    created_ms: nowMs,
  };
}

function externalIdOf({ sub }: Pick<Claims, 'sub'>, { oidc }: Deps): string {
  return `${oidc?.issuer ?? ''} ${sub}`;
}

function readLogin(sealed: string, sealing: Sealing): Login | undefined {
  try {
    return Login.parse(JSON.parse(sealing.open(PLACE, sealed)));
  } catch {
    return undefined;
  }
}
