// The overview of operators: whether the books balance, what is late, and what needs a person.
import { Link } from 'wouter-preact';
import type { Overview, OverviewLoop, OverviewServer, OverviewWaiting } from '../../../../shared/api/overview.ts';
import { useResource } from '../core/data.ts';
import { bytes, count, dollars, duration, plural, relative, time } from '../core/format.ts';
import { Badge, Card, type Figure, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { LinksDay, Traffic } from './overview-figures.tsx';

const PATH = '/admin/v1/overview';
const EVERY_MS = 10_000;
/** Due rows that wait longer than this are late. */
const LATE_SECONDS = 30;

export function OverviewScreen() {
  const { data, error, reload } = useResource<Overview>(PATH, { everyMs: EVERY_MS });
  const overview = data.value;
  if (overview === undefined)
    return error.value === undefined ? (
      <div class="card pad quiet">Reading…</div>
    ) : (
      <Problem error={error.value} retry={() => void reload()} />
    );
  const { at, started_at: started, version, epoch, secondaries, models } = overview;
  const seconds = (Date.parse(at) - Date.parse(started)) / 1_000;
  return (
    <>
      <Head title="Overview" same={{ cli: 'svc-control-plane admin overview', curl: { path: PATH } }}>
        <span class="small quiet">
          {`svc ${version}, up ${duration(seconds)}, epoch ${epoch}`}
          {secondaries > 0 && `, ${secondaries + 1} control planes`}
        </span>
      </Head>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {overview.paused.map((each) => (
        <Paused key={each.what} pause={each} at={at} />
      ))}
      <Figures figures={figuresOf(overview)} />
      <NeedsYou overview={overview} />
      <div class="split even">
        <Loops loops={overview.loops} at={at} />
        <div class="stack">
          <DueRows overview={overview} />
          <LinksDay day={overview.last_day} />
        </div>
      </div>
      {overview.traffic.length > 0 && <Traffic traffic={overview.traffic} />}
      {models.length > 0 && (
        <Card title="Model servers" note="as this control plane sees them">
          <RowsTable caption="Model servers" rows={models} columns={SERVERS} />
        </Card>
      )}
    </>
  );
}

function Paused({ pause: { what, since, by, reason }, at }: { pause: Overview['paused'][number]; at: string }) {
  return (
    <Note tone="bad">
      <b class="brk">{`${what === 'launches' ? 'Launches' : 'Payouts'} are paused: ${reason}`}</b>
      <br />
      {`By ${by} since ${time(since)}, ${relative(since, Date.parse(at))}. To end it: `}
      <code class="small brk">{`svc-control-plane admin resume ${what}`}</code>
    </Note>
  );
}

function figuresOf(overview: Overview): Figure[] {
  const { ledger, machines, gpus, outages, launches, disk, database_bytes: size } = overview;
  const silent = machines.listed - machines.linked;
  return [
    {
      label: 'Ledger',
      value: ledgerBadge(ledger),
      small:
        ledger.new_proven_at === null
          ? undefined
          : `${count(ledger.transfers)} transfers, ${time(ledger.new_proven_at)}`,
    },
    {
      label: 'Links up',
      value: `${count(machines.linked)} of ${count(machines.listed)}`,
      ...(silent === 0 ? {} : { small: `${count(silent)} silent`, tone: 'warn' as const }),
    },
    {
      label: 'Rented',
      value: plural(gpus.rented, 'GPU'),
      // A rented GPU of a host that is silent is not on the market.
      small: `on the market now: ${count(gpus.offered)}, rented or not; ${dollars(gpus.revenue_per_hour)}/h`,
    },
    {
      label: 'Outages now',
      value: count(outages.machines),
      small: `${plural(outages.rentals, 'rental')}, not charged`,
      ...(outages.rentals === 0 ? {} : { tone: 'bad' as const }),
    },
    {
      label: `Launches, ${duration(launches.seconds).split(' ').slice(0, 2).join(' ')}`,
      value: `${count(launches.ran)} of ${count(launches.asked)} ran`,
      small: launches.median_seconds === null ? undefined : `median ${duration(launches.median_seconds)}`,
    },
    {
      label: 'Disk',
      value: disk === null ? 'not measured' : `${Math.round((100 * disk.used_bytes) / disk.total_bytes)} % used`,
      small: `database ${bytes(size)}`,
    },
  ];
}

function ledgerBadge({ faults, new_proven_at: proven }: Overview['ledger']) {
  if (faults > 0) return <Badge tone="bad">{plural(faults, 'fault')}</Badge>;
  return proven === null ? 'not proven yet' : <Badge tone="ok">balances to 0</Badge>;
}

/** The screen on which an operator decides, for each kind of thing that waits for a decision. Only the command tells more about mails. */
const SCREENS: Partial<Record<OverviewWaiting['kind'], string>> = {
  deposit: '/console/operate/deposit-queue',
  credit: '/console/operate/credits',
  payout: '/console/operate/payouts',
  dispute: '/console/operate/rentals',
  machine: '/console/operate/fleet',
  webhook: '/console/operate/webhooks',
  loop: '/console/operate/loops',
};

const TONES: Partial<Record<OverviewWaiting['kind'], 'bad'>> = { deposit: 'bad', loop: 'bad' };

function NeedsYou({ overview: { waiting, at } }: { overview: Overview }) {
  const { count: all, oldest } = waiting;
  const note = all > oldest.length ? `the oldest ${oldest.length} of ${all}` : `${all}, oldest first`;
  const columns: readonly Column<OverviewWaiting>[] = [
    { title: 'Kind', cell: ({ kind }) => <Badge tone={TONES[kind] ?? 'warn'}>{kind}</Badge> },
    {
      title: 'What waits',
      cell: ({ what, since }) => (
        <>
          <b class="brk">{what}</b>
          <br />
          <small class="quiet">{`since ${time(since)}, ${relative(since, Date.parse(at))}`}</small>
        </>
      ),
    },
    { title: 'Command', class: 'w', cell: ({ command }) => <code class="small brk">{command}</code> },
    {
      title: 'Open',
      class: 'num',
      cell: ({ kind, id }) => {
        const screen = SCREENS[kind];
        return (
          screen !== undefined && (
            <Link class="btn sm" href={kind === 'machine' ? `${screen}/${id}` : screen}>
              Open<span class="sr"> {id}</span>
            </Link>
          )
        );
      },
    },
  ];
  return (
    <Card title="Needs you" note={all === 0 ? undefined : note}>
      {all === 0 ? (
        <p class="pad quiet">Nothing waits for an operator.</p>
      ) : (
        <RowsTable caption="What waits for an operator" rows={oldest} columns={columns} />
      )}
    </Card>
  );
}

const STATES = {
  ok: { tone: 'ok', words: 'ok' },
  starting: { tone: 'info', words: 'first run' },
  late: { tone: 'warn', words: 'late' },
  failed: { tone: 'bad', words: 'failed' },
} as const;

function Loops({ loops, at }: { loops: readonly OverviewLoop[]; at: string }) {
  const bad = loops.filter(({ state }) => state === 'late' || state === 'failed').length;
  const columns: readonly Column<OverviewLoop>[] = [
    { title: 'Loop', cell: ({ name }) => name },
    {
      title: 'Last result',
      cell: ({ state, error }) => (
        <>
          <Badge tone={STATES[state].tone}>{STATES[state].words}</Badge>
          {error !== null && <small class="brk">{error}</small>}
        </>
      ),
    },
    {
      title: 'Took',
      class: 'num w dim',
      cell: ({ last_duration_ms: ms }) => (ms === null ? '–' : `${count(ms)} ms`),
    },
    {
      title: 'Ran',
      class: 'num dim',
      cell: ({ last_success_at: last }) => (last === null ? 'not yet' : relative(last, Date.parse(at))),
    },
  ];
  return (
    <Card title="Loops" note={bad === 0 ? `${loops.length}, all in time` : `${loops.length}, ${bad} late or failed`}>
      {loops.length === 0 ? (
        <p class="pad quiet">No loop runs in this process.</p>
      ) : (
        <RowsTable caption="Loops" rows={loops} columns={columns} />
      )}
    </Card>
  );
}

const DUE: readonly Column<Overview['due'][number]>[] = [
  { title: 'Kind', cell: ({ kind }) => kind.replaceAll('_', ' ') },
  { title: 'Due', class: 'num', cell: (row) => (row.count === 1_000 ? '1,000 or more' : count(row.count)) },
  {
    title: 'Oldest',
    class: 'num dim',
    cell: ({ oldest_seconds: seconds }) =>
      seconds === null ? '–' : <span class={seconds > LATE_SECONDS ? 'warn' : ''}>{duration(seconds)}</span>,
  },
  {
    title: 'Per minute',
    class: 'num w dim',
    cell: ({ per_minute: done }) => (done === null ? 'not known' : count(done)),
  },
];

function DueRows({ overview: { due } }: { overview: Overview }) {
  return (
    <Card title="Due rows" note="work that waits, and for how long">
      <RowsTable caption="Due rows" rows={due} columns={DUE} />
    </Card>
  );
}

const SERVERS: readonly Column<OverviewServer>[] = [
  { title: 'Model', cell: ({ model }) => <span class="brk">{model}</span> },
  { title: 'State', cell: ({ is_well: isWell, state }) => <Badge tone={isWell ? 'ok' : 'warn'}>{state}</Badge> },
  { title: 'Server', class: 'w dim', cell: ({ server }) => <span class="brk">{server}</span> },
];
