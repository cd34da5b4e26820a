// One instance: how to connect, what it costs, whether it works, and when it stops.
import { Link, useSearchParams } from 'wouter-preact';
import type { InstanceBill } from '../../../../shared/api/instance-bill.ts';
import type { InstanceEvent } from '../../../../shared/api/instance-journal.ts';
import type { Instance } from '../../../../shared/api/instance.ts';
import type { Page } from '../../../../shared/api/page.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { dollars, duration, gpus, quoted, rate, relative, time } from '../core/format.ts';
import type { ScreenProps } from '../core/screen.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { GpuMetrics } from '../parts/gpu-metrics.tsx';
import { Card, Empty, type Figure, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { Actions } from './instance-actions.tsx';
import { Bill } from './instance-bill.tsx';
import { Boot, isBooting } from './instance-boot.tsx';
import { Connect } from './instance-connect.tsx';
import { Log } from './instance-log.tsx';
import { InstanceStatus } from './instance-status.tsx';

const REREAD_MS = 10_000;
const EVENTS_SHOWN = 100;

export function InstancePage({ params }: ScreenProps) {
  const id = encodeURIComponent(params['id'] ?? '');
  const path = `/v1/instances/${id}`;
  const on = [{ type: 'instance', id: params['id'] ?? '' }];
  const [query] = useSearchParams();
  const instance = useResource<Instance>(path, { on, everyMs: REREAD_MS });
  const bill = useResource<InstanceBill>(`${path}/bill`, { on, everyMs: REREAD_MS });
  const events = useResource<Page<InstanceEvent>>(`${path}/events?limit=${EVENTS_SHOWN}`, { on });
  const shown = instance.data.value;
  const error = instance.error.value;
  if (shown === undefined) {
    return error === undefined ? <p class="quiet">Reading…</p> : <Missing id={params['id'] ?? ''} error={error} />;
  }
  const title = shown.name ?? shown.id;
  const verb = isBooting(shown) ? 'wait' : 'get';
  const cost = bill.data.value?.totals.cost;
  return (
    <>
      <Head
        title={title}
        crumb={
          <>
            <Link href="/console/instances">Instances</Link> / <code>{shown.id}</code>
          </>
        }
        same={{ cli: `svc instance ${verb} ${quoted(title)}`, curl: { path } }}
      >
        {may('instances: write') && <Actions instance={shown} cost={cost} reload={instance.reload} />}
      </Head>
      {error !== undefined && <Problem error={error} retry={() => void instance.reload()} />}
      {shown.status === 'unreachable' && (
        <Note tone="warn">SSH does not get through. This time is not charged. The host may come back by itself.</Note>
      )}
      <Figures figures={figuresOf(shown, bill.data.value)} />
      {shown.image !== undefined && (
        <p class="small dim">
          Image <code class="brk">{shown.image}</code>
        </p>
      )}
      <Parts instance={shown} bill={bill} events={events.data.value?.data ?? []} operationId={query.get('operation')} />
    </>
  );
}

interface PartsProps {
  instance: Instance;
  bill: ReturnType<typeof useResource<InstanceBill>>;
  /** Newest first. */
  events: readonly InstanceEvent[];
  operationId: string | null;
}

function Parts({ instance, bill, events, operationId }: PartsProps) {
  const booting = isBooting(instance);
  const boot = <Boot instance={instance} events={events.toReversed()} operationId={operationId} />;
  const refusal = bill.error.value;
  return (
    <div class="split">
      <div class="stack">
        {booting && boot}
        {!booting && instance.connection !== null && <Connect instance={instance} />}
        {!booting && refusal !== undefined && <Problem error={refusal} retry={() => void bill.reload()} />}
        {!booting && refusal === undefined && <Bill instance={instance} bill={bill.data.value} />}
        {!booting && <Log instance={instance} />}
      </div>
      <div class="stack">
        {booting && <Connect instance={instance} />}
        {instance.ready_at !== null && <Usage instance={instance} />}
        {!booting && boot}
        <Events instance={instance} events={events} />
      </div>
    </div>
  );
}

function Usage({ instance: { id, name } }: { instance: Instance }) {
  return <GpuMetrics path={`/v1/instances/${id}/metrics`} cli={`svc instance metrics ${quoted(name ?? id)} --watch`} />;
}

function Events({ instance: { id, name }, events }: { instance: Instance; events: readonly InstanceEvent[] }) {
  return (
    <Card
      title="Events"
      footer={
        <SameAs cli={`svc instance events ${quoted(name ?? id)}`} curl={{ path: `/v1/instances/${id}/events` }} />
      }
    >
      <ol class="steps pad">
        {events.map((event) => (
          <li key={event.id}>
            <code class="small">{event.type}</code>
            <time class="at" dateTime={event.created_at}>
              {time(event.created_at)}
            </time>
            <span class="small quiet">{wordsOf(event)}</span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

/** The reason, and the time from which the event counts for billing if that is not its own time. Some reasons are sentences. */
function wordsOf({ reason, since }: InstanceEvent): string {
  if (since === null) return reason ?? '';
  const from = `counts from ${time(since)}`;
  return reason === null ? from : `${reason.replace(/\.$/, '')}; ${from}`;
}

function Missing({ id, error }: { id: string; error: NonNullable<ReturnType<typeof useResource>['error']['value']> }) {
  return (
    <>
      <Head title="Instance" crumb={<Link href="/console/instances">Instances</Link>} />
      {error.status === 404 ? (
        <Card>
          <Empty title={`There is no instance ${id}`} cli="svc instance list">
            It is of another organisation, or the address is wrong.
          </Empty>
        </Card>
      ) : (
        <Problem error={error} />
      )}
    </>
  );
}

/** A launch that still looks for its GPUs has no price yet. */
function priceOf({ price_per_hour: price, tier, status }: Instance): Pick<Figure, 'value' | 'small'> {
  if (tier === 'reserved') return { value: rate(price), small: 'paid by the contract' };
  if (status === 'allocating' && price === 0) return { value: '–', small: 'known once it has its GPUs' };
  return { value: rate(price), small: 'for the whole instance' };
}

function figuresOf(instance: Instance, bill: InstanceBill | undefined): Figure[] {
  const { gpu_count: count, gpu_type: type } = instance;
  return [
    { label: 'Status', value: <InstanceStatus instance={instance} /> },
    billed(instance, bill),
    {
      label: isBooting(instance) ? 'When running, per hour' : 'Per hour',
      ...priceOf(instance),
    },
    {
      label: 'GPUs',
      value: gpus(count, type),
      small: placeOf(instance),
    },
    ending(instance),
  ];
}

/** Where it runs and what it got there, like `eu-north, 26 CPUs, 240 GB RAM, 100 GB disk`. */
function placeOf({ region, cpu_cores: cpus, ram_gb: ram, disk_gb: disk }: Instance): string {
  const parts = [
    region,
    cpus === undefined ? undefined : `${cpus} ${cpus === 1 ? 'CPU' : 'CPUs'}`,
    ram === undefined ? undefined : `${ram} GB RAM`,
    disk === undefined ? undefined : `${disk} GB disk`,
  ];
  return parts.filter((part) => part !== undefined).join(', ');
}

function billed(instance: Instance, bill: InstanceBill | undefined): Figure {
  const label = 'Billed so far';
  if (instance.ready_at === null) {
    const isOver = instance.status === 'error' || instance.terminated_at !== null;
    return { label, value: '$0.00', small: isOver ? 'it never ran' : 'not billed yet', tone: 'ok' };
  }
  if (bill === undefined) return { label, value: '…' };
  const seconds = bill.segments.reduce((sum, segment) => sum + segment.seconds, 0);
  return { label, value: dollars(bill.totals.cost), small: `${duration(seconds)} charged` };
}

function ending(instance: Instance): Figure {
  const { terminated_at: ended, auto_terminate_at: end, auto_terminate_hours: hours } = instance;
  const { host_rentable_until: leaves } = instance;
  if (ended !== null) return { label: 'Ended', value: time(ended), small: relative(ended) };
  if (instance.status === 'error') return { label: 'Ended', value: 'failed', small: 'nothing is billed any more' };
  const label = 'Stops by itself';
  const endsOnExit = instance.auto_terminate_on_exit === true;
  const host = leaves === null ? '' : `; its host leaves the market at ${time(leaves)}`;
  const sooner = `${endsOnExit ? ', or with its program' : ''}${host}`;
  if (end !== undefined) {
    const left = Math.max(0, (Date.parse(end) - serviceNow()) / 3_600_000) * instance.price_per_hour;
    return { label, value: relative(end), small: `at ${time(end)}, ${dollars(left)} more${sooner}` };
  }
  if (hours !== undefined) return { label, value: `after ${hours} h`, small: `counts from running${sooner}` };
  if (endsOnExit) return { label, value: 'with its program', small: `as soon as its main process has ended${host}` };
  return { label, value: 'no limit', small: `until you terminate it${host}` };
}
