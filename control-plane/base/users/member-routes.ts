// The endpoints of the members of an organisation and of its invitations (our own paths).
import { z } from 'zod';
import {
  AcceptInvitation,
  ChangeMember,
  CreateInvitation,
  Invitation,
  JoinOrg,
  Member,
  NewInvitation,
  ShowInvitation,
  ShownInvitation,
} from '../../../shared/api/member.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../db/db.ts';
import { byCreation, type Cursors, type PageStart } from '../http/cursors.ts';
import { type Route, route } from '../http/route.ts';
import { invitationView } from './invitations.ts';
import { pageOfInvitations } from './link-store.ts';
import { memberView } from './members.ts';
import { sessionReply, sessionResponse, visitorOf } from './replies.ts';
import { type ListedMemberRow, pageOfMembers } from './store.ts';
import type { Users } from './users.ts';

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  users: Users;
}

const tag = 'Members';
const reads = { method: 'GET', tag, scope: 'members:read', idempotency: 'none', query: PageQuery } as const;
const UserId = z.strictObject({ user_id: z.string().describe('The id of the person') });
const InvitationId = z.strictObject({ id: z.string().describe('The id of the invitation, not its link') });

export function memberRoutes(deps: Deps): Route[] {
  return [...changeRoutes(deps), ...invitationRoutes(deps), ...acceptRoutes(deps)];
}

function changeRoutes({ db, cursors, users: { members } }: Deps): Route[] {
  const writes = { tag, scope: 'members:write', idempotency: 'none', stepUp: true, params: UserId } as const;
  const at = ({ created_ms: createdMs, user_id: id }: ListedMemberRow) => ({ createdMs, id });
  return [
    route({
      ...reads,
      path: '/v1/members',
      operationId: 'listMembers',
      summary: 'List the members of the organisation, newest first',
      responses: { 200: { description: 'A page of members', schema: pageSchema(Member) } },
      errors: [],
      handler: async ({ caller, query }) => {
        const rows = (start: PageStart) => pageOfMembers(db.read, caller.orgId, start);
        return {
          status: 200,
          body: await cursors.page(`members/${caller.orgId}`, query, rows, { at, show: memberView }),
        };
      },
    }),
    route({
      ...writes,
      method: 'PATCH',
      path: '/v1/members/{user_id}',
      operationId: 'changeMember',
      summary: 'Give a member another role',
      description:
        'The person may have API keys from logins of programs. Such a key ends if it may do more than the new role.',
      body: ChangeMember,
      responses: { 200: { description: 'The member', schema: Member } },
      errors: ['not_found', 'conflict'],
      handler: async ({ caller, params, body }) => ({
        status: 200,
        body: await members.change(caller, params.user_id, body.role),
      }),
    }),
    route({
      ...writes,
      method: 'DELETE',
      path: '/v1/members/{user_id}',
      operationId: 'removeMember',
      summary: 'Remove a member from the organisation',
      description:
        'The sessions of the person lose the organisation at once. API keys that the person got from logins of programs end.',
      responses: { 204: { description: 'The person is no member any more' } },
      errors: ['not_found', 'conflict'],
      handler: async ({ caller, params }) => {
        await members.remove(caller, params.user_id);
        return { status: 204 };
      },
    }),
    route({
      tag,
      method: 'POST',
      path: '/v1/members/leave',
      operationId: 'leaveOrg',
      summary: 'Leave the organisation of the session',
      scope: 'session',
      idempotency: 'none',
      stepUp: true,
      responses: { 204: { description: 'You are no member any more' } },
      errors: ['not_found', 'conflict'],
      handler: async ({ caller }) => {
        await members.remove(caller, caller.session.userId);
        return { status: 204 };
      },
    }),
  ];
}

