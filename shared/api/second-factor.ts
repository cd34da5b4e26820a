// The second factors of a person: an authenticator app, recovery codes and passkeys (our own paths).
import { z } from 'zod';
import { OrgName } from './account.ts';
import { PasskeyAnswer } from './auth.ts';

export const NewTotp = z
  .strictObject({
    secret: z.string().describe('The secret in base32, for people who type it'),
    uri: z.string().describe('The secret as an `otpauth://` address, for a QR code'),
  })
  .meta({ id: 'NewTotp' });

/** Body of POST /v1/auth/totp/confirm. */
export const ConfirmTotp = z
  .strictObject({ code: z.string().min(1).max(32).describe('The six digits that the app shows now') })
  .meta({ id: 'ConfirmTotp' });

export const RecoveryCodes = z
  .strictObject({
    recovery_codes: z.array(z.string()).describe('Each works once in place of a code of the authenticator app'),
  })
  .meta({ id: 'RecoveryCodes' });

/** Options for `navigator.credentials`, as `@simplewebauthn/browser` takes them. */
export const PasskeyOptions = z.looseObject({
  challenge: z.string().describe('What the authenticator signs; valid for five minutes and once'),
});

export const Passkey = z
  .strictObject({
    id: z.string().describe('Identifies the passkey'),
    name: z.string().describe('Label of the passkey'),
    created_at: z.iso.datetime().describe('When it was set up'),
    last_used_at: z.iso.datetime().nullable().describe('When somebody last signed in with it; null: never'),
  })
  .meta({ id: 'Passkey' });
export type Passkey = z.infer<typeof Passkey>;

/** Body of POST /v1/auth/passkeys. */
export const AddPasskey = z.strictObject({ name: OrgName.describe('Label of the passkey'), passkey: PasskeyAnswer });

/** Body of POST /v1/auth/passkeys/sign-in. */
export const PasskeySignIn = z.strictObject({ passkey: PasskeyAnswer });

export const NewPasskey = Passkey.extend({
  recovery_codes: z
    .array(z.string())
    .describe(
      'New recovery codes if the person had none, otherwise empty. They are shown once, and each code replaces a second factor once',
    ),
}).meta({ id: 'NewPasskey' });
