// The endpoints with which a person gets a session (our own paths): signing up, signing in, the OpenID provider of the operator, and the
// link of the operator.
import { SignIn as SignInBody, SignInMethods, SignUp, UseLink } from '../../../shared/api/auth.ts';
import { type Route, route } from '../http/route.ts';
import { sessionReply, sessionResponse, tag, visitorOf } from './replies.ts';
import type { Users } from './users.ts';
import { z } from 'zod';

const open = { method: 'POST', tag, scope: 'none', idempotency: 'none', signsIn: true } as const;

export function signInRoutes({ users }: { users: Users }): Route[] {
  const { people, signIn, sessions, oidc } = users;
  return [
    route({
      method: 'GET',
      path: '/v1/auth/methods',
      operationId: 'getSignInMethods',
      tag,
      summary: 'Show how people get an account and sign in here',
      scope: 'none',
      idempotency: 'none',
      responses: { 200: { description: 'What the operator has set up', schema: SignInMethods } },
      errors: [],
      handler: async () => ({
        status: 200,
        body: { sign_up: people.policy(), single_sign_on: oidc.isConfigured },
      }),
    }),
    route({
      ...open,
      path: '/v1/auth/sign-up',
      operationId: 'signUp',
      summary: 'Make an account and a new organisation',
      description:
        'This works only if the operator allows everybody to make an account. Until money is added to its balance for the first time, the organisation can only read.',
      body: SignUp,
      responses: { 201: sessionResponse },
      errors: ['sign_up_closed', 'conflict', 'unavailable'],
      handler: async (call) => {
        const { org_name: orgName, ...person } = call.body;
        return sessionReply(sessions, await people.signUp({ ...person, orgName }, visitorOf(call)), 201);
      },
    }),
    route({
      ...open,
      path: '/v1/auth/sign-in',
      operationId: 'signIn',
      summary: 'Sign in with a password',
      description:
        'A person with an authenticator app or a passkey also sends a code, or signs in with the passkey instead. An unknown address and a wrong password get the same answer.',
      body: SignInBody,
      responses: { 201: sessionResponse },
      errors: ['sign_in_failed', 'second_factor_required', 'unavailable'],
      handler: async (call) => sessionReply(sessions, await signIn.withPassword(call.body, visitorOf(call)), 201),
    }),
    route({
      ...open,
      path: '/v1/auth/link',
      operationId: 'useLink',
      summary: 'Set the password with a link of the operator',
      description:
        'The link works once. All other sessions, passkeys and codes of the person end, all API keys that the person got from logins of programs, and the open invitations that the person has made.',
      body: UseLink,
      responses: { 201: sessionResponse },
      errors: ['not_found', 'unavailable'],
      handler: async (call) => {
        const { token, password } = call.body;
        return sessionReply(sessions, await people.useLink(token, password, visitorOf(call)), 201);
      },
    }),
  ];
}

const Begun = z
  .strictObject({
    url: z.string().describe('The browser goes to this address'),
    login: z.string().describe('Keep it in the browser for POST /v1/auth/oidc/finish'),
  })
  .meta({ id: 'OidcBegun' });

const Finish = z
  .strictObject({
    login: z.string().min(1).max(1024).describe('The `login` from the answer of POST /v1/auth/oidc/begin'),
    query: z
      .string()
      .min(1)
      .max(4096)
      .describe('What the provider has added to the address of the page /oidc, after the `?`'),
  })
  .meta({ id: 'OidcFinish' });

export function oidcRoutes({ users: { oidc, sessions } }: { users: Users }): Route[] {
  return [
    route({
      ...open,
      path: '/v1/auth/oidc/begin',
      operationId: 'beginOidc',
      summary: 'Begin to sign in through the OpenID provider',
      description: 'This works only if the operator has configured a provider.',
      responses: { 200: { description: 'Where to go', schema: Begun } },
      errors: ['not_found', 'unavailable'],
      handler: async () => ({ status: 200, headers: { 'cache-control': 'no-store' }, body: await oidc.begin() }),
    }),
    route({
      ...open,
      path: '/v1/auth/oidc/finish',
      operationId: 'finishOidc',
      summary: 'Sign in with the answer of the OpenID provider',
      description:
        'At the first sign-in, the existing account with the address that the provider has verified is linked, if the operator has given it to its person and nobody else at the provider is linked with it, or if the browser is signed in to it. Signing in creates no account. It does not count as a second factor, so operators still confirm with their second factor.',
      body: Finish,
      responses: { 201: sessionResponse },
      errors: ['not_found', 'access_denied', 'sign_in_failed', 'sign_up_closed', 'conflict', 'unavailable'],
      handler: async (call) => sessionReply(sessions, await oidc.finish(call.body, visitorOf(call)), 201),
    }),
  ];
}
