// SSH public keys as the API shows them (specification 2.5).
import { z } from 'zod';

/** A 16,384-bit RSA key, the largest that OpenSSH makes, is below 3 KiB in base64; a comment may follow. */
const PUBLIC_KEY_CHARS_MAX = 8 * 1024;

/** A label that people give: one line. */
const Label = z
  .string()
  .min(1)
  .max(255)
  .regex(/^\P{Cc}*$/u, 'must not contain control characters');

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
