// What people send and see to sign in: sessions, second factors and passkeys (our own paths; the specification names a dashboard only).
import { z } from 'zod';
import { OrgName } from './account.ts';

export const Role = z.enum(['owner', 'member', 'billing', 'read-only']).describe('What a member may do');
export type Role = z.infer<typeof Role>;

const PASSWORD_CHARS_MIN = 12;
const PASSWORD_CHARS_MAX = 256;
const EMAIL_CHARS_MAX = 254;
const TOKEN_CHARS_MAX = 128;

/** E-mail addresses that differ only in upper and lower case are the same. */
export const Email = z.email().max(EMAIL_CHARS_MAX).toLowerCase().describe('E-mail address');
export const PersonName = OrgName.describe('Name of the person');
/** A new password. Long passwords need no rules about their characters (NIST SP 800-63B). */
export const NewPassword = z.string().min(PASSWORD_CHARS_MIN).max(PASSWORD_CHARS_MAX).describe('The password to set');
/** A password with which somebody tries to sign in. */
const Password = z.string().min(1).max(PASSWORD_CHARS_MAX).describe('The password');
const Code = z.string().min(6).max(32).describe('The six digits of the authenticator app, or a recovery code');
export const LinkToken = z.string().min(1).max(TOKEN_CHARS_MAX).describe('The part of the link after the `#`');

/** GET /v1/auth/methods. */
export const SignInMethods = z
  .strictObject({
    sign_up: z
      .enum(['open', 'invite', 'closed'])
      .describe(
        'open: everybody can make an account; invite: with an invitation; closed: only the operator makes them',
      ),
    single_sign_on: z.boolean().describe('The operator has an OpenID provider: see POST /v1/auth/oidc/begin'),
  })
  .meta({ id: 'SignInMethods' });
export type SignInMethods = z.infer<typeof SignInMethods>;

/** Body of POST /v1/auth/sign-up. */
export const SignUp = z
  .strictObject({
    email: Email,
    name: PersonName,
    password: NewPassword,
    org_name: OrgName.describe('Name of the new organisation'),
  })
  .meta({ id: 'SignUp' });

/** Body of POST /v1/auth/sign-in. */
export const SignIn = z
  .strictObject({ email: Email, password: Password, code: Code.optional() })
  .meta({ id: 'SignIn' });

/** Body of POST /v1/auth/link. */
export const UseLink = z.strictObject({ token: LinkToken, password: NewPassword }).meta({ id: 'UseLink' });

export const ChangePassword = z
  .strictObject({ current_password: Password, new_password: NewPassword })
  .meta({ id: 'ChangePassword' });

/** A person as the operator sees it. */
export const OperatorUser = z.strictObject({
  id: z.string(),
  email: z.string(),
  name: z.string(),
  is_operator: z.boolean(),
  has_second_factor: z.boolean(),
  blocked_at: z.iso.datetime().nullable(),
  /** The organisations of the person, each as `<organisation> (<role>)`. */
  orgs: z.array(z.string()),
  created_at: z.iso.datetime(),
});
export type OperatorUser = z.infer<typeof OperatorUser>;

const OrgOfSession = z.strictObject({
  id: z.string().describe('The organisation'),
  name: z.string().describe('Its name'),
  role: Role.describe('The role of the person in this organisation'),
});

export const Person = z
  .strictObject({
    id: z.string().describe('Identifies the person'),
    email: z.string().describe('E-mail address, in lower case'),
    name: z.string().describe('Name of the person'),
    is_operator: z.boolean().describe('The person operates this installation'),
  })
  .meta({ id: 'Person' });
export type Person = z.infer<typeof Person>;

export const Session = z
  .strictObject({
    id: z.string().describe('Identifies the session; it is no secret'),
    user: Person.describe('Who has signed in'),
    org: OrgOfSession.nullable().describe('The organisation that the session acts for; null: the person has none'),
    orgs: z.array(OrgOfSession).describe('All organisations of the person'),
    scopes: z.array(z.string()).describe('What the session may do'),
    has_password: z.boolean().describe('The person can sign in with a password'),
    has_totp: z.boolean().describe('An authenticator app is set up'),
    passkeys: z.int().describe('How many passkeys are set up'),
    recovery_codes_left: z.int().describe('How many recovery codes are unused'),
    must_enrol: z
      .boolean()
      .describe('True if the person operates this installation and still has to set up a second factor'),
    mail_notices: z
      .boolean()
      .describe('The person gets mails about what happens in its organisations, if the operator has a mail server'),
    created_at: z.iso.datetime().describe('When the person signed in'),
    confirmed_until: z.iso.datetime().describe('Until this time, the person need not confirm again'),
    expires_at: z.iso.datetime().describe('The session ends then; without requests for 12 hours it ends earlier'),
  })
  .meta({ id: 'Session' });
export type Session = z.infer<typeof Session>;

export const SessionEntry = z
  .strictObject({
    id: z.string().describe('Identifies the session'),
    client_ip: z.string().describe('The IP address from which the person signed in'),
    user_agent: z.string().describe('The browser in which the person signed in, as the browser describes itself'),
    is_current: z.boolean().describe('True for the session of this request'),
    created_at: z.iso.datetime().describe('When it began'),
    last_used_at: z.iso.datetime().describe('Its last request, exact to a minute'),
    expires_at: z.iso.datetime().describe('It ends then at the latest'),
  })
  .meta({ id: 'SessionEntry' });
export type SessionEntry = z.infer<typeof SessionEntry>;

/** Body of POST /v1/auth/notices. */
export const ChangeNotices = z
  .strictObject({ mail_notices: z.boolean().describe('False: no mail about what happens in the organisations') })
  .meta({ id: 'ChangeNotices' });

/** Body of POST /v1/auth/session/org. */
export const SwitchOrg = z.strictObject({
  org_id: z.string().min(1).max(64).describe('An organisation of the person'),
});

/** The answer of an authenticator, as `@simplewebauthn/browser` sends it. */
export const PasskeyAnswer = z
  .looseObject({
    id: z.string().max(2048).describe('The id of the passkey'),
    rawId: z.string().max(2048).describe('The same value as `id`'),
    type: z.literal('public-key').describe('The kind of the credential'),
    clientExtensionResults: z.looseObject({}).describe('The results of the WebAuthn extensions'),
    response: z
      .looseObject({ clientDataJSON: z.string().max(8192).describe('The data that the authenticator has signed') })
      .describe('The signature and what belongs to it'),
  })
  .describe('The answer of the authenticator, as `navigator.credentials` gives it, in JSON');
export type PasskeyAnswer = z.infer<typeof PasskeyAnswer>;

/** Body of POST /v1/auth/step-up: a password, a code or a passkey. */
export const StepUp = z
  .strictObject({
    password: Password.optional().describe('Only for people without a second factor'),
    code: Code.optional(),
    passkey: PasskeyAnswer.optional(),
  })
  .refine((given) => Object.values(given).filter((value) => value !== undefined).length === 1, {
    message: 'must have exactly one of password, code and passkey',
  });
