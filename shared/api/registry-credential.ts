// Logins for private images (specification 4.9). The password is written once and never shown.
import { z } from 'zod';
import { REGISTRY_PASSWORD_CHARS_MAX } from '../limits.ts';

const Name = z
  .string()
  .min(1)
  .max(255)
  .regex(/^\P{Cc}*$/u, 'must not contain control characters');

export const RegistryCredential = z
  .strictObject({
    id: z.string().describe('Identifies the credential: the `registry_credential_id` of a launch'),
    name: z.string().describe('Label of the credential'),
    registry: z.string().describe('`host` or `host:port`; `docker.io` for Docker Hub'),
    username: z.string().describe('Who logs in'),
    created_at: z.iso.datetime().describe('When it was stored'),
  })
  .meta({ id: 'RegistryCredential' });
export type RegistryCredential = z.infer<typeof RegistryCredential>;

export const RegistryCredentialCreate = z
  .strictObject({
    name: Name.describe('Label of the credential; need not be unique'),
    registry: z
      .string()
      .min(1)
      .max(255)
      .describe('`host` or `host:port` as in the names of its images; every spelling of Docker Hub is `docker.io`'),
    username: Name.regex(/^[^:]*$/, 'must not contain a colon').describe('Who logs in'),
    password: z
      .string()
      .min(1)
      .max(REGISTRY_PASSWORD_CHARS_MAX)
      .describe(
        'Password or access token; sealed at rest, never shown, and sent to its registry. Hosts get a short token for the one image ' +
          'that they pull; only where a registry knows no tokens (HTTP Basic) do they get this login itself, so use a read-only one',
      ),
  })
  .meta({ id: 'RegistryCredentialCreate' });
export type RegistryCredentialCreate = z.infer<typeof RegistryCredentialCreate>;
