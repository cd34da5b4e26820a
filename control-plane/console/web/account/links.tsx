// The screens that open from links in mails and from links of the operator. The secret of a link is after the #, so no server receives it.
import { useEffect, useState } from 'preact/hooks';
import type { Session } from '../../../../shared/api/auth.ts';
import { ApiError, post } from '../core/api.ts';
import { keptLogin } from '../core/single-sign-on.ts';
import { loadSession, session } from '../core/session.ts';
import { Form, useAction } from '../parts/forms.tsx';
import { Alone, Problem } from '../parts/layout.tsx';
import { Email, NewPassword, OwnName } from './identity-fields.tsx';

const token = (): string => location.hash.slice(1);

function enter(entered: Session): void {
  session.value = entered;
  location.assign('/console');
}

/** A one-time link of `admin user add` or `admin user reset`: the person sets a password with it. */
export function Welcome() {
  const [password, setPassword] = useState('');
  const action = useAction(async () => enter(await post<Session>('/v1/auth/link', { token: token(), password })));
  if (token() === '') return <Incomplete />;
  return (
    <Alone title="Set your password">
      <p class="dim">The link works once. It ends your other sessions.</p>
      <Form action={action} submit="Set the password and sign in" busy="Setting…">
        <NewPassword value={password} onValue={setPassword} rule={action.ruleOf('password')} />
      </Form>
    </Alone>
  );
}

/** An invitation to an organisation. A person who has signed in joins it; anybody else makes an account first. */
export function Invitation() {
  useEffect(() => void loadSession(), []);
  const join = useAction(async () => {
    await post('/v1/invitations/join', { token: token() });
    location.assign('/console');
  });
  if (token() === '') return <Incomplete />;
  if (session.value === undefined) return <main aria-busy="true" />;
  if (session.value === null) return <AcceptForm />;
  return (
    <Alone title="Join the organisation">
      <p class="dim">You have signed in as {session.value.user.email}.</p>
      <Form action={join} submit="Join" busy="Joining…" />
    </Alone>
  );
}

function AcceptForm() {
  const [email, setEmail] = useState('');
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const action = useAction(async () =>
    enter(await post<Session>('/v1/invitations/accept', { token: token(), email, name, password })),
  );
  return (
    <Alone title="You are invited">
      <Form action={action} submit="Create the account and join" busy="Joining…">
        <Email value={email} onValue={setEmail} rule={action.ruleOf('email')} />
        <OwnName value={name} onValue={setName} rule={action.ruleOf('name')} />
        <NewPassword value={password} onValue={setPassword} rule={action.ruleOf('password')} />
      </Form>
      <p class="small quiet">
        Do you have an account? <a href="/console">Sign in</a>, and open the link again.
      </p>
    </Alone>
  );
}

/** The screen to which the provider of a single sign-on sends the browser back. */
export function Oidc() {
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    void post<Session>('/v1/auth/oidc/finish', { login: keptLogin(), query: location.search.slice(1) })
      .then(enter)
      .catch((failure: unknown) => {
        if (!(failure instanceof ApiError)) throw failure;
        setError(failure);
      });
  }, []);
  return (
    <Alone title={error === undefined ? 'Signing in…' : 'You are not signed in'}>
      {error !== undefined && <Problem error={error} retry={() => location.assign('/console')} />}
    </Alone>
  );
}

function Incomplete() {
  return (
    <Alone title="The link is incomplete">
      <p>Copy the whole link, with all that stands after the # sign.</p>
    </Alone>
  );
}
