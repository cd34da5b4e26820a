// How the person signs in: passkeys, the authenticator app, the password, recovery codes, and all sessions.
import { useState } from 'preact/hooks';
import type { SessionEntry, SignInMethods } from '../../../../shared/api/auth.ts';
import type { Passkey } from '../../../../shared/api/second-factor.ts';
import { call, post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { relative } from '../core/format.ts';
import type { Resource } from '../core/reading.ts';
import { loadSession, session } from '../core/session.ts';
import { beginSingleSignOn } from '../core/single-sign-on.ts';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Head, Note, Problem, Tag } from '../parts/layout.tsx';
import { RowsTable } from '../parts/table.tsx';
import { AddFactors, RecoveryCodes } from './second-factor.tsx';
import { NewPassword } from './identity-fields.tsx';
import { Notices } from './notices.tsx';

export function Security() {
  const passkeys = useResource<{ data: Passkey[] }>('/v1/auth/passkeys');
  const [isAdding, setAdding] = useState(false);
  const current = session.value;
  if (current === null || current === undefined) return null;
  const added = (): void => {
    setAdding(false);
    void passkeys.reload();
  };
  const hasFactor = current.has_totp || current.passkeys > 0;
  return (
    <>
      <Head title="Sign-in and security">
        <button class="btn" type="button" onClick={() => setAdding(!isAdding)}>
          {isAdding ? 'Close' : 'Add a second factor'}
        </button>
      </Head>
      {!hasFactor && (
        <Note tone="warn">
          {current.has_password ? 'Your password' : 'Single sign-on'} is the only thing that protects the account. Add a
          second factor.
        </Note>
      )}
      {isAdding && <AddFactors added={added} />}
      <Passkeys passkeys={passkeys} />
      {current.has_totp && <App />}
      {hasFactor && <Codes left={current.recovery_codes_left} />}
      {current.has_password && <Password />}
      <SingleSignOn />
      <Notices />
      <Sessions />
    </>
  );
}

/** Links the account with the person at the provider. An account that its person has made is linked only while its person is signed in. */
function SingleSignOn() {
  const methods = useResource<SignInMethods>('/v1/auth/methods').data.value;
  const provider = useAction(beginSingleSignOn);
  if (methods?.single_sign_on !== true) return null;
  return (
    <Card title="Single sign-on">
      <div class="pad stack tight">
        <p class="small">
          Sign in once through the provider here. From then on, single sign-on leads to this account, if the address at
          the provider is the same.
        </p>
        <button class="btn" type="button" disabled={provider.isBusy} onClick={() => void provider.run()}>
          Link single sign-on
        </button>
        {provider.error !== undefined && <Problem error={provider.error} />}
      </div>
    </Card>
  );
}

function Passkeys({ passkeys }: { passkeys: Resource<{ data: Passkey[] }> }) {
  const { data, error, reload } = passkeys;
  const remove = async (id: string): Promise<void> => {
    await call('DELETE', `/v1/auth/passkeys/${id}`);
    await Promise.all([reload(), loadSession()]);
  };
  if (error.value !== undefined) return <Problem error={error.value} retry={() => void reload()} />;
  if (data.value === undefined || data.value.data.length === 0) return null;
  return (
    <Card title="Passkeys">
      <RowsTable
        caption="Passkeys"
        rows={data.value.data}
        idOf={({ id }) => id}
        columns={[
          { title: 'Name', cell: ({ name }) => name },
          { title: 'Last used', cell: ({ last_used_at: at }) => (at === null ? 'never' : relative(at)) },
          { title: 'Remove', cell: ({ id, name }) => <Remove name={name} verb="Remove" remove={() => remove(id)} /> },
        ]}
      />
    </Card>
  );
}

interface RemoveProps {
  name: string;
  verb: string;
  remove(): Promise<void>;
}

/** A button that calls `remove`. If the API refuses, the refusal is shown beside the button. */
export function Remove({ name, verb, remove }: RemoveProps) {
  const action = useAction(remove);
  return (
    <>
      <button
        class="btn kill sm"
        type="button"
        aria-label={`${verb} ${name}`}
        disabled={action.isBusy}
        onClick={() => void action.run()}
      >
        {verb}
      </button>
      {action.error !== undefined && <Problem error={action.error} />}
    </>
  );
}

function App() {
  const remove = async (): Promise<void> => {
    await call('DELETE', '/v1/auth/totp');
    await loadSession();
  };
  return (
    <Card title="Authenticator app" note="It is set up">
      <div class="pad">
        <Remove name="the authenticator app" verb="Remove" remove={remove} />
      </div>
    </Card>
  );
}

function Codes({ left }: { left: number }) {
  const [codes, setCodes] = useState<string[]>();
  const action = useAction(async () => {
    setCodes((await post<{ recovery_codes: string[] }>('/v1/auth/recovery-codes')).recovery_codes);
    await loadSession();
  });
  if (codes !== undefined) return <RecoveryCodes codes={codes} done={() => setCodes(undefined)} />;
  return (
    <Card title="Recovery codes" note={`${left} unused`}>
      <div class="pad">
        <Form action={action} submit="Make new codes" busy="Making…">
          <p class="small dim">The old codes end.</p>
        </Form>
      </div>
    </Card>
  );
}

function Password() {
  const [current, setCurrent] = useState('');
  const [next, setNext] = useState('');
  const [isDone, setDone] = useState(false);
  const action = useAction(async () => {
    setDone(false);
    await post('/v1/auth/password', { current_password: current, new_password: next });
    setDone(true);
    setCurrent('');
    setNext('');
  });
  return (
    <Card title="Password">
      <div class="pad stack">
        {isDone && <Note tone="ok">The password is changed. Your other sessions have ended.</Note>}
        <Form action={action} submit="Change the password" busy="Changing…">
          <Field
            label="Current password"
            type="password"
            autoComplete="current-password"
            required
            value={current}
            onValue={setCurrent}
            rule={action.ruleOf('current_password')}
          />
          <NewPassword replaces value={next} onValue={setNext} rule={action.ruleOf('new_password')} />
        </Form>
      </div>
    </Card>
  );
}

function Sessions() {
  const { data, error, reload } = useResource<{ data: SessionEntry[] }>('/v1/auth/sessions', {
    on: [{ type: 'session' }],
  });
  const end = async (id: string): Promise<void> => {
    await call('DELETE', `/v1/auth/sessions/${id}`);
    await reload();
  };
  if (error.value !== undefined) return <Problem error={error.value} retry={() => void reload()} />;
  return (
    <Card title="Sessions" note="Browsers in which you have signed in">
      <RowsTable
        caption="Sessions"
        rows={data.value?.data ?? []}
        idOf={({ id }) => id}
        columns={[
          { title: 'Browser', cell: ({ user_agent: agent }) => <span class="brk">{agent}</span> },
          { title: 'Address', class: 'w', cell: ({ client_ip: ip }) => <code>{ip}</code> },
          { title: 'Last used', cell: ({ last_used_at: at }) => relative(at) },
          {
            title: 'End',
            cell: ({ id, client_ip: ip, is_current: isCurrent }) =>
              isCurrent ? (
                <Tag tone="info">this one</Tag>
              ) : (
                <Remove name={`the session from ${ip}`} verb="End" remove={() => end(id)} />
              ),
          },
        ]}
      />
    </Card>
  );
}
