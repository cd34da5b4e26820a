// The operator's routes for people: adding them, giving them access again, and listing them.
import { z } from 'zod';
import { Email, OperatorUser, PersonName, Role } from '../../../shared/api/auth.ts';
import { Member } from '../../../shared/api/member.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import type { Db } from '../db/db.ts';
import type { Cursors, PageStart } from '../http/cursors.ts';
import { Id, ListQuery, operationOf, operator, SearchQuery } from '../http/operator.ts';
import { type Route, route } from '../http/route.ts';
import { ACCESS_CHANGES, type AccessChange } from './access.ts';
import { memberView } from './members.ts';
import { type ListedMemberRow, pageOfMembers, pageOfUsers, type UserRow } from './store.ts';
import type { Users } from './users.ts';

/** The link is shown once. */
const WithLink = OperatorUser.extend({ url: z.string() });

const NewUser = z
  .strictObject({
    email: Email,
    name: PersonName,
    is_operator: z.boolean().default(false),
    org_id: z.string().optional(),
    role: Role.optional(),
  })
  .refine(({ org_id: orgId, role }) => (orgId === undefined) === (role === undefined), {
    path: ['role'],
    message: 'must be given with org_id, and only then',
  });

interface Deps {
  db: Db;
  cursors: Cursors;
  users: Pick<Users, 'people'>;
}

export function userOperatorRoutes({ db, cursors, users: { people } }: Deps): Route[] {
  const withViews = async (rows: Promise<UserRow[]>): Promise<OperatorUser[]> =>
    Promise.all((await rows).map((row) => people.view(db.read, row)));
  const at = ({ created_at: createdAt, id }: OperatorUser) => ({ createdMs: Date.parse(createdAt), id });
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/users',
      operationId: 'adminAddUser',
      summary: 'Add a person and get the one-time link with which the person sets a password',
      body: NewUser,
      responses: { 201: { description: 'The person and the link', schema: WithLink } },
      errors: ['not_found', 'conflict'],
      handler: async ({ body }) => {
        const { email, name, is_operator: isOperator, org_id: orgId, role } = body;
        const member = orgId === undefined || role === undefined ? undefined : { orgId, role };
        return { status: 201, body: await people.add({ email, name, isOperator, member }) };
      },
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/users/{id}/reset',
      operationId: 'adminResetUser',
      summary: 'Make a one-time link with which a person sets a new password',
      params: z.strictObject({ id: z.string() }),
      responses: { 200: { description: 'The person and the link', schema: WithLink } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params }) => ({ status: 200, body: await people.reset(params.id) }),
    }),
    ...ACCESS_CHANGES.map((change) => changeRoute(people, change)),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/users',
      operationId: 'adminListUsers',
      summary: 'List people, newest first',
      query: SearchQuery,
      responses: { 200: { description: 'A page', schema: pageSchema(OperatorUser) } },
      errors: [],
      handler: async ({ query }) => {
        const rows = (start: PageStart) => withViews(pageOfUsers(db.read, start, query.search));
        const view = { at, show: (user: OperatorUser) => user };
        return { status: 200, body: await cursors.page(`admin/users/${query.search ?? ''}`, query, rows, view) };
      },
    }),
    membersRoute({ db, cursors }),
    addMemberRoute(people),
  ];
}

const CHANGES: Record<AccessChange, string> = {
  promote: 'Make a person an operator',
  demote: 'Take the rights of an operator from a person, and end the sessions of the person',
  block: 'Let a person sign in no more, and end the sessions and the keys from logins of programs',
  unblock: 'Let a person who is blocked sign in again',
};

function changeRoute(people: Users['people'], change: AccessChange): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `/admin/users/{id}/${change}`,
    operationId: operationOf(change, 'User'),
    summary: CHANGES[change],
    params: Id,
    body: z.strictObject({ reason: z.string().trim().min(1).max(1_000) }),
    responses: { 200: { description: 'The person', schema: OperatorUser } },
    errors: ['not_found', 'conflict'],
    handler: async ({ params: { id } }) => ({ status: 200, body: await people.change(id, change) }),
  });
}

function membersRoute({ db, cursors }: Pick<Deps, 'db' | 'cursors'>): Route {
  const at = ({ created_ms: createdMs, user_id: id }: ListedMemberRow) => ({ createdMs, id });
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/orgs/{id}/members',
    operationId: 'adminListMembers',
    summary: 'List the members of an organisation, newest first',
    params: Id,
    query: ListQuery,
    responses: { 200: { description: 'A page of members', schema: pageSchema(Member) } },
    errors: [],
    handler: async ({ params: { id }, query }) => {
      const rows = (start: PageStart) => pageOfMembers(db.read, id, start);
      const name = `admin/members/${id}`;
      return { status: 200, body: await cursors.page(name, query, rows, { at, show: memberView }) };
    },
  });
}

function addMemberRoute(people: Users['people']): Route {
  return route({
    ...operator,
    method: 'POST',
    path: '/admin/orgs/{id}/members',
    operationId: 'adminAddMember',
    summary: 'Make a person who has an account a member of an organisation',
    params: Id,
    body: z.strictObject({ user: z.string().min(1).max(255).describe('Id or e-mail address'), role: Role }),
    responses: { 201: { description: 'The member', schema: Member } },
    errors: ['not_found', 'conflict'],
    handler: async ({ params: { id }, body: { user: idOrEmail, role } }) => ({
      status: 201,
      body: await people.addTo(id, { idOrEmail, role }),
    }),
  });
}
