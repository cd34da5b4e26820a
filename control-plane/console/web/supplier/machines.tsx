// The machines of a supplier and their status, a form to add one, and a form to become a supplier.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { CommunityMachine, CommunitySupplier } from '../../../../shared/api/community.ts';
import { call, post } from '../core/api.ts';
import { useLiveList, useResource } from '../core/data.ts';
import { cents, gpus, quoted, rate } from '../core/format.ts';
import { may } from '../core/session.ts';
import { isTyped, useTyped } from '../core/typed.ts';
import { Copy, SameAs } from '../parts/command.tsx';
import { Field, Form, useAction } from '../parts/forms.tsx';
import { Card, Empty, Head, Note, Problem } from '../parts/layout.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';
import { calledOf, MACHINE_NAME_CHARS_MAX } from './machine-name.tsx';
import { MachineStatus } from './machine-status.tsx';

const COLUMNS: readonly Column<CommunityMachine>[] = [
  {
    title: 'Machine',
    cell: (machine) => (
      <>
        <Link href={`/console/machines/${machine.machine_id}`}>{calledOf(machine)}</Link>
        <br />
        <small class="quiet">{machine.region}</small>
      </>
    ),
  },
  { title: 'Status', cell: (machine) => <MachineStatus machine={machine} /> },
  {
    title: 'GPUs',
    cell: ({ reported_gpus: groups }) =>
      groups.length === 0
        ? 'none reported yet'
        : groups.map(({ gpu_type: type, count, rented }) => (
            <>
              {gpus(count, type)}
              <small>{rented} rented</small>
            </>
          )),
  },
  {
    title: 'Per GPU and hour',
    class: 'num w',
    cell: ({ price_per_hour: price }) => (price === null ? '' : rate(price)),
  },
  { title: 'Today', class: 'num', cell: ({ earned_today_cents: earned }) => cents(earned) },
];

export function Machines() {
  const supplier = useResource<CommunitySupplier>('/v1/community/supplier');
  if (supplier.error.value?.status === 404) return <Become done={() => void supplier.reload()} />;
  if (supplier.error.value !== undefined)
    return <Problem error={supplier.error.value} retry={() => void supplier.reload()} />;
  if (supplier.data.value === undefined) return <div aria-busy="true" />;
  return <Listed isSuspended={supplier.data.value.status === 'suspended'} />;
}

function Become({ done }: { done(): void }) {
  const action = useAction(async () => {
    await post('/v1/community/supplier');
    done();
  });
  return (
    <>
      <Head
        title="Machines"
        same={{ cli: 'svc machine join', curl: { method: 'POST', path: '/v1/community/supplier' } }}
      />
      <Card title="Rent out your GPUs">
        <div class="pad stack">
          <p class="dim">
            Your machine needs Linux, Docker, NVIDIA's driver and outbound port 443. You set the price. You are paid for
            every second that a customer is billed for.
          </p>
          {may('supply: write') ? (
            <Form action={action} submit="Become a supplier" busy="Registering…" />
          ) : (
            <p>An owner or a member of the organisation can do this.</p>
          )}
        </div>
      </Card>
    </>
  );
}

function Listed({ isSuspended }: { isSuspended: boolean }) {
  const [isAdding, setAdding] = useState(isTyped(NEW_MACHINE));
  const path = '/v1/community/machines?limit=200';
  const list = useLiveList<CommunityMachine>({
    path,
    idOf: ({ machine_id: id }) => id,
    type: 'machine',
    isWhole: true,
  });
  return (
    <>
      <Head title="Machines" same={{ cli: 'svc machine list', curl: { path } }}>
        {may('supply: write') && (
          <button class="btn pri" type="button" aria-expanded={isAdding} onClick={() => setAdding(!isAdding)}>
            Add a machine
          </button>
        )}
      </Head>
      {isSuspended && <Note tone="bad">The operator has suspended you. None of your machines is on offer.</Note>}
      {isAdding && <AddMachine added={() => void list.reload()} />}
      <LiveTable
        caption="Machines"
        list={list}
        columns={COLUMNS}
        empty={
          <Empty title="No machine yet" cli="svc machine enroll --region eu-west --price 0.80">
            Add one, and run the line that you get on the machine.
          </Empty>
        }
      />
    </>
  );
}

/** The form in which a machine is added. */
const NEW_MACHINE = 'machine';

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

function AddMachine({ added }: { added(): void }) {
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
