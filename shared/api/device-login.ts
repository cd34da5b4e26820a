// How a program on somebody's machine gets an API key that the person approves in a browser (RFC 8628; the paths are our own).
import { z } from 'zod';
import { NewApiKey, OrgName } from './account.ts';

const SCOPES_MAX = 64;
/** The letters of a code. Vowels and Y are left out, so that no code is a word. */
export const USER_CODE_LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';
export const USER_CODE_CHARS = 8;

/** Body of POST /v1/auth/device. */
export const BeginDeviceLogin = z
  .strictObject({
    host: OrgName.max(100).describe('The name of the machine, which the person sees'),
    scopes: z
      .array(z.string().min(1).max(64))
      .min(1)
      .max(SCOPES_MAX)
      .describe('What the key will be able to do, like `instances: read`. What the person may not do is left out'),
  })
  .meta({ id: 'BeginDeviceLogin' });

export const DeviceCodes = z
  .strictObject({
    device_code: z.string().describe('The code for POST /v1/auth/device/token. The program must keep it secret'),
    user_code: z.string().describe('What the person types, like `BCDF-GHJK`'),
    verification_uri: z.string().describe('Where the person types it'),
    verification_uri_complete: z
      .string()
      .describe('`verification_uri` with the code filled in. The person still has to approve the login'),
    expires_in: z.int().describe('Seconds until both codes end'),
    interval: z.int().describe('Seconds to wait between two requests for the key'),
  })
  .meta({ id: 'DeviceCodes' });

/** Body of POST /v1/auth/device/token. */
export const DeviceToken = z
  .strictObject({
    device_code: z.string().min(1).max(128).describe('The `device_code` from the answer of POST /v1/auth/device'),
  })
  .meta({ id: 'DeviceToken' });

/** The answer with the key. `access_token` is the name that OAuth gives it. */
export const DeviceKey = z
  .strictObject({
    access_token: z.string().describe('The API key, `svc_live_...`. Shown exactly once'),
    token_type: z.literal('Bearer').describe('How to send it'),
    expires_in: z.int().describe('Seconds until the key ends'),
    scope: z.string().describe('What the key may do, separated by commas'),
    api_key: NewApiKey.omit({ key: true }).describe('The key as GET /v1/api-keys shows it'),
  })
  .meta({ id: 'DeviceKey' });

/** A refusal of POST /v1/auth/device/token (RFC 6749, section 5.2). */
export const OauthError = z
  .strictObject({
    error: z.string().describe('Stable identifier of the error, for programs'),
    error_description: z.string().describe('For people: what to do next'),
  })
  .meta({ id: 'OauthError' });
export type OauthError = z.infer<typeof OauthError>;

/** Whether refusals of this path are sent in the form of OAuth. */
export function isOauthPath(path: string): boolean {
  return path === '/v1/auth/device/token';
}

export const DeviceLogin = z
  .strictObject({
    host: z.string().describe('The name that the machine gives itself. Nobody has checked it'),
    client_ip: z.string().describe('The address from which the program asks'),
    scopes: z.array(z.string()).describe('What the key will be able to do'),
    withheld_scopes: z
      .array(z.string())
      .describe('What the program asks for too, but the person may not do. The key will not be able to do it'),
    org: z
      .strictObject({ id: z.string().describe('Its id'), name: z.string().describe('Its name') })
      .describe('The organisation of the session. The key will act for it'),
    created_at: z.iso.datetime().describe('When the program asked'),
    expires_at: z.iso.datetime().describe('When the code ends'),
  })
  .meta({ id: 'DeviceLogin' });
export type DeviceLogin = z.infer<typeof DeviceLogin>;
