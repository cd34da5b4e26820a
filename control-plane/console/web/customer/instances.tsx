// The list of all instances, newest first. Rows change when the live stream reports a change.
import { useMemo, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { Instance } from '../../../../shared/api/instance.ts';
import { serviceNow } from '../core/clock.ts';
import { useLiveList } from '../core/data.ts';
import { dollars, duration, gpus, rate } from '../core/format.ts';
import { Find, Segments } from '../parts/choosing.tsx';
import { SameAs } from '../parts/command.tsx';
import type { Column } from '../parts/table.tsx';
import { LiveTable } from '../parts/table.tsx';
import { Empty, Head, Problem } from '../parts/layout.tsx';
import { RibbonKey } from '../parts/ribbon.tsx';
import type { Costs } from './cost-reads.ts';
import { useCosts } from './instance-costs.ts';
import { LastDay, Spent, SpentByRows } from './instance-spent.tsx';
import { InstanceStatus } from './instance-status.tsx';

const columnsOf = (costs: Costs): readonly Column<Instance>[] => [
  {
    title: 'Name',
    cell: ({ id, name, gpu_count: count, gpu_type: type }) => (
      <>
        <Link class="brk" href={`/console/instances/${id}`}>
          {name ?? id}
        </Link>
        <br />
        <small class="quiet">
          <code class="w">{id}</code>
          <span class="n">{gpus(count, type)}</span>
        </small>
      </>
    ),
  },
  { title: 'Status', cell: (instance) => <InstanceStatus instance={instance} /> },
  {
    title: 'GPU',
    class: 'w',
    cell: ({ gpu_count: count, gpu_type: type, region }) => (
      <>
        <span class="num">{gpus(count, type)}</span>
        <small class="num">{region}</small>
      </>
    ),
  },
  { title: 'Last 24 h', class: 'w rib', cell: (instance) => <LastDay instance={instance} costs={costs} /> },
  { title: 'Runtime', class: 'w x', cell: (instance) => <span class="dim num l">{runtimeOf(instance)}</span> },
  {
    title: 'Per hour',
    class: 'num w',
    cell: ({ price_per_hour: price, status }) => <span class={status === 'running' ? '' : 'quiet'}>{rate(price)}</span>,
  },
  { title: 'Spent', class: 'num', cell: ({ id }) => <Spent id={id} costs={costs} /> },
];

const DAY_MS = 86_400_000;
const SHOWN = ['Recent', 'Active', 'All'] as const;
type Shown = (typeof SHOWN)[number];

export function Instances() {
  const [text, setText] = useState('');
  const [shown, setShown] = useState<Shown>('Recent');
  const list = useLiveList<Instance>({
    path: '/v1/instances?limit=200',
    idOf: ({ id }) => id,
    type: 'instance',
    isWhole: true,
  });
  const costs = useCosts();
  const columns = useMemo(() => columnsOf(costs), [costs]);
  const wanted = text.trim().toLowerCase();
  return (
    <>
      <Head title="Instances" same={{ cli: 'svc instance list', curl: { path: '/v1/instances?limit=50' } }}>
        <Link class="btn pri" href="/console/launch">
          Launch
        </Link>
      </Head>
      <div class="row far">
        <Segments<Shown>
          label="Show"
          value={shown}
          options={SHOWN.map((each) => [each, each] as const)}
          onValue={setShown}
        />
        <Find label="Filter" placeholder="Filter by name, id or GPU" value={text} onValue={setText} />
      </div>
      <LiveTable
        caption="Instances"
        list={list}
        columns={columns}
        only={(instance) => isAmong(instance, shown) && wordsOf(instance).includes(wanted)}
        footer={<Now instances={(list.rows.value ?? []).map((row) => row.value)} costs={costs} />}
        empty={<Nothing isFiltered={wanted !== '' || (shown !== 'All' && (list.rows.value ?? []).length > 0)} />}
      />
      {costs.error.value !== undefined && <Problem error={costs.error.value} />}
      <p class="small quiet">{NOTES[shown]} The sum of what was spent is that of the rows above.</p>
      <SameAs cli="svc instance costs" curl={{ path: '/v1/instance-costs?limit=50' }} />
    </>
  );
}

const NOTES: Record<Shown, string> = {
  Recent: 'Active, or ended in the last 24 hours.',
  Active: 'Those that have not ended.',
  All: 'Every instance that there was, newest first.',
};

function Now({ instances, costs }: { instances: readonly Instance[]; costs: Costs }) {
  const active = instances.filter(isActive);
  const billed = active.filter(({ status }) => status === 'running');
  const perHour = billed.reduce((sum, { price_per_hour: price }) => sum + price, 0);
  return (
    <tr>
      <th scope="row" colSpan={2}>
        Billing now: {billed.length} of {active.length} active
      </th>
      <td class="w" colSpan={2}>
        <RibbonKey />
      </td>
      <td class="w x" />
      <td class="num w">{dollars(perHour)}</td>
      <td class="num">
        <SpentByRows costs={costs} />
      </td>
    </tr>
  );
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  return (
    <Empty
      title={isFiltered ? 'No instance matches' : 'Nothing runs yet'}
      cli="svc run --gpu-type RTX_4090 --image nginx"
      action={
        <Link class="btn" href="/console/launch">
          Launch
        </Link>
      }
    >
      An instance is a container of yours on somebody's GPUs. It is billed by the second from the moment that SSH works.
    </Empty>
  );
}

const isActive = ({ terminated_at: ended, status }: Instance): boolean => ended === null && status !== 'error';

function isAmong(instance: Instance, shown: Shown): boolean {
  if (shown === 'All' || isActive(instance)) return true;
  const { terminated_at: ended, created_at: asked } = instance;
  return shown === 'Recent' && serviceNow() - Date.parse(ended ?? asked) < DAY_MS;
}

const wordsOf = ({ id, name, gpu_type: type }: Instance): string => `${name ?? ''} ${id} ${type}`.toLowerCase();

/** The remaining time of an instance that runs, or the time that an ended instance has run, in words. */
function runtimeOf(instance: Instance): string {
  const { ready_at: ready, terminated_at: ended, auto_terminate_at: end, auto_terminate_hours: hours } = instance;
  if (instance.status === 'error') return ready === null ? 'never ran' : 'failed';
  if (ready === null)
    return ended === null && hours !== undefined ? `limit ${hours} h` : ended === null ? '–' : 'never ran';
  if (ended !== null) return `ran ${duration((Date.parse(ended) - Date.parse(ready)) / 1_000)}`;
  if (end !== undefined) return `${duration((Date.parse(end) - serviceNow()) / 1_000)} left`;
  return instance.auto_terminate_on_exit === true ? 'until its program ends' : 'no limit';
}
