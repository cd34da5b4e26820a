// All instances, newest first. Rows change as the service reports it.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { Instance } from '../../../../shared/api/instance.ts';
import { useLiveList } from '../core/data.ts';
import { gpus, rate, time } from '../core/format.ts';
import type { Column } from '../parts/table.tsx';
import { LiveTable } from '../parts/table.tsx';
import { Empty, Head } from '../parts/layout.tsx';
import { InstanceStatus } from './instance-status.tsx';

const COLUMNS: readonly Column<Instance>[] = [
  {
    title: 'Name',
    cell: ({ id, name, gpu_count: count, gpu_type: type }) => (
      <>
        <Link href={`/console/instances/${id}`}>{name ?? id}</Link>
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
        {gpus(count, type)}
        <small>{region}</small>
      </>
    ),
  },
  { title: 'Asked for', class: 'w x', cell: ({ created_at: at }) => <time dateTime={at}>{time(at)}</time> },
  { title: 'Per hour', class: 'num', cell: ({ price_per_hour: price }) => rate(price) },
];

export function Instances() {
  const [text, setText] = useState('');
  const list = useLiveList<Instance>({ path: '/v1/instances?limit=50', idOf: ({ id }) => id, type: 'instance' });
  const wanted = text.trim().toLowerCase();
  return (
    <>
      <Head title="Instances" same={{ cli: 'svc instance list', curl: { path: '/v1/instances?limit=50' } }}>
        <Link class="btn pri" href="/console/launch">
          Launch
        </Link>
      </Head>
      <label class="find">
        <span class="sr">Filter</span>
        <input
          type="search"
          placeholder="Filter by name, id or GPU"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <LiveTable
        caption="Instances"
        list={list}
        columns={COLUMNS}
        only={({ id, name, gpu_type: type }) => `${name ?? ''} ${id} ${type}`.toLowerCase().includes(wanted)}
        empty={
          <Empty
            title={wanted === '' ? 'Nothing runs yet' : 'No instance matches'}
            cli="svc run --gpu-type RTX_4090 --image nginx"
            action={
              <Link class="btn" href="/console/launch">
                Launch
              </Link>
            }
          >
            An instance is a container of yours on somebody's GPUs. It is billed by the second from the moment that SSH
            works.
          </Empty>
        }
      />
    </>
  );
}