function invitationRoutes({ db, clock, cursors, users: { invitations } }: Deps): Route[] {
  const writes = { tag, scope: 'members:write', stepUp: true } as const;
  return [
    route({
      ...reads,
      path: '/v1/invitations',
      operationId: 'listInvitations',
      summary: 'List the invitations that can still be accepted, newest first',
      responses: { 200: { description: 'A page of invitations', schema: pageSchema(Invitation) } },
      errors: [],
      handler: async ({ caller: { orgId }, query }) => {
        const rows = (start: PageStart) => pageOfInvitations(db.read, { orgId, nowMs: clock.now() }, start);
        const view = { at: byCreation, show: invitationView };
        return { status: 200, body: await cursors.page(`invitations/${orgId}`, query, rows, view) };
      },
    }),
    route({
      ...writes,
      method: 'POST',
      path: '/v1/invitations',
      operationId: 'createInvitation',
      summary: 'Invite somebody to the organisation',
      description:
        'The answer has a link, which works once and for seven days. If the operator has a mail server, the link is also mailed to `email`: an organisation tries this at most 100 times a day, and an address gets at most three such mails. `mailed` says whether the mail server has taken the mail. You cannot give a role that may do more than you may do.',
      idempotency: 'optional',
      secretReply: true,
      body: CreateInvitation,
      responses: { 201: { description: 'The invitation with its link, shown once', schema: NewInvitation } },
      errors: ['conflict'],
      handler: async ({ caller, body, settle }) => {
        const { orgId } = caller;
        const made = await db.tx('users.invite', async (tx) => {
          await tx.lock('org', orgId);
          const reply = { status: 201, body: await invitations.create(tx, caller, body) };
          if (!reply.body.mailed) await settle(tx, reply);
          return reply;
        });
        if (!made.body.mailed) return made;
        // The answer says whether the mail has left, so it is stored later than the invitation. If this process dies in between, the
        // same request invites again, and mails that link. The first invitation stays in the list.
        const reply = { status: 201, body: await invitations.mail(made.body, orgId) };
        await db.tx('users.note_mail', async (tx) => {
          await tx.lock('org', orgId);
          await invitations.noteMail(tx, reply.body);
          await settle(tx, reply);
        });
        return reply;
      },
    }),
    route({
      ...writes,
      method: 'DELETE',
      path: '/v1/invitations/{id}',
      operationId: 'revokeInvitation',
      summary: 'Revoke an invitation',
      idempotency: 'none',
      params: InvitationId,
      responses: { 204: { description: 'The link of the invitation no longer works' } },
      errors: ['not_found'],
      handler: async ({ caller, params }) => {
        const gone = await db.tx('users.revoke_invitation', async (tx) => {
          await tx.lock('org', caller.orgId);
          return invitations.revoke(tx, caller, params.id);
        });
        return gone ? { status: 204 } : fail('not_found', `There is no invitation ${params.id}, or it was accepted.`);
      },
    }),
  ];
}

function acceptRoutes({ users: { invitations, sessions } }: Deps): Route[] {
  return [
    route({
      tag,
      method: 'POST',
      path: '/v1/invitations/show',
      operationId: 'showInvitation',
      summary: 'Show what an invitation is for, before it is accepted',
      description: 'For the person who has the link. It changes nothing, and the link works afterwards too.',
      scope: 'none',
      idempotency: 'none',
      body: ShowInvitation,
      responses: { 200: { description: 'The organisation, the role, and who has invited', schema: ShownInvitation } },
      errors: ['not_found'],
      handler: async ({ body }) => ({ status: 200, body: await invitations.show(body.token) }),
    }),
    route({
      tag,
      method: 'POST',
      path: '/v1/invitations/accept',
      operationId: 'acceptInvitation',
      summary: 'Make an account with an invitation',
      description:
        'For people without an account. People who have an account sign in, and join with POST /v1/invitations/join.',
      scope: 'none',
      signsIn: true,
      idempotency: 'none',
      body: AcceptInvitation,
      responses: { 201: sessionResponse },
      errors: ['not_found', 'conflict', 'sign_up_closed', 'unavailable'],
      handler: async (call) => {
        const { token, ...person } = call.body;
        return sessionReply(sessions, await invitations.accept(token, person, visitorOf(call)), 201);
      },
    }),
    route({
      tag,
      method: 'POST',
      path: '/v1/invitations/join',
      operationId: 'joinOrg',
      summary: 'Join an organisation with an invitation',
      scope: 'session',
      idempotency: 'none',
      body: JoinOrg,
      responses: { 200: sessionResponse },
      errors: ['not_found', 'conflict'],
      handler: async (call) => {
        const orgId = await invitations.join(call.body.token, call.caller);
        return sessionReply(sessions, await sessions.switchOrg(call.caller, orgId, visitorOf(call)));
      },
    }),
  ];
}
