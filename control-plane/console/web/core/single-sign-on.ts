// Single sign-on: the browser goes to the provider and comes back to /oidc. In between, this tab keeps the value that identifies the login, and the
// address of the screen that the person has left for it.
import { post } from './api.ts';

const KEPT = 'svc-oidc-login';

/** Leaves the page. @throws ApiError `not_found` if the operator has configured no provider */
export async function beginSingleSignOn(): Promise<void> {
  const { url, login } = await post<{ url: string; login: string }>('/v1/auth/oidc/begin');
  sessionStorage.setItem(KEPT, JSON.stringify({ login, address: location.pathname + location.search }));
  location.assign(url);
}

interface Begun {
  login: string;
  /** The path and the query of the screen. */
  address: string;
}

/** What `beginSingleSignOn` has kept. It is returned once; after that, the login is an empty text. */
export function keptLogin(): Begun {
  const kept = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  return kept === null ? { login: '', address: '/console' } : (JSON.parse(kept) as Begun);
}
