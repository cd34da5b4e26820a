// SSH public keys of the organisation: who may log in to its instances.
import type { SshKey } from '../../../../shared/api/account.ts';
import { Remove } from '../account/security.tsx';
import { call, post } from '../core/api.ts';
import { useLiveList } from '../core/data.ts';
import { date, quoted } from '../core/format.ts';
import { may } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Empty, Head } from '../parts/layout.tsx';
import { LiveTable } from '../parts/table.tsx';

export function SshKeys() {
  const list = useLiveList<SshKey>({ path: '/v1/ssh-keys?limit=50', idOf: ({ id }) => id, type: 'ssh_key' });
  const remove = async (id: string): Promise<void> => {
    await call('DELETE', `/v1/ssh-keys/${id}`);
    await list.reload();
  };
  return (
    <>
      <Head title="SSH keys" same={{ cli: 'svc key list', curl: { path: '/v1/ssh-keys?limit=50' } }} />
      {may('ssh_keys: write') && <NewKey done={() => list.reload()} />}
      <LiveTable
        caption="SSH keys"
        list={list}
        columns={[
          { title: 'Name', cell: ({ name }) => name },
          { title: 'Fingerprint', cell: ({ fingerprint }) => <code class="brk">{fingerprint}</code> },
          { title: 'Added', class: 'w', cell: ({ created_at: at }) => <time dateTime={at}>{date(at)}</time> },
          {
            title: 'Delete',
            cell: ({ id, name }) =>
              may('ssh_keys: write') && <Remove name={name} verb="Delete" remove={() => remove(id)} />,
          },
        ]}
        empty={
          <Empty title="No key yet" cli="svc key add --name laptop --file ~/.ssh/id_ed25519.pub">
            A public key lets its owner log in to your instances by SSH. Without one, the browser terminal still works.
          </Empty>
        }
      />
    </>
  );
}

function NewKey({ done }: { done(): Promise<void> }) {
  const [name, setName] = useTyped('ssh-key/name', '');
  const [publicKey, setPublicKey] = useTyped('ssh-key/public-key', '');
  const body = { name, public_key: publicKey.trim() };
  const action = useAction(async () => {
    await post('/v1/ssh-keys', body);
    setName('');
    setPublicKey('');
    await done();
  });
  // Proposes the comment of the key as its name, because it is most often the name that its owner gave it.
  const paste = (text: string): void => {
    setPublicKey(text);
    const comment = /^\S+ \S+ (.+)$/.exec(text.trim())?.[1];
    if (name === '' && comment !== undefined) setName(comment);
  };
  return (
    <Card title="Add a key">
      <div class="pad stack">
        <Form action={action} submit="Add the key" busy="Adding…">
          <Field
            label="Public key"
            required
            spellcheck={false}
            autoComplete="off"
            placeholder="ssh-ed25519 AAAA… you@laptop"
            value={publicKey}
            onValue={paste}
            rule={action.ruleOf('public_key')}
            hint="Paste the one line of the .pub file, not the private key."
          />
          <Field label="Name" required value={name} onValue={setName} rule={action.ruleOf('name')} />
        </Form>
        {body.name !== '' && body.public_key !== '' && (
          <SameAs
            isLong
            cli={`svc key add --name ${quoted(name || 'NAME')} --file ~/.ssh/id_ed25519.pub`}
            curl={{ method: 'POST', path: '/v1/ssh-keys', body }}
          />
        )}
      </div>
    </Card>
  );
}
