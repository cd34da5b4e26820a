// Who has signed in: undefined until it is known, null if nobody has. A page is one process, so this is state of the module.
import { computed, signal } from '@preact/signals';
import type { Role, Session } from '../../../../shared/api/auth.ts';
import { ApiError, call, get, onAsked, SESSION_PATH } from './api.ts';

export const session = signal<Session | null | undefined>(undefined);
/** Why the session could not be read; undefined if it could. */
export const sessionError = signal<ApiError | undefined>(undefined);

/** The roles of members, as the choices of a form. */
export const ROLES: readonly (readonly [Role, string])[] = [
  ['owner', 'owner: everything'],
  ['member', 'member: rents and calls models'],
  ['billing', 'billing: sees and pays'],
  ['read-only', 'read-only: sees'],
];

const scopes = computed(() => new Set(session.value?.scopes ?? []));

/** Whether the member's role includes the scope, like `instances: write`. `operator`: whether the person operates the installation. */
export function may(scope: string): boolean {
  return scope === 'operator' ? session.value?.user.is_operator === true : scopes.value.has(scope);
}

export async function loadSession(): Promise<void> {
  const found = await readSession();
  if (found !== undefined) show(found);
}

/** All that a page shows belongs to its session. So for another session, of which it learns from the cookie, it is loaded again. */
function show(found: Session | null): void {
  const shown = session.peek()?.id;
  if (found !== null && shown !== undefined && shown !== found.id) location.reload();
  else session.value = found;
}

/** Null if nobody has signed in; undefined if it could not be read. */
async function readSession(): Promise<Session | null | undefined> {
  try {
    const found = await get<Session>(SESSION_PATH);
    sessionError.value = undefined;
    return found;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) return null;
    sessionError.value = error;
    return undefined;
  }
}

/** The answer of a confirmation, with the new token, arrives within this time. */
const RENEWED_MS = 1_000;

/** The check in progress. Requests that are refused together share it. */
const check: { running?: Promise<boolean> | undefined } = {};

onAsked({
  sessionId: () => session.peek()?.id,
  checkSession: () => (check.running ??= checkSession().finally(() => (check.running = undefined))),
});

/**
 * Called if the API has refused the session. A confirmation, in any tab, replaces its token, and a request that was on its way with the old one is
 * refused. The answer that has the new token may be on its way too. So the session is read, and read again later, before the page signs out. True if
 * the browser still has the session that the page shows.
 */
async function checkSession(): Promise<boolean> {
  const shown = session.value;
  if (shown === null || shown === undefined) return false;
  let found = await readSession();
  if (found === null) {
    await new Promise((resolve) => setTimeout(resolve, RENEWED_MS));
    found = await readSession();
  }
  // The person may have signed out meanwhile.
  if (found === undefined || session.value?.id !== shown.id) return false;
  show(found);
  return found?.id === shown.id;
}

/** Called when the person has signed out, before the page stops to show the session. */
const signedOut: { tell(): void } = { tell: () => undefined };

export function onSignedOut(tell: () => void): void {
  signedOut.tell = tell;
}

/** Name of the channel on which a tab sends the id of the session that it has ended. */
const SIGNED_OUT = 'svc-signed-out';

export async function signOut(): Promise<void> {
  const id = session.peek()?.id;
  await call('POST', '/v1/auth/sign-out');
  endSession();
  const channel = new BroadcastChannel(SIGNED_OUT);
  channel.postMessage(id);
  channel.close();
}

/** Signs the page out with the tab that has ended its session. Otherwise the page would show what it has until its next request is refused. */
export function followSignOut(stop?: AbortSignal): void {
  const channel = new BroadcastChannel(SIGNED_OUT);
  channel.addEventListener('message', ({ data }: MessageEvent<string | undefined>) => {
    if (session.peek()?.id === data) endSession();
  });
  stop?.addEventListener('abort', () => channel.close());
}

function endSession(): void {
  signedOut.tell();
  session.value = null;
}

/** Changes to another organisation of the person. The session gets another id for it, so the page is loaded again. */
export async function switchOrg(orgId: string): Promise<void> {
  session.value = await call<Session>('POST', '/v1/auth/session/org', { org_id: orgId });
  location.assign('/console');
}
