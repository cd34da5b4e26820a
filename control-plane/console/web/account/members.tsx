// The people of the organisation, their roles, and the invitations that are open.
import { useState } from 'preact/hooks';
import type { Role } from '../../../../shared/api/auth.ts';
import type { Invitation, Member, NewInvitation } from '../../../../shared/api/member.ts';
import { call, post } from '../core/api.ts';
import { useLiveList } from '../core/data.ts';
import { date } from '../core/format.ts';
import type { LiveList } from '../core/reading.ts';
import { may, ROLES, session } from '../core/session.ts';
import { useTyped } from '../core/typed.ts';
import { Copy } from '../parts/command.tsx';
import { Field, Form, Select, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Head, Problem } from '../parts/layout.tsx';
import { LiveTable } from '../parts/table.tsx';
import { Remove } from './security.tsx';

export function Members() {
  const members = useLiveList<Member>({ path: '/v1/members?limit=100', idOf: ({ user_id: id }) => id, type: 'member' });
  const invitations = useLiveList<Invitation>({
    path: '/v1/invitations?limit=100',
    idOf: ({ id }) => id,
    type: 'invitation',
  });
  const mayWrite = may('members: write');
  const remove = async (id: string): Promise<void> => {
    await call('DELETE', `/v1/members/${id}`);
    await members.reload();
  };
  return (
    <>
      <Head title="Members" same={{ cli: 'svc api GET /v1/members', curl: { path: '/v1/members' } }} />
      <LiveTable
        caption="Members"
        list={members}
        columns={[
          {
            title: 'Name',
            cell: ({ name, email }) => (
              <>
                {name}
                <br />
                <small class="quiet brk">{email}</small>
              </>
            ),
          },
          { title: 'Role', cell: (member) => <RoleOf member={member} list={members} /> },
          {
            title: 'Second factor',
            class: 'w',
            cell: ({ has_second_factor: has }) => <Badge tone={has ? 'ok' : 'warn'}>{has ? 'set up' : 'none'}</Badge>,
          },
          { title: 'Since', class: 'w', cell: ({ created_at: at }) => date(at) },
          {
            title: 'Remove',
            cell: ({ user_id: id, name }) =>
              mayWrite &&
              id !== session.value?.user.id && <Remove name={name} verb="Remove" remove={() => remove(id)} />,
          },
        ]}
        empty={<Empty title="No members">The organisation has no people.</Empty>}
      />
      {mayWrite && <Invite invitations={invitations} />}
      <Invitations invitations={invitations} mayWrite={mayWrite} />
    </>
  );
}

function RoleOf({ member, list }: { member: Member; list: LiveList<Member> }) {
  const [next, setNext] = useState<Role>();
  const action = useAction(async () => {
    await call('PATCH', `/v1/members/${member.user_id}`, { role: next });
    await list.reload();
    setNext(undefined);
  });
  if (!may('members: write') || member.user_id === session.value?.user.id) return <>{member.role}</>;
  return (
    <>
      <div class="row">
        <select
          aria-label={`Role of ${member.name}`}
          value={next ?? member.role}
          onChange={(event) => setNext(event.currentTarget.value as Role)}
        >
          {ROLES.map(([role]) => (
            <option key={role} value={role}>
              {role}
            </option>
          ))}
        </select>
        {next !== undefined && next !== member.role && (
          <button class="btn sm" type="button" disabled={action.isBusy} onClick={() => void action.run()}>
            Change
          </button>
        )}
      </div>
      {action.error !== undefined && <Problem error={action.error} />}
    </>
  );
}

function Invite({ invitations }: { invitations: LiveList<Invitation> }) {
  const [email, setEmail] = useTyped('invitation/email', '');
  const [role, setRole] = useTyped<Role>('invitation/role', 'member');
  const [made, setMade] = useState<NewInvitation>();
  const action = useAction(async () => {
    setMade(await post<NewInvitation>('/v1/invitations', { role, ...(email === '' ? {} : { email }) }));
    setEmail('');
    await invitations.reload();
  });
  return (
    <Card title="Invite somebody">
      <div class="pad stack">
        <Form action={action} submit="Make the link" busy="Making…">
          <Field
            label="E-mail"
            type="email"
            value={email}
            onValue={setEmail}
            rule={action.ruleOf('email')}
            hint="Left empty: whoever has the link can join"
          />
          <Select label="Role" value={role} options={ROLES} onValue={(next) => setRole(next)} />
        </Form>
        {made !== undefined && (
          <>
            <p class="small dim">
              {made.mailed ? `This link is on its way to ${made.email ?? ''}.` : 'Send this link.'} It works once, until{' '}
              {date(made.expires_at)}, and is shown only now.
            </p>
            <Copy text={made.url} what="the link" />
          </>
        )}
      </div>
    </Card>
  );
}

function Invitations({ invitations, mayWrite }: { invitations: LiveList<Invitation>; mayWrite: boolean }) {
  const withdraw = async (id: string): Promise<void> => {
    await call('DELETE', `/v1/invitations/${id}`);
    await invitations.reload();
  };
  return (
    <LiveTable
      caption="Open invitations"
      list={invitations}
      columns={[
        { title: 'For', cell: ({ email }) => <span class="brk">{email ?? 'whoever has the link'}</span> },
        {
          title: 'Role',
          cell: ({ role, expires_at: at }) => (
            <>
              {role}
              <small class="n">until {date(at)}</small>
            </>
          ),
        },
        { title: 'Until', class: 'w', cell: ({ expires_at: at }) => date(at) },
        {
          title: 'Withdraw',
          cell: ({ id, email }) =>
            mayWrite && (
              <Remove name={`the invitation for ${email ?? 'anybody'}`} verb="Withdraw" remove={() => withdraw(id)} />
            ),
        },
      ]}
      empty={<Empty title="No open invitation">People join the organisation by a link that an owner makes.</Empty>}
    />
  );
}
