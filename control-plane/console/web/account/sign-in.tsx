// Sign-in by passkey, by password with a code, or through the operator's provider of single sign-on; and sign-up, if it is open.
import { useState } from 'preact/hooks';
import type { Session, SignInMethods } from '../../../../shared/api/auth.ts';
import { ApiError, post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { NEEDS_HOST_NAME, signInWithPasskey, takesPasskeys } from '../core/passkey.ts';
import { session } from '../core/session.ts';
import { beginSingleSignOn } from '../core/single-sign-on.ts';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Alone, Problem } from '../parts/layout.tsx';
import { Email, NewPassword, OwnName } from './identity-fields.tsx';

export function SignIn() {
  const [isNew, setNew] = useState(false);
  const methods = useResource<SignInMethods>('/v1/auth/methods').data.value;
  return (
    <Alone title={isNew ? 'Create an account' : 'Sign in'}>
      {isNew ? <SignUpForm /> : <SignInForms hasSingleSignOn={methods?.single_sign_on === true} />}
      {methods?.sign_up === 'open' && (
        <p class="small">
          <button class="btn bare" type="button" onClick={() => setNew(!isNew)}>
            {isNew ? 'I have an account' : 'Create an account'}
          </button>
        </p>
      )}
      {methods?.sign_up === 'invite' && <p class="small quiet">New here? Ask a member for an invitation.</p>}
      {methods?.sign_up === 'closed' && <p class="small quiet">New here? The operator makes the accounts.</p>}
      <p class="small quiet">
        On a command line: <code>svc auth login</code>
      </p>
    </Alone>
  );
}

function SignInForms({ hasSingleSignOn }: { hasSingleSignOn: boolean }) {
  const passkey = useAction(async () => {
    session.value = await signInWithPasskey();
  });
  const provider = useAction(beginSingleSignOn);
  return (
    <>
      {takesPasskeys(location.hostname) ? (
        <>
          <button class="btn pri wide" type="button" disabled={passkey.isBusy} onClick={() => void passkey.run()}>
            {passkey.isBusy ? 'Waiting for your passkey…' : 'Sign in with a passkey'}
          </button>
          {passkey.error !== undefined && <Problem error={passkey.error} />}
          <p class="or">or</p>
        </>
      ) : (
        <p class="small quiet">{NEEDS_HOST_NAME} Open it at its name to sign in with one.</p>
      )}
      <PasswordForm />
      {hasSingleSignOn && (
        <button class="btn wide" type="button" disabled={provider.isBusy} onClick={() => void provider.run()}>
          Single sign-on
        </button>
      )}
      {provider.error !== undefined && <Problem error={provider.error} />}
    </>
  );
}

/** Asks for the code of the authenticator app only if the password was right and the account has an app. */
function PasswordForm() {
  const [email, setEmail] = useState('');
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const [needsCode, setNeedsCode] = useState(false);
  const action = useAction(async () => {
    try {
      session.value = await post<Session>('/v1/auth/sign-in', { email, password, ...(needsCode ? { code } : {}) });
    } catch (error) {
      if (error instanceof ApiError && error.code === 'second_factor_required') return setNeedsCode(true);
      throw error;
    }
  });
  return (
    <Form action={action} submit="Sign in" busy="Signing in…">
      <Email value={email} onValue={setEmail} rule={action.ruleOf('email')} />
      <Field
        label="Password"
        type="password"
        autoComplete="current-password"
        required
        value={password}
        onValue={setPassword}
      />
      {needsCode && (
        <Field
          label="Code"
          autoComplete="one-time-code"
          required
          autoFocus
          value={code}
          onValue={setCode}
          hint="Six digits of your authenticator app, or a recovery code"
        />
      )}
    </Form>
  );
}

function SignUpForm() {
  const [email, setEmail] = useState('');
  const [name, setName] = useState('');
  const [orgName, setOrgName] = useState('');
  const [password, setPassword] = useState('');
  const action = useAction(async () => {
    session.value = await post<Session>('/v1/auth/sign-up', { email, name, password, org_name: orgName });
  });
  return (
    <Form action={action} submit="Create the account" busy="Creating…">
      <Email value={email} onValue={setEmail} rule={action.ruleOf('email')} />
      <OwnName value={name} onValue={setName} rule={action.ruleOf('name')} />
      <Field
        label="Organisation"
        autoComplete="organization"
        required
        value={orgName}
        onValue={setOrgName}
        rule={action.ruleOf('org_name')}
        hint="It owns what you rent, and pays for it. Others can join it later"
      />
      <NewPassword value={password} onValue={setPassword} rule={action.ruleOf('password')} />
    </Form>
  );
}
