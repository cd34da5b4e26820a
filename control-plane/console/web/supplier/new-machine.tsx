// The form that registers a machine, and the line that enrols its host.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { CommunityMachine } from '../../../../shared/api/community.ts';
import { call } from '../core/api.ts';
import { quoted } from '../core/format.ts';
import { useTyped } from '../core/typed.ts';
import { Copy, SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card } from '../parts/layout.tsx';
import { MACHINE_NAME_CHARS_MAX } from './machine-name.tsx';

/** The form in which a machine is added. */
export const NEW_MACHINE = 'machine';

interface MachineDraft {
  name: string;
  region: string;
  price: string;
}

const EMPTY_DRAFT: MachineDraft = { name: '', region: '', price: '' };

interface Registered {
  machine: CommunityMachine;
  enrollment_token: string;
}

export function AddMachine({ added }: { added(): void }) {
  const [{ name, region, price }, setDraft] = useTyped(NEW_MACHINE, EMPTY_DRAFT);
  const change = (part: Partial<MachineDraft>): void => setDraft((before) => ({ ...before, ...part }));
  const [made, setMade] = useState<Registered>();
  const body = { ...(name === '' ? {} : { name }), region, price_per_hour: Number(price) };
  const action = useAction(async () => {
    setMade(await call<Registered>('POST', '/v1/community/machines', body));
    setDraft(EMPTY_DRAFT);
    added();
  });
  if (made !== undefined) return <Enrol made={made} />;
  return (
    <Card title="New machine" note="What is offered comes from the host itself">
      <div class="pad stack">
        <Form action={action} submit="Register the machine" busy="Registering…">
          <Field
            label="Name"
            value={name}
            onValue={(next) => change({ name: next })}
            maxLength={MACHINE_NAME_CHARS_MAX}
            rule={action.ruleOf('name')}
            hint="A name of your own, which customers do not see. It may be left out"
          />
          <Field
            label="Region"
            required
            value={region}
            onValue={(next) => change({ region: next })}
            rule={action.ruleOf('region')}
            hint="Where it stands, like eu-west"
          />
          <Field
            label="Price of one GPU per hour, in dollars"
            required
            inputMode="decimal"
            value={price}
            onValue={(next) => change({ price: next })}
            rule={action.ruleOf('price_per_hour')}
            hint="What customers pay. The fee of the service is taken from it"
          />
        </Form>
        {region !== '' && Number(price) > 0 && (
          <SameAs
            isLong
            cli={`svc machine enroll --region ${quoted(region)} --price ${price}${name === '' ? '' : ` --name ${quoted(name)}`}`}
            curl={{ method: 'POST', path: '/v1/community/machines', body }}
          />
        )}
      </div>
    </Card>
  );
}

/** The line that enrols the host. Its token works once. */
function Enrol({ made: { machine, enrollment_token: token } }: { made: Registered }) {
  return (
    <Card
      title="Run this on the GPU machine, as root"
      note={`Good once, for 24 hours. Only outbound port ${location.port || (location.protocol === 'https:' ? '443' : '80')} is needed.`}
    >
      <div class="pad stack tight">
        <Copy text={`./install.sh agent --url ${location.origin} --token ${token}`} what="the line" />
        <p class="small dim">
          Unpack the package of the service first (see the <a href="/docs/supplier">manual for suppliers</a>).{' '}
          <Link href={`/console/machines/${machine.machine_id}`}>Watch its checks</Link> while it enrols.
        </p>
      </div>
    </Card>
  );
}
