// The operator's routes for people who have signed in: `/admin/orgs` of the unix socket is `/admin/v1/orgs` of the public listener. The socket
// stays for emergencies, when nobody can sign in.
import { fail } from '../../shared/errors.ts';
import type { Caller, Route } from '../base/http/route.ts';
import type { Audit } from './audit.ts';
import { audited } from './admin.ts';

const OF_SOCKET = /^\/(admin\/)?/;

/**
 * Each route needs the session of a person who operates this installation and has a second factor. A route that changes something also needs a
 * confirmation of the last ten minutes. Its entry in the audit journal has the person's e-mail address, which no header can change.
 */
export function operatorSessionRoutes(routes: readonly Route[], audit: Pick<Audit, 'run'>): Route[] {
  return audited(routes, audit).map((each) => ({
    ...each,
    path: each.path.replace(OF_SOCKET, '/admin/v1/'),
    scope: 'session',
    stepUp: each.method !== 'GET',
    errors: [...each.errors, 'insufficient_scope', 'second_factor_required'],
    handler: (call) => each.handler({ ...call, actor: operatorOf(call.caller) }),
  }));
}

/** @throws ServiceError `insufficient_scope`, `second_factor_required` */
function operatorOf({ session }: Caller): string {
  const email =
    session?.operatorEmail ?? fail('insufficient_scope', 'Only people who operate this installation may do this.');
  if (session?.mustEnrol === true)
    fail('second_factor_required', 'Set up a second factor first, in the console or with POST /v1/auth/totp.');
  return email;
}
