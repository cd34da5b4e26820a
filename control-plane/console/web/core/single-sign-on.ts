// Single sign-on: the browser goes to the provider and comes back to /oidc. In between, this tab keeps the value that identifies the login.
import { post } from './api.ts';

const KEPT = 'svc-oidc-login';

/** Leaves the page. @throws ApiError `not_found` if the operator has configured no provider */
export async function beginSingleSignOn(): Promise<void> {
  const { url, login } = await post<{ url: string; login: string }>('/v1/auth/oidc/begin');
  sessionStorage.setItem(KEPT, login);
  location.assign(url);
}

/** The value that `beginSingleSignOn` has kept. It is returned once; after that, the result is an empty text. */
export function keptLogin(): string {
  const login = sessionStorage.getItem(KEPT) ?? '';
  sessionStorage.removeItem(KEPT);
  return login;
}
