// The only table of roles: what a member of each may do, as scopes. A session has the scopes of its member's role.
import { Role } from '../../../shared/api/auth.ts';
import { fail } from '../../../shared/errors.ts';
import type { Caller } from '../http/route.ts';
import { SCOPES, type Scope } from '../http/scopes.ts';

const ALL = Object.keys(SCOPES) as Scope[];

/** Scopes of members who pay. They see what was used, earned and charged, but neither instances nor their logs and logins. */
const BILLING: readonly Scope[] = [
  'billing:read',
  'supply:read',
  'members:read',
  'events:read',
  'metrics:read',
  'deposits:read',
  'deposits:write',
];

const SCOPES_OF: Readonly<Record<Role, readonly Scope[]>> = {
  owner: ALL,
  member: ALL.filter((scope) => scope !== 'members:write'),
  billing: BILLING,
  'read-only': ALL.filter((scope) => scope.endsWith(':read')),
};

export function scopesOfRole(role: Role): readonly Scope[] {
  return SCOPES_OF[role];
}

/** The roles whose members may do this. */
export function rolesWith(scope: Scope): Role[] {
  return Role.options.filter((role) => SCOPES_OF[role].includes(scope));
}

/** Nobody can give more than they have, whether by a session or by an API key. @throws ServiceError `insufficient_scope` */
export function assertMayGive({ scopes }: Pick<Caller, 'scopes'>, role: Role): void {
  const beyond = beyondOf(role, scopes);
  if (beyond === undefined) return;
  fail('insufficient_scope', {
    detail: `The role ${role} may do what you may not. Ask an owner to do this.`,
    extra: { required_scope: beyond },
  });
}

/** A scope of the role that is not among these; undefined if all are. */
export function beyondOf(role: Role, scopes: readonly Scope[]): Scope | undefined {
  return SCOPES_OF[role].find((scope) => !scopes.includes(scope));
}
