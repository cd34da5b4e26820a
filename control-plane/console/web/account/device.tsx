// Screen on which a person approves a program that asks for an API key (`svc auth login`). The person types the code that the program shows.
import { useState } from 'preact/hooks';
import type { DeviceLogin } from '../../../../shared/api/device-login.ts';
import { get, post } from '../core/api.ts';
import { relative } from '../core/format.ts';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Head, Note } from '../parts/layout.tsx';

export function Device() {
  const [code, setCode] = useState(location.hash.slice(1));
  const [login, setLogin] = useState<DeviceLogin>();
  const [end, setEnd] = useState<'approved' | 'denied'>();
  const show = useAction(async () =>
    setLogin(await get<DeviceLogin>(`/v1/auth/device/${encodeURIComponent(code.trim())}`)),
  );
  return (
    <>
      <Head title="Sign in a program" />
      {end !== undefined && <Note tone={end === 'approved' ? 'ok' : 'plain'}>{ENDS[end]}</Note>}
      {end === undefined && login === undefined && (
        <Card title="Code">
          <div class="pad">
            <Form action={show} submit="Continue" busy="Looking…">
              <Field label="Code" required value={code} onValue={setCode} hint="The program shows it, like BCDF-GHJK" />
            </Form>
          </div>
        </Card>
      )}
      {end === undefined && login !== undefined && <Approval code={code.trim()} login={login} done={setEnd} />}
    </>
  );
}

const ENDS = {
  approved: 'The program gets its key now. You can close this page.',
  denied: 'The program gets no key. If you did not start it, somebody else tried to use your account.',
} as const;

interface ApprovalProps {
  code: string;
  login: DeviceLogin;
  done(end: 'approved' | 'denied'): void;
}

function Approval({ code, login, done }: ApprovalProps) {
  const decide = (end: 'approve' | 'deny') => async () => {
    await post(`/v1/auth/device/${encodeURIComponent(code)}/${end}`);
    done(end === 'approve' ? 'approved' : 'denied');
  };
  const approve = useAction(decide('approve'));
  const deny = useAction(decide('deny'));
  return (
    <Card title={`A program on ${login.host} asks for a key`}>
      <div class="pad stack">
        <Note tone="warn">
          Approve only if you started it yourself just now. Nobody has checked the name of the machine.
        </Note>
        <dl class="kv">
          <dt>Asked from</dt>
          <dd>
            {login.client_ip}, {relative(login.created_at)}
          </dd>
          <dt>Acts for</dt>
          <dd>{login.org.name}</dd>
          <dt>May</dt>
          <dd>{login.scopes.join(', ') || 'nothing: your role has none of what it asks for'}</dd>
          {login.withheld_scopes.length > 0 && (
            <>
              <dt>Your role may not</dt>
              <dd>{login.withheld_scopes.join(', ')}</dd>
            </>
          )}
        </dl>
        <div class="row">
          {login.scopes.length > 0 && <Form action={approve} submit="Approve" busy="Approving…" />}
          <Form action={deny} submit="Deny" busy="Denying…" tone="kill" />
        </div>
      </div>
    </Card>
  );
}
