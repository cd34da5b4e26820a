// The screens that open from links in mails and from links of the operator. The secret of a link is after the #, so no server receives it.
import { useEffect, useState } from 'preact/hooks';
import type { Session } from '../../../../shared/api/auth.ts';
import type { ShownInvitation } from '../../../../shared/api/member.ts';
import { ApiError, asApiError, post } from '../core/api.ts';
import { keptLogin } from '../core/single-sign-on.ts';
import { loadSession, session } from '../core/session.ts';
import { Form, useAction } from '../parts/forms.tsx';
import { Alone, Problem } from '../parts/layout.tsx';
import { Email, NewPassword, OwnName } from './identity-fields.tsx';

const token = (): string => location.hash.slice(1);

function enter(entered: Session, address = '/console'): void {
  session.value = entered;
  location.assign(address);
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
  const [shown, setShown] = useState<ShownInvitation>();
  const [error, setError] = useState<ApiError>();
  const read = (): void => {
    setError(undefined);
    void post<ShownInvitation>('/v1/invitations/show', { token: token() }).then(setShown, (failure: unknown) =>
      setError(asApiError(failure)),
    );
  };
  useEffect(() => {
    void loadSession();
    if (token() !== '') read();
  }, []);
  if (token() === '') return <Incomplete />;
  if (error !== undefined)
    return (
      <Alone title="The invitation cannot be shown">
        <Problem error={error} retry={read} />
      </Alone>
    );
  if (shown === undefined || session.value === undefined) return <main aria-busy="true" />;
  return (
    <Alone title={`Join ${shown.org_name}`}>
      <p>
        {invitedBy(shown)} to the organisation <b>{shown.org_name}</b> as <b>{shown.role}</b>.
      </p>
      {session.value === null ? <AcceptForm invitation={shown} /> : <JoinForm email={session.value.user.email} />}
    </Alone>
  );
}

function invitedBy({ invited_by: maker }: ShownInvitation): string {
  return maker === null ? 'You are invited' : `${maker.name} (${maker.email}) invites you`;
}

function JoinForm({ email }: { email: string }) {
  const join = useAction(async () => {
    await post('/v1/invitations/join', { token: token() });
    location.assign('/console');
  });
  return (
    <>
      <p class="dim">You have signed in as {email}.</p>
      <Form action={join} submit="Join" busy="Joining…" />
    </>
  );
}

function AcceptForm({ invitation }: { invitation: ShownInvitation }) {
  const [email, setEmail] = useState(invitation.email ?? '');
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const action = useAction(async () =>
    enter(await post<Session>('/v1/invitations/accept', { token: token(), email, name, password })),
  );
  return (
    <>
      <Form action={action} submit="Create the account and join" busy="Joining…">
        <Email
          value={email}
          onValue={setEmail}
          rule={action.ruleOf('email')}
          fixed={invitation.email === null ? undefined : 'The invitation is for this address only'}
        />
        <OwnName value={name} onValue={setName} rule={action.ruleOf('name')} />
        <NewPassword value={password} onValue={setPassword} rule={action.ruleOf('password')} />
      </Form>
      <p class="small quiet">
        Do you have an account? <a href="/console">Sign in</a>, and open the link again.
      </p>
    </>
  );
}

/** The screen to which the provider of a single sign-on sends the browser back. */
export function Oidc() {
  const [error, setError] = useState<ApiError>();
  const [{ login, address }] = useState(keptLogin);
  useEffect(() => {
    if (login === '') return;
    void post<Session>('/v1/auth/oidc/finish', { login, query: location.search.slice(1) })
      .then((entered) => enter(entered, address))
      .catch((failure: unknown) => {
        if (!(failure instanceof ApiError)) throw failure;
        setError(failure);
      });
  }, []);
  if (login === '') {
    return (
      <Alone title="You are not signed in">
        <p>
          This single sign-on was used already, or begun in another tab. <a href="/console">Begin again</a>
        </p>
      </Alone>
    );
  }
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
