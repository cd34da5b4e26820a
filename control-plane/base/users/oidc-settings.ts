// The part of the configuration about the OpenID provider.
import { z } from 'zod';
import type { OidcSettings } from './oidc.ts';

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
