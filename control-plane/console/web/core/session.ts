// Who has signed in: undefined until it is known, null if nobody has. A page is one process, so this is state of the module.
import { computed, signal } from '@preact/signals';
import type { Session } from '../../../../shared/api/auth.ts';
import { ApiError, call, get } from './api.ts';

export const session = signal<Session | null | undefined>(undefined);
/** Why the session could not be read; undefined if it could. */
export const sessionError = signal<ApiError | undefined>(undefined);

const scopes = computed(() => new Set(session.value?.scopes ?? []));

/** Whether the member's role includes the scope, like `instances: write`. `operator`: whether the person operates the installation. */
export function may(scope: string): boolean {
  return scope === 'operator' ? session.value?.user.is_operator === true : scopes.value.has(scope);
}

export async function loadSession(): Promise<void> {
  try {
    session.value = await get<Session>('/v1/auth/session');
    sessionError.value = undefined;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) session.value = null;
    else sessionError.value = error;
  }
}

export async function signOut(): Promise<void> {
  await call('POST', '/v1/auth/sign-out');
  session.value = null;
}

/** Changes to another organisation of the person. The session gets another id for it, so the page is loaded again. */
export async function switchOrg(orgId: string): Promise<void> {
  await call('POST', '/v1/auth/session/org', { org_id: orgId });
  location.assign('/console');
}
