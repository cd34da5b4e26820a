// The endpoints of signing in through the OpenID provider of the operator (our own paths).
import { z } from 'zod';
import { type Route, route } from '../http/route.ts';
import { sessionReply, sessionResponse, tag, visitorOf } from './replies.ts';
import type { Users } from './users.ts';

const open = { method: 'POST', tag, scope: 'none', idempotency: 'none', signsIn: true } as const;

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
        'At the first sign-in, the existing account with the address that the provider has verified is linked. Signing in creates no account. It does not count as a second factor, so operators still confirm with their second factor.',
      body: Finish,
      responses: { 201: sessionResponse },
      errors: ['not_found', 'sign_in_failed', 'sign_up_closed', 'unavailable'],
      handler: async (call) => sessionReply(sessions, await oidc.finish(call.body, visitorOf(call)), 201),
    }),
  ];
}
