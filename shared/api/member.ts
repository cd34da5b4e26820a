// The people of an organisation and the invitations to it (our own paths).
import { z } from 'zod';
import { Email, LinkToken, NewPassword, PersonName, Role } from './auth.ts';

export const Member = z
  .strictObject({
    user_id: z.string().describe('Identifies the person'),
    email: z.string().describe('E-mail address'),
    name: z.string().describe('Name of the person'),
    role: Role,
    has_second_factor: z.boolean().describe('An authenticator app or a passkey is set up'),
    created_at: z.iso.datetime().describe('When the person became a member'),
  })
  .meta({ id: 'Member' });
export type Member = z.infer<typeof Member>;

export const ChangeMember = z.strictObject({ role: Role }).meta({ id: 'ChangeMember' });

/** Body of POST /v1/invitations. */
export const CreateInvitation = z
  .strictObject({
    role: Role.describe('The role of the person who accepts'),
    email: Email.optional().describe(
      'Only a person with this address can accept. If it is left out, everybody who has the link can accept',
    ),
  })
  .meta({ id: 'CreateInvitation' });

export const Invitation = z
  .strictObject({
    id: z.string().describe('Identifies the invitation; it is no secret'),
    role: Role,
    email: z
      .string()
      .nullable()
      .describe('The address of the person who can accept. Null if everybody who has the link can accept'),
    created_at: z.iso.datetime().describe('When it was made'),
    expires_at: z.iso.datetime().describe('It cannot be accepted from then on'),
  })
  .meta({ id: 'Invitation' });
export type Invitation = z.infer<typeof Invitation>;

export const NewInvitation = Invitation.extend({
  url: z.string().describe('The link to send to the person. It works once, and is shown exactly once'),
  mailed: z
    .boolean()
    .describe(
      'The link is also sent to `email`. If false, send it yourself: no address was given, there is no mail server, the mail server did not take it, or too many invitations were mailed today',
    ),
}).meta({ id: 'NewInvitation' });
export type NewInvitation = z.infer<typeof NewInvitation>;

/** Body of POST /v1/invitations/show. */
export const ShowInvitation = z.strictObject({ token: LinkToken }).meta({ id: 'ShowInvitation' });

export const ShownInvitation = Invitation.pick({ role: true, email: true, expires_at: true })
  .extend({
    org_name: z.string().describe('Name of the organisation that the person would join'),
    invited_by: z
      .strictObject({
        name: z.string().describe('Name of the person'),
        email: z.string().describe('E-mail address of the person'),
      })
      .nullable()
      .describe('The person who has invited; null if it was a program with an API key that belongs to no person'),
  })
  .meta({ id: 'ShownInvitation' });
export type ShownInvitation = z.infer<typeof ShownInvitation>;

/** Body of POST /v1/invitations/accept. */
export const AcceptInvitation = z
  .strictObject({ token: LinkToken, email: Email, name: PersonName, password: NewPassword })
  .meta({ id: 'AcceptInvitation' });

/** Body of POST /v1/invitations/join. */
export const JoinOrg = z.strictObject({ token: LinkToken }).meta({ id: 'JoinOrg' });
