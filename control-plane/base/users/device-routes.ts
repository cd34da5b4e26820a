// The endpoints of device logins (RFC 8628): two for the program, three for the person who decides.
import { z } from 'zod';
import {
  BeginDeviceLogin,
  DeviceCodes,
  DeviceKey,
  DeviceLogin,
  DeviceToken,
} from '../../../shared/api/device-login.ts';
import type { Clock } from '../../../shared/clock.ts';
import { type Route, route } from '../http/route.ts';
import { tag } from './replies.ts';
import type { Users } from './users.ts';

interface Deps {
  clock: Clock;
  users: Users;
}

const program = { method: 'POST', tag, scope: 'none', idempotency: 'none' } as const;
const person = {
  tag,
  scope: 'session',
  idempotency: 'none',
  params: z.strictObject({ user_code: z.string().describe('The code that the program shows, in any spelling') }),
} as const;
const NO_STORE = { 'cache-control': 'no-store' };

export function deviceRoutes(deps: Deps): Route[] {
  return [...programRoutes(deps), ...personRoutes(deps)];
}

function programRoutes({ clock, users: { deviceLogins } }: Deps): Route[] {
  return [
    route({
      ...program,
      path: '/v1/auth/device',
      operationId: 'beginDeviceLogin',
      summary: 'Begin to log a program in',
      description:
        'Show the code and the address to the person. Then repeat POST /v1/auth/device/token until the login is approved.',
      body: BeginDeviceLogin,
      responses: { 200: { description: 'The codes, which end after ten minutes', schema: DeviceCodes } },
      errors: ['unavailable'],
      handler: async ({ body, clientIp }) => ({
        status: 200,
        headers: NO_STORE,
        body: await deviceLogins.begin(body, clientIp),
      }),
    }),
    route({
      ...program,
      path: '/v1/auth/device/token',
      operationId: 'redeemDeviceLogin',
      summary: 'Fetch the API key of an approved login',
      description:
        'Refusals have the form of RFC 6749: `authorization_pending` until the person has decided, `slow_down` if the program asks too often, `access_denied`, and `expired_token`. The key has the name `cli@<host>` and is valid for 90 days. Only one answer contains the key.',
      body: DeviceToken,
      responses: { 200: { description: 'The key, shown once', schema: DeviceKey } },
      errors: ['authorization_pending', 'slow_down', 'access_denied', 'expired_token', 'conflict'],
      handler: async ({ body }) => {
        const { key, ...apiKey } = await deviceLogins.redeem(body.device_code);
        const expiresIn = Math.floor((Date.parse(apiKey.expires_at ?? '') - clock.now()) / 1000);
        const answer = {
          access_token: key,
          token_type: 'Bearer',
          expires_in: expiresIn,
          scope: apiKey.scopes.join(', '),
        };
        return { status: 200, headers: NO_STORE, body: { ...answer, api_key: apiKey } };
      },
    }),
  ];
}

function personRoutes({ users: { deviceLogins } }: Deps): Route[] {
  return [
    route({
      ...person,
      method: 'GET',
      path: '/v1/auth/device/{user_code}',
      operationId: 'getDeviceLogin',
      summary: 'Show what the program with this code asks for',
      description: 'Reading it approves nothing.',
      responses: { 200: { description: 'The login', schema: DeviceLogin } },
      errors: ['not_found'],
      handler: async ({ caller, params }) => ({
        status: 200,
        body: await deviceLogins.show(caller, params.user_code),
      }),
    }),
    route({
      ...person,
      method: 'POST',
      path: '/v1/auth/device/{user_code}/approve',
      operationId: 'approveDeviceLogin',
      summary: 'Approve the API key for the program',
      description:
        'The key acts for the organisation of the session. It can do what the program asks for, as far as the person may do it (`scopes` of GET /v1/auth/device/{user_code}). It ends when the person may no longer do what the key may do, and when the person gets a new password by a link of the operator. If the session ends before the program fetches the key, the program gets none.',
      stepUp: true,
      responses: { 204: { description: 'The program can fetch the key' } },
      errors: ['not_found', 'insufficient_scope'],
      handler: async ({ caller, params }) => {
        await deviceLogins.approve(caller, params.user_code);
        return { status: 204 };
      },
    }),
    route({
      ...person,
      method: 'POST',
      path: '/v1/auth/device/{user_code}/deny',
      operationId: 'denyDeviceLogin',
      summary: 'Refuse the program',
      endsSomething: true,
      responses: { 204: { description: 'The program gets no key' } },
      errors: ['not_found'],
      handler: async ({ caller, params }) => {
        await deviceLogins.deny(caller, params.user_code);
        return { status: 204 };
      },
    }),
  ];
}
