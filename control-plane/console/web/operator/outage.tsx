// One outage for operators: its cause, the rentals that it stopped, the credits for it, and the decisions that are still open.
import { Link } from 'wouter-preact';
import type { Outage, OutageDetail, OutageRental } from '../../../../shared/api/outage.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { dollars, duration, plural, shortId, time } from '../core/format.ts';
import type { ScreenProps } from '../core/screen.ts';
import { Badge, Card, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { Decisions } from './decision.tsx';
import { CREDIT_VERBS } from './verbs.ts';

const OUTAGES = { path: '/admin/v1/outages', command: 'svc-control-plane admin outage' };
const CREDITS = { path: '/admin/v1/credits', command: 'svc-control-plane admin credit' };
const REREAD_MS = 10_000;
const CAUSES: Record<Outage['cause'], string> = {
  outage: 'Nobody could reach the host',
  gpu_fault: 'A GPU is broken',
  own_outage: 'This service was away',
};

export function OutagePage({ params: { id = '' } }: ScreenProps) {
  const path = `${OUTAGES.path}/${encodeURIComponent(id)}`;
  const { data, error, reload } = useResource<OutageDetail>(path, { everyMs: REREAD_MS });
  const shown = data.value;
  return (
    <>
      <Head
        title="Outage"
        crumb={
          <>
            <Link href="/console/operate/outages">Outages</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `${OUTAGES.command} show ${id}`, curl: { path } }}
      />
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {shown !== undefined && (
        <>
          <Verdict shown={shown} />
          <Card title="Affected rentals" note="oldest first, at most 200">
            <RowsTable caption="Affected rentals" rows={shown.affected} columns={rentalColumns(reload)} idOf={idOf} />
          </Card>
        </>
      )}
    </>
  );
}

function Verdict({ shown: { outage, affected } }: { shown: OutageDetail }) {
  const { cause, machine_id: machineId, until, from, evidence } = outage;
  const open = affected.filter(({ credit_state: state }) => state === 'held').length;
  const seconds = ((until === null ? serviceNow() : Date.parse(until)) - Date.parse(from)) / 1_000;
  return (
    <>
      <Note tone={until === null ? 'bad' : open > 0 ? 'warn' : 'plain'}>
        <b>{until === null ? 'It lasts.' : open > 0 ? `${plural(open, 'credit')} to decide.` : 'It is over.'}</b>{' '}
        {CAUSES[cause]}: {evidence}
      </Note>
      <Figures
        figures={[
          { label: 'Cause', value: cause.replaceAll('_', ' '), small: CAUSES[cause] },
          {
            label: 'Machine',
            value:
              machineId === null ? (
                'all'
              ) : (
                <Link href={`/console/operate/fleet/${machineId}`}>{shortId(machineId)}</Link>
              ),
            small: machineId === null ? 'an outage of our own' : 'suspend or approve it there',
          },
          {
            label: 'Not charged for',
            value: duration(seconds),
            small: `${time(from)} to ${until === null ? 'now' : time(until)}`,
          },
          {
            label: 'Rentals',
            value: String(outage.rentals),
            small: `${outage.open_rentals} not charged now`,
          },
          { label: 'Credited', value: dollars(outage.credited), small: `${dollars(outage.held)} more was held` },
        ]}
      />
    </>
  );
}

/** A rental may be affected several times. */
const idOf = ({ instance_id: id, from }: OutageRental): string => `${id} ${from}`;

const STATES = { held: 'warn', released: 'ok', refused: '' } as const;

function rentalColumns(decided: () => Promise<void>): readonly Column<OutageRental>[] {
  return [
    { title: 'Instance', cell: ({ instance_id: id }) => <code class="brk">{id}</code> },
    {
      title: 'Organisation',
      class: 'w',
      cell: ({ org_id: id }) => <Link href={`/console/operate/orgs/${id}`}>{id}</Link>,
    },
    { title: 'From', class: 'w', cell: ({ from }) => time(from) },
    { title: 'Until', class: 'w', cell: ({ until }) => (until === null ? 'now' : time(until)) },
    { title: 'Credited', class: 'num', cell: ({ credited }) => dollars(credited) },
    {
      title: 'Held',
      cell: ({ credit_state: state, credit_dollars: amount }) =>
        state === null ? '–' : <Badge tone={STATES[state]}>{`${dollars(amount ?? 0)} ${state}`}</Badge>,
    },
    {
      title: 'Decide',
      cell: ({ credit_id: id, credit_state: state }) =>
        id !== null && <Decisions {...CREDITS} verbs={CREDIT_VERBS} row={{ state }} id={id} decided={decided} />,
    },
  ];
}
