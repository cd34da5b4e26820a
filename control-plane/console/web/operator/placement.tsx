// Why an instance got its machine, or none: the machines that each condition excludes, the candidates in order, and alternatives that would work.
import { Link } from 'wouter-preact';
import type { PlacementAttempt, PlacementExplanation, PlacementFilter } from '../../../../shared/api/placement.ts';
import { useResource } from '../core/data.ts';
import { count, plural, rate, time } from '../core/format.ts';
import type { ScreenProps } from '../core/screen.ts';
import { Card, Head, Note, Problem } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { FactsOf } from './facts.tsx';

const RENTALS = { path: '/admin/v1/instances', command: 'svc-control-plane admin instance' };

export function PlacementPage({ params: { id = '' } }: ScreenProps) {
  const path = `${RENTALS.path}/${encodeURIComponent(id)}/placement`;
  const { data, error, reload } = useResource<PlacementExplanation>(path);
  const shown = data.value;
  return (
    <>
      <Head
        title={shown === undefined ? 'Placement' : titleOf(shown)}
        crumb={
          <>
            <Link href="/console/operate/rentals">Rentals</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `${RENTALS.command} placement ${id}`, curl: { path } }}
      >
        <button class="btn" type="button" onClick={() => void reload()}>
          Explain again
        </button>
      </Head>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {shown !== undefined && <Parts shown={shown} />}
    </>
  );
}

const titleOf = ({ request, instance_id: id, machine_id: machineId }: PlacementExplanation): string => {
  const name = request['name'] ?? id;
  return machineId === null ? `Why ${name} has no machine` : `Why ${name} got its machine`;
};

function Parts({ shown }: { shown: PlacementExplanation }) {
  const { as_of: at, candidate_count: fitting, status, status_reason: reason, machine_id: machineId } = shown;
  return (
    <>
      <Note
        tone={fitting === 0 ? 'bad' : 'plain'}
        action={
          machineId !== null && (
            <Link class="btn sm" href={`/console/operate/fleet/${machineId}`}>
              Open its machine
            </Link>
          )
        }
      >
        <b>
          {fitting === 0
            ? 'No offering fits now.'
            : `${count(fitting)} ${fitting === 1 ? 'offering fits' : 'offerings fit'} now.`}
        </b>{' '}
        The market is shown as it is at {time(at)}. What it was when the instance was placed is not stored. The instance
        is {status}
        {reason === null ? '.' : `: ${reason}`}
      </Note>
      <div class="split">
        <div class="stack">
          <Filters shown={shown} />
          <Candidates shown={shown} />
        </div>
        <div class="stack">
          <Card title="Request">
            <FactsOf row={shown.request} />
          </Card>
          <Alternatives shown={shown} />
          <Attempts attempts={shown.attempts} />
        </div>
      </div>
    </>
  );
}

const MARKETS = {
  on_demand: '',
  reserved: 'It is placed in the slots of its contract alone, so the market has no part in it.',
  spot: 'Spot capacity is not sold at present.',
};

function Filters({ shown: { filters, as_of: at, market } }: { shown: PlacementExplanation }) {
  const all = filters[0]?.left ?? 0;
  const columns: readonly Column<PlacementFilter>[] = [
    {
      title: 'Condition',
      cell: ({ filter, field }) => (
        <>
          {filter}
          {field !== null && (
            <>
              <br />
              <code class="small quiet">{field}</code>
            </>
          )}
        </>
      ),
    },
    { title: `Of ${count(all)}, logarithmic`, class: 'fun w', cell: ({ left }) => <Bar left={left} all={all} /> },
    { title: 'Removed', class: 'num', cell: ({ removed }) => (removed === 0 ? '0' : `−${count(removed)}`) },
    { title: 'Left', class: 'num', cell: ({ left }) => <b>{count(left)}</b> },
  ];
  return (
    <Card title="What each condition removes" note={`${plural(all, 'offering')} at ${time(at)}`}>
      {filters.length === 0 ? (
        <p class="pad quiet">{MARKETS[market]}</p>
      ) : (
        <RowsTable caption="What each condition removes" rows={filters} columns={columns} />
      )}
    </Card>
  );
}

function Bar({ left, all }: { left: number; all: number }) {
  const share = left === 0 ? 0 : (100 * Math.log1p(left)) / Math.log1p(Math.max(all, 1));
  return (
    <svg class="ribbon" role="img" aria-label={`${count(left)} left`}>
      <rect x="0" width={`${share.toFixed(2)}%`} height="100%" class="f1" />
    </svg>
  );
}

const CANDIDATES: readonly Column<PlacementExplanation['candidates'][number]>[] = [
  {
    title: 'Machine',
    cell: ({ rank, machine_id: id }) => (
      <>
        {rank}. <Link href={`/console/operate/fleet/${id}`}>{id.slice(0, 13)}</Link>
      </>
    ),
  },
  { title: 'Region', class: 'w', cell: ({ region }) => region },
  { title: 'Per hour', class: 'num', cell: ({ price_per_hour: price }) => rate(price) },
  { title: 'GPUs left over', class: 'num', cell: ({ gpus_left_over: left }) => count(left) },
];

function Candidates({ shown: { candidates, candidate_count: fitting } }: { shown: PlacementExplanation }) {
  return (
    <Card
      title="Ranked candidates"
      note={fitting > candidates.length ? `the first ${candidates.length} of ${fitting}` : 'the first is tried first'}
      footer="The cheapest comes first, then the machine with the fewest GPUs left over. There is no other score."
    >
      {candidates.length === 0 ? (
        <p class="pad quiet">Nothing fits now.</p>
      ) : (
        <RowsTable caption="Ranked candidates" rows={candidates} columns={CANDIDATES} />
      )}
    </Card>
  );
}

const ALTERNATIVES: readonly Column<PlacementExplanation['alternatives'][number]>[] = [
  { title: 'Change', cell: ({ change }) => change },
  { title: 'Offerings', class: 'num', cell: ({ offerings }) => `+${count(offerings)}` },
  { title: 'From', class: 'num', cell: ({ price_per_hour: price }) => `${rate(price)}/h` },
];

function Alternatives({ shown: { alternatives, candidate_count: fitting, market } }: { shown: PlacementExplanation }) {
  if (fitting > 0 || market !== 'on_demand') return null;
  return (
    <Card title="What would work" note="offerings that fit now">
      {alternatives.length === 0 ? (
        <p class="pad quiet">No change of one point helps.</p>
      ) : (
        <RowsTable caption="What would work" rows={alternatives} columns={ALTERNATIVES} />
      )}
    </Card>
  );
}

function Attempts({ attempts }: { attempts: readonly PlacementAttempt[] }) {
  return (
    <Card title="Attempts">
      {attempts.length === 0 ? (
        <p class="pad quiet">Its events are forgotten.</p>
      ) : (
        <ol class="steps pad">
          {attempts.map(({ at, what, machine_id: machineId, detail }) => (
            <li key={`${at} ${what}`} class={what === 'instance.failed' ? 'bad' : 'done'}>
              <b>{what.replace('instance.', '')}</b>
              <time class="at" dateTime={at}>
                {time(at)}
              </time>
              {(machineId !== null || detail !== null) && (
                <span class="small quiet brk">{[machineId, detail].filter((part) => part !== null).join(', ')}</span>
              )}
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}
