// Contracts for reserved capacity. The operator makes them; a launch with tier reserved uses them.
import { Link } from 'wouter-preact';
import type { Reservation } from '../../../../shared/api/reservation.ts';
import { useResource } from '../core/data.ts';
import { date, gpus, plural } from '../core/format.ts';
import { Badge, Card, Empty, Figures, Head, Note, Problem, type Tone } from '../parts/layout.tsx';
import { RowsTable } from '../parts/table.tsx';

const TONES: Record<Reservation['status'], Tone> = {
  pending: 'info',
  active: 'ok',
  suspended: 'warn',
  expired: '',
  cancelled: '',
};

const RENEWALS: Record<Reservation['renewal']['mode'], string> = {
  auto_renew: 'a term of the same length follows',
  manual: 'the operator extends it',
  none: 'it ends',
};

export function Reservations() {
  const { data, error, reload } = useResource<Reservation[]>('/v1/reservations', {
    on: [{ type: 'reservation' }, { type: 'instance' }],
  });
  const contracts = data.value;
  return (
    <>
      <Head title="Reservations" same={{ cli: 'svc reservation list', curl: { path: '/v1/reservations' } }} />
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {contracts === undefined && error.value === undefined && <p class="quiet">Reading…</p>}
      {contracts?.length === 0 && (
        <Card>
          <Empty title="No contract" cli="svc reservation list">
            A contract sets GPUs aside for you for a term. The operator of the service makes it: ask them.
          </Empty>
        </Card>
      )}
      {contracts?.map((contract) => (
        <Contract key={contract.reservation_id} contract={contract} />
      ))}
    </>
  );
}

function Contract({ contract }: { contract: Reservation }) {
  const { title, reservation_id: id, status, starts_at: start, ends_at: end, renewal, utilization: used } = contract;
  return (
    <section class="stack" aria-label={title}>
      <h2>
        {title} <code class="small quiet">{id}</code>
      </h2>
      {renewal.expiring_soon && status === 'active' && (
        <Note tone="warn">
          It ends in {plural(renewal.days_until_end, 'day')}: {RENEWALS[renewal.mode]}.
        </Note>
      )}
      <Figures
        figures={[
          { label: 'Status', value: <Badge tone={TONES[status]}>{status}</Badge> },
          { label: 'Term', value: `${date(start)} – ${date(end)}`, small: `then ${RENEWALS[renewal.mode]}` },
          {
            label: 'In use',
            value: `${used.allocated_gpus} of ${plural(used.committed_gpus, 'GPU')}`,
            small: `${Math.round(used.pct * 100)}%`,
          },
        ]}
      />
      <Card title="GPUs">
        <RowsTable
          caption={`GPUs of ${title}`}
          rows={contract.commitment}
          columns={[
            { title: 'GPU', cell: ({ gpu_count: count, gpu_type: type }) => gpus(count, type) },
            { title: 'Region', cell: ({ region }) => region },
          ]}
        />
      </Card>
      {contract.instances.length > 0 && <Users title={title} instances={contract.instances} />}
    </section>
  );
}

function Users({ title, instances }: { title: string; instances: Reservation['instances'] }) {
  return (
    <Card title="Instances">
      <RowsTable
        caption={`Instances of ${title}`}
        rows={instances}
        columns={[
          {
            title: 'Instance',
            cell: ({ instance_id: instance }) => (
              <Link href={`/console/instances/${instance}`}>
                <code>{instance}</code>
              </Link>
            ),
          },
          { title: 'Status', cell: ({ status }) => status },
          { title: 'GPUs', class: 'num', cell: ({ gpu_count: count }) => count },
        ]}
      />
    </Card>
  );
}
