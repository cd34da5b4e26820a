// Logins for private images (specification 4.9). The password is written once and never shown.
import { z } from 'zod';
import { REGISTRY_PASSWORD_CHARS_MAX } from '../limits.ts';
import { label } from './label.ts';

const Name = label(255);

export const RegistryCredential = z
  .strictObject({
    id: z.string().describe('Identifies the credential. A launch names it as `registry_credential_id`'),
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
      .describe(
        'The registry: `host` or `host:port`, as in the names of its images. Every spelling of Docker Hub is stored as `docker.io`',
      ),
    username: Name.regex(/^[^:]*$/, 'must not contain a colon').describe('Who logs in'),
    password: z
      .string()
      .min(1)
      .max(REGISTRY_PASSWORD_CHARS_MAX)
      .describe(
        'Password or access token. It is stored encrypted, never shown, and sent to its registry. Hosts get a short-lived token for the one image ' +
          'that they pull. If a registry supports no tokens (HTTP Basic), hosts get this login itself, so use a read-only login',
      ),
  })
  .meta({ id: 'RegistryCredentialCreate' });
export type RegistryCredentialCreate = z.infer<typeof RegistryCredentialCreate>;
