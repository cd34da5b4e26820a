// The machines of a supplier and their status, and a form to become a supplier.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { CommunityMachine, CommunitySupplier } from '../../../../shared/api/community.ts';
import { post } from '../core/api.ts';
import { useLiveList, useResource } from '../core/data.ts';
import { cents, gpus, plural, rate } from '../core/format.ts';
import { may } from '../core/session.ts';
import { isTyped } from '../core/typed.ts';
import { Find, Segments } from '../parts/choosing.tsx';
import { Form, useAction } from '../parts/forms.tsx';
import { Card, Empty, Head, Note, Problem } from '../parts/layout.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';
import { calledOf } from './machine-name.tsx';
import { MachineStatus } from './machine-status.tsx';
import { AddMachine, NEW_MACHINE } from './new-machine.tsx';

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

const SHOWN = ['In supply', 'Off offer', 'All'] as const;
type Shown = (typeof SHOWN)[number];

const NOTES: Record<Shown, string> = {
  'In supply': 'All but the delisted ones.',
  'Off offer': 'Those in supply of which nothing is on offer, each with the reason.',
  All: 'Every machine that you have registered, also the delisted ones.',
};

function Listed({ isSuspended }: { isSuspended: boolean }) {
  const [isAdding, setAdding] = useState(isTyped(NEW_MACHINE));
  const [shown, setShown] = useState<Shown>('In supply');
  const [text, setText] = useState('');
  const wanted = text.trim().toLowerCase();
  const isAmong = (machine: CommunityMachine): boolean => isShown(machine, shown) && wordsOf(machine).includes(wanted);
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
      <div class="row far">
        <Segments<Shown>
          label="Show"
          value={shown}
          options={SHOWN.map((each) => [each, each] as const)}
          onValue={setShown}
        />
        <Find label="Filter" placeholder="Filter by name, id, region or GPU" value={text} onValue={setText} />
      </div>
      <LiveTable
        caption="Machines"
        list={list}
        columns={COLUMNS}
        only={isAmong}
        footer={<Sums machines={(list.rows.value ?? []).map((row) => row.value).filter(isAmong)} />}
        empty={<Nothing isFiltered={(list.rows.value ?? []).length > 0} />}
      />
      <p class="small quiet">{NOTES[shown]} The sums are those of the rows above.</p>
    </>
  );
}

function isShown({ status, on_offer: isOnOffer }: CommunityMachine, shown: Shown): boolean {
  if (shown === 'All') return true;
  return status !== 'delisted' && (shown === 'In supply' || !isOnOffer);
}

function wordsOf(machine: CommunityMachine): string {
  const { machine_id: id, hostname, region, reported_gpus: groups } = machine;
  const types = groups.map(({ gpu_type: type }) => `${type} ${type.replaceAll('_', ' ')}`);
  return [calledOf(machine), id, hostname ?? '', region, ...types].join(' ').toLowerCase();
}

function Sums({ machines }: { machines: readonly CommunityMachine[] }) {
  const groups = machines.flatMap(({ reported_gpus: reported }) => reported);
  const all = groups.reduce((sum, { count }) => sum + count, 0);
  const rented = groups.reduce((sum, group) => sum + group.rented, 0);
  const earned = machines.reduce((sum, machine) => sum + machine.earned_today_cents, 0);
  const online = machines.filter((machine) => machine.online).length;
  return (
    <tr>
      <th scope="row" colSpan={2}>
        {plural(machines.length, 'machine')}, {online} online
      </th>
      <td>
        {plural(all, 'GPU')}
        <small>{rented} rented</small>
      </td>
      <td class="num w" />
      <td class="num">{cents(earned)}</td>
    </tr>
  );
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered)
    return (
      <Empty title="No machine matches" cli="svc machine list --status delisted">
        “All” has the delisted ones too.
      </Empty>
    );
  return (
    <Empty title="No machine yet" cli="svc machine enroll --region eu-west --price 0.80">
      Add one, and run the line that you get on the machine.
    </Empty>
  );
}
