// Logins for private images. The password is written once and never shown. The command line has no command for them.
import { useState } from 'preact/hooks';
import type { RegistryCredential } from '../../../../shared/api/registry-credential.ts';
import { Remove } from '../account/security.tsx';
import { call, post } from '../core/api.ts';
import { useLiveList } from '../core/data.ts';
import { date } from '../core/format.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Empty, Head } from '../parts/layout.tsx';
import { LiveTable } from '../parts/table.tsx';

export function RegistryCredentials() {
  const list = useLiveList<RegistryCredential>({
    path: '/v1/registry-credentials?limit=50',
    idOf: ({ id }) => id,
    type: 'registry_credential',
  });
  const remove = async (id: string): Promise<void> => {
    await call('DELETE', `/v1/registry-credentials/${id}`);
    await list.reload();
  };
  return (
    <>
      <Head title="Registry logins" />
      {may('registry_credentials: write') && <NewLogin done={() => list.reload()} />}
      <LiveTable
        caption="Registry logins"
        list={list}
        columns={[
          {
            title: 'Name',
            cell: ({ id, name }) => (
              <>
                {name}
                <br />
                <small class="quiet w">
                  <code>{id}</code>
                </small>
              </>
            ),
          },
          { title: 'Registry', cell: ({ registry }) => <code>{registry}</code> },
          { title: 'User', cell: ({ username }) => username },
          { title: 'Stored', class: 'w', cell: ({ created_at: at }) => <time dateTime={at}>{date(at)}</time> },
          {
            title: 'Delete',
            cell: ({ id, name }) =>
              may('registry_credentials: write') && <Remove name={name} verb="Delete" remove={() => remove(id)} />,
          },
        ]}
        empty={
          <Empty title="No login yet">
            A launch that names a login can run a private image of its registry. Public images need none.
          </Empty>
        }
      />
    </>
  );
}

const EMPTY = { name: '', registry: '', username: '' };

function NewLogin({ done }: { done(): Promise<void> }) {
  const [login, setLogin] = useTyped('registry-login', EMPTY);
  const [password, setPassword] = useState('');
  const action = useAction(async () => {
    await post('/v1/registry-credentials', { ...login, password });
    setLogin(EMPTY);
    setPassword('');
    await done();
  });
  const field = (name: keyof typeof EMPTY) => ({
    required: true,
    value: login[name],
    onValue: (value: string) => setLogin((before) => ({ ...before, [name]: value })),
    rule: action.ruleOf(name),
  });
  return (
    <Card title="Store a login">
      <div class="pad stack">
        <Form action={action} submit="Store the login" busy="Storing…">
          <div class="grid">
            <Field label="Name" {...field('name')} />
            <Field label="Registry" placeholder="ghcr.io" {...field('registry')} />
            <Field label="User" autoComplete="off" {...field('username')} />
            <Field
              label="Password or token"
              type="password"
              autoComplete="new-password"
              required
              value={password}
              onValue={setPassword}
              rule={action.ruleOf('password')}
              hint="Sealed and never shown. A host gets a short token, but where a registry knows no tokens, it gets this login: use one that can only read."
            />
          </div>
        </Form>
      </div>
    </Card>
  );
}
