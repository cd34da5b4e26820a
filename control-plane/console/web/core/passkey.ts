// Passkeys of the browser. The library is loaded when somebody uses one.
import type { StartAuthenticationOpts, StartRegistrationOpts } from '@simplewebauthn/browser';
import type { Session } from '../../../../shared/api/auth.ts';
import { ApiError, post } from './api.ts';
import { loaded } from './code.ts';

type Options = StartAuthenticationOpts['optionsJSON'];
type NewOptions = StartRegistrationOpts['optionsJSON'];

export const NEEDS_HOST_NAME = 'Passkeys need a host name, and this page is at an address.';

/** False at an IP address, for which browsers make no passkey. `hostname` is that of the page, with brackets around an IPv6 address. */
export function takesPasskeys(hostname: string): boolean {
  return !/^(\d+(\.\d+){3}|\[.*\])$/.test(hostname);
}

/** Asks for a signature with the person's passkey. @throws ApiError `passkey_failed` if the person or the browser cancels it */
export async function askPasskey(): Promise<unknown> {
  const { startAuthentication } = await loaded(import('@simplewebauthn/browser'));
  const optionsJSON = await post<Options>('/v1/auth/passkeys/options');
  return startAuthentication({ optionsJSON }).catch(ended);
}

/** @throws ApiError */
export async function signInWithPasskey(): Promise<Session> {
  return post<Session>('/v1/auth/passkeys/sign-in', { passkey: await askPasskey() });
}

/** Sets up a passkey. The answer has recovery codes if the person had none. @throws ApiError */
export async function addPasskey(name: string): Promise<{ recovery_codes: string[] }> {
  const { startRegistration } = await loaded(import('@simplewebauthn/browser'));
  const optionsJSON = await post<NewOptions>('/v1/auth/passkeys/registration');
  const passkey = await startRegistration({ optionsJSON }).catch(ended);
  return post('/v1/auth/passkeys', { name, passkey });
}

function ended(error: unknown): never {
  throw new ApiError(0, 'passkey_failed', reasonOf(error));
}

function reasonOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'ERROR_INVALID_DOMAIN') return `${NEEDS_HOST_NAME} Open it at its name, or use another way to sign in.`;
  return 'The browser gave no passkey. Try again, or use another way to sign in.';
}
