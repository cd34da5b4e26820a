// One machine for operators: its state, its GPUs with their figures, the rentals on it, and its last events.
import { Link } from 'wouter-preact';
import type { MachineMetrics } from '../../../../shared/api/metrics.ts';
import type { OperatorGpu, OperatorMachine } from '../../../../shared/api/operator-machine.ts';
import { useResource } from '../core/data.ts';
import { count, relative, shortId } from '../core/format.ts';
import type { ScreenProps } from '../core/screen.ts';
import { SameAs } from '../parts/command.tsx';
import { Badge, Card, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { CheckSteps, passedWords } from '../supplier/check-steps.tsx';
import { Decisions } from './decision.tsx';
import { factColumns, FactsOf, FactsTable } from './facts.tsx';
import { MACHINE_VERBS, RARE_MACHINE_VERBS, textOf } from './verbs.ts';

const MACHINES = { path: '/admin/v1/machines', command: 'svc-control-plane admin machine' };
const REREAD_MS = 10_000;

export function FleetMachine({ params: { id = '' } }: ScreenProps) {
  const path = `${MACHINES.path}/${encodeURIComponent(id)}`;
  const { data, error, reload } = useResource<OperatorMachine>(path, { everyMs: REREAD_MS });
  const shown = data.value;
  const verbs = [...MACHINE_VERBS, ...RARE_MACHINE_VERBS];
  return (
    <>
      <Head
        title={`Machine ${textOf(shown?.machine['name']) || shortId(id)}`}
        crumb={
          <>
            <Link href="/console/operate/fleet">Fleet</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `${MACHINES.command} show ${id}`, curl: { path } }}
      >
        {shown !== undefined && <Decisions {...MACHINES} verbs={verbs} row={shown.machine} id={id} decided={reload} />}
      </Head>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {shown !== undefined && <Parts id={id} shown={shown} />}
    </>
  );
}

function Parts({ id, shown }: { id: string; shown: OperatorMachine }) {
  const { machine, checks, rentals, outages, events } = shown;
  const why = machine['off_market_because'];
  return (
    <>
      {typeof why === 'string' && <Note tone="warn">Nothing of it is on offer: {why}</Note>}
      <MachineFigures shown={shown} />
      <Gpus id={id} gpus={shown.gpus} />
      <div class="split even">
        <Card title="Checks" note={passedWords(checks)}>
          <CheckSteps checks={checks} />
        </Card>
        <Card title="Facts">
          <FactsOf row={machine} />
        </Card>
      </div>
      <Card title="What runs on it" note="instances that have it now">
        <FactsTable caption="What runs on it" rows={rentals} columns={RENTAL}>
          No instance has it.
        </FactsTable>
      </Card>
      <Card title="Outages of late" note="the latest 20">
        {outages.length === 0 ? (
          <p class="pad quiet">No rental on it was ever stopped.</p>
        ) : (
          <RowsTable caption="Outages of late" rows={outages} columns={OUTAGES} />
        )}
      </Card>
      <Card title="Events" note="the newest 20">
        <FactsTable caption="Events" rows={events} columns={['at', 'type', 'detail']}>
          Its events are forgotten.
        </FactsTable>
      </Card>
    </>
  );
}

const RENTAL = ['instance_id', 'status', 'gpus', 'org_id', 'price_per_hour', 'since'];
const OUTAGES = factColumns(
  ['outage_id', 'cause', 'from', 'until', 'rentals', 'credited', 'held'],
  (row) => `/console/operate/outages/${textOf(row['outage_id'])}`,
);

function MachineFigures({ shown: { machine, on_offer: isOnOffer, gpus, reliability } }: { shown: OperatorMachine }) {
  const isOnline = machine['online'] === true;
  const heard = machine['last_heartbeat_at'];
  const lastHeard = typeof heard === 'string' ? `last heard ${relative(heard)}` : 'never heard';
  const used = gpus.filter(({ used_by: by }) => by !== null).length;
  const share = (value: number | null): string => (value === null ? 'no data' : `${(value * 100).toFixed(1)} %`);
  return (
    <Figures
      figures={[
        {
          label: 'Status',
          value: <Badge tone={isOnOffer ? 'ok' : 'warn'}>{textOf(machine['status'])}</Badge>,
          small: isOnOffer ? 'on offer' : 'not on offer',
        },
        {
          label: 'Link',
          value: <Badge tone={isOnline ? 'ok' : 'bad'}>{isOnline ? 'up' : 'down'}</Badge>,
          small: isOnline ? 'its agent is connected' : lastHeard,
        },
        { label: 'GPUs in use', value: `${used} of ${gpus.length}`, small: textOf(machine['gpu_name']) },
        {
          label: 'Uptime, 30 days',
          value: share(reliability.uptime),
          small: reliability.rented === null ? 'no rental' : `${share(reliability.rented)} rented`,
        },
        {
          label: 'Launches, 30 days',
          value: count(reliability.launches),
          small: `${count(reliability.failed_launches)} failed`,
        },
      ]}
    />
  );
}

/** The GPUs that the control plane knows, each with the host's newest sample. While the sample is read, the host samples every second. */
function Gpus({ id, gpus }: { id: string; gpus: readonly OperatorGpu[] }) {
  const path = `${MACHINES.path}/${encodeURIComponent(id)}/metrics`;
  const { data } = useResource<MachineMetrics>(path, { everyMs: REREAD_MS });
  const latest = data.value?.latest ?? null;
  const rows = gpus.map((gpu) => ({ ...gpu, now: latest?.gpus.find(({ uuid }) => uuid === gpu.gpu_uuid) }));
  const figure = (
    title: string,
    of: (now: NonNullable<(typeof rows)[number]['now']>) => number | null,
    unit: string,
  ) => ({
    title,
    class: 'num w',
    cell: ({ now }: (typeof rows)[number]) => {
      const value = now === undefined ? null : of(now);
      return value === null ? '–' : `${count(Math.round(value))} ${unit}`;
    },
  });
  const columns: readonly Column<(typeof rows)[number]>[] = [
    {
      title: 'GPU',
      cell: (gpu) => (
        <>
          {gpu.index}: {gpu.gpu_type.replaceAll('_', ' ')}
          <br />
          <small class="quiet brk">{gpu.gpu_uuid}</small>
        </>
      ),
    },
    {
      title: 'State',
      cell: ({ fault, usable }) =>
        fault === null ? (
          <Badge tone={usable ? 'ok' : ''}>{usable ? 'usable' : 'not used'}</Badge>
        ) : (
          <Badge tone="bad">{fault}</Badge>
        ),
    },
    { title: 'Used by', cell: (gpu) => <span class="brk">{gpu.used_by ?? gpu.reserved_by ?? '–'}</span> },
    figure('Utilisation', (now) => now.utilization_percent, '%'),
    figure('Memory', (now) => now.memory_used_mib, 'MiB'),
    figure('Temperature', (now) => now.temperature_celsius, '°C'),
    figure('Power', (now) => now.power_watts, 'W'),
  ];
  return (
    <Card
      title="GPUs"
      note={latest === null ? 'no figures of the last minutes' : `figures of ${relative(latest.at)}`}
      footer={<SameAs cli={`${MACHINES.command} metrics ${id}`} curl={{ path }} />}
    >
      {rows.length === 0 ? (
        <p class="pad quiet">The host has not reported a GPU.</p>
      ) : (
        <RowsTable caption="GPUs" rows={rows} columns={columns} />
      )}
    </Card>
  );
}
