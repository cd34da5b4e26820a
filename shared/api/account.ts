// An organisation, and its keys as callers see them: API keys (never the key itself, which is shown once when it is made) and SSH public keys
// (specification 2.5).
import { z } from 'zod';
import { label } from './label.ts';

const Label = label(255);

export const OrgName = Label;

export const Org = z
  .strictObject({
    id: z.string().describe('Identifies the organisation'),
    name: z.string().describe('Its name'),
    created_at: z.iso.datetime().describe('When it was made'),
    suspended_at: z.iso
      .datetime()
      .nullable()
      .describe(
        'Time since which the operator has suspended it. It can read, export and delete, but start nothing that costs money. Null if it is not suspended',
      ),
    suspended_reason: z.string().nullable().describe('Why the operator has suspended it; null if it is not suspended'),
  })
  .meta({ id: 'Organisation' });
export type Org = z.infer<typeof Org>;

const SCOPES_MAX = 64;

export const ApiKey = z
  .strictObject({
    id: z.string().describe('Identifies the key; it is no secret'),
    org_id: z.string().describe('The organisation that the key acts for'),
    name: z.string().describe('Label of the key'),
    prefix: z.string().describe('The first characters of the key, to tell keys apart'),
    scopes: z.array(z.string()).describe('What the key may do'),
    created_at: z.iso.datetime().describe('When it was made'),
    expires_at: z.iso
      .datetime()
      .nullable()
      .describe('Time from which the key is refused. Null if the key does not expire'),
    last_used_at: z.iso.datetime().nullable().describe('Last request with it, exact to a minute; null: never used'),
    revoked_at: z.iso
      .datetime()
      .nullable()
      .describe('Time since which the key is refused. Null if the key was not revoked'),
  })
  .meta({ id: 'ApiKey' });
export type ApiKey = z.infer<typeof ApiKey>;

/** The answer to the creation of an API key. */
export const NewApiKey = ApiKey.extend({
  key: z.string().describe('The key itself: `svc_live_` and 43 characters. Shown exactly once'),
}).meta({ id: 'NewApiKey' });
export type NewApiKey = z.infer<typeof NewApiKey>;

/** Body of POST /v1/api-keys. */
export const CreateApiKey = z
  .strictObject({
    name: Label.describe('Label of the key'),
    scopes: z
      .array(z.string().min(1).max(64))
      .min(1)
      .max(SCOPES_MAX)
      .describe('What the key may do, like `instances: read`. It cannot be more than the calling key may do'),
    expires_at: z.iso
      .datetime({ offset: true })
      .optional()
      .describe(
        'Time at which the key ends. If it is left out, the key ends together with the calling key, or never if that key does not end. It must not be after the end of the calling key',
      ),
  })
  .meta({ id: 'CreateApiKey' });

/** A 16,384-bit RSA key, the largest that OpenSSH makes, is below 3 KiB in base64; a comment may follow. */
const PUBLIC_KEY_CHARS_MAX = 8 * 1024;

export const SshKey = z
  .strictObject({
    id: z.string().describe('Identifies the key'),
    name: z.string().describe('Label of the key'),
    fingerprint: z.string().describe('`SHA256:` and the unpadded base64 digest, as `ssh-keygen -l` prints it'),
    created_at: z.iso.datetime().describe('When it was registered'),
  })
  .meta({ id: 'SshKey' });
export type SshKey = z.infer<typeof SshKey>;

export const SshKeyCreate = z
  .strictObject({
    name: Label.describe('Label of the key'),
    public_key: z
      .string()
      .min(1)
      .max(PUBLIC_KEY_CHARS_MAX)
      .describe(
        'One line in OpenSSH format: ssh-ed25519, ecdsa-sha2-nistp256/384/521 or ssh-rsa of at least 2048 bits',
      ),
  })
  .meta({ id: 'SshKeyCreate' });
export type SshKeyCreate = z.infer<typeof SshKeyCreate>;
