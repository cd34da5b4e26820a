// The balance, how long it lasts, and what it was spent on.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { Balance, UsageRow } from '../../../../shared/api/billing.ts';
import { dollarsFromUcents } from '../../../../shared/money.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { count, date, dollars, duration, rate } from '../core/format.ts';
import { useAllPages } from '../core/pages.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { Card, Empty, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { Segments } from '../parts/choosing.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { MonthBill } from './bill.tsx';
import { UsageChart } from './usage-chart.tsx';
import { type Bucket, chartOf, type Group, type GroupBy, groupsOf, startOf, sum } from './usage-rows.ts';

const BALANCE_MS = 15_000;
const USAGE_MS = 60_000;
const HOUR_S = 3_600;
/** If the balance lasts for fewer hours, the figures warn. In one night nobody may be there to add funds. */
const WARN_H = 48;

const BUCKETS: readonly (readonly [Bucket, string])[] = [
  ['hour', 'Hour'],
  ['day', 'Day'],
  ['week', 'Week'],
];
const GROUPINGS: readonly (readonly [GroupBy, string])[] = [
  ['gpu_type', 'GPU type'],
  ['instance_id', 'Instance'],
];
const SPAN_TEXTS: Record<Bucket, string> = { hour: '48 hours', day: '30 days', week: '13 weeks' };

export function Usage() {
  return (
    <>
      <Head title="Usage and balance" same={{ cli: 'svc balance show', curl: { path: '/v1/balance' } }}>
        {may('deposits: write') && (
          <Link class="btn pri" href="/console/deposits">
            Add funds
          </Link>
        )}
      </Head>
      <BalanceNow />
      <UsageOverTime />
      <MonthBill />
    </>
  );
}

function BalanceNow() {
  const { data, error, reload } = useResource<Balance>('/v1/balance', {
    on: [{ type: 'instance' }, { type: 'deposit' }],
    everyMs: BALANCE_MS,
  });
  const balance = data.value;
  if (balance === undefined) {
    if (error.value !== undefined) return <Problem error={error.value} retry={() => void reload()} />;
    return <div class="card pad quiet">Reading…</div>;
  }
  const { burn_rate_per_hour: burn, hours_left: hours } = balance;
  return (
    <>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      <Figures
        figures={[
          { label: 'Balance', value: dollars(balance.balance), small: 'prepaid, not used yet' },
          { label: 'Held', value: dollars(balance.held), small: 'part of the balance, for what runs now' },
          { label: 'Available', value: dollars(balance.available), small: 'what a new launch can use' },
          {
            label: 'Spending now',
            value: `${rate(Number(burn))}/h`,
            small: Number(burn) > 0 ? 'all running instances' : 'no instance costs anything',
          },
          {
            label: 'Lasts',
            value: hours === null ? '–' : duration(hours * HOUR_S),
            small: hours === null ? 'nothing is spent' : `until ${until(hours)} UTC`,
            ...(hours !== null && hours < WARN_H ? { tone: 'warn' as const } : {}),
          },
        ]}
      />
      <Runway hours={hours} available={Number(balance.available)} />
    </>
  );
}

/** The time in `hours` hours, like `24 Nov 00:39`. */
function until(hours: number): string {
  const iso = new Date(serviceNow() + hours * HOUR_S * 1_000).toISOString();
  return `${date(iso)} ${iso.slice(11, 16)}`;
}

function Runway({ hours, available }: { hours: number | null; available: number }) {
  const running = (
    <Link class="btn sm" href="/console/instances">
      See what is running
    </Link>
  );
  if (hours === 0)
    return (
      <Note tone="bad" action={running}>
        <b>The balance is used up.</b> Instances end, and new work is refused until funds are added.
      </Note>
    );
  if (hours !== null && hours < WARN_H)
    return (
      <Note tone="warn" action={running}>
        <b>The balance runs out in {duration(hours * HOUR_S)} at this rate.</b> New launches are refused when it cannot
        cover their hold.
      </Note>
    );
  if (available > 0) return null;
  return (
    <Note tone="warn">
      <b>Nothing is available.</b> New launches and requests to models are refused until funds are added.
    </Note>
  );
}

function UsageOverTime() {
  const [bucket, setBucket] = useState<Bucket>('day');
  const [groupBy, setGroupBy] = useState<GroupBy>('gpu_type');
  const nowMs = serviceNow();
  const startMs = startOf(bucket, nowMs);
  const start = startText(startMs, bucket);
  const path = `/v1/usage?bucket=${bucket}&group_by=${groupBy}&start=${start}`;
  const { rows, isCut, error, reload } = useAllPages<UsageRow>(path, USAGE_MS);
  const groups = rows === undefined ? [] : groupsOf(rows, groupBy);
  const total = dollars(dollarsFromUcents(sum(groups.map(({ ucents }) => ucents))));
  return (
    <Card
      title={`Rentals by ${bucket}${rows === undefined ? '' : `, ${total} in ${SPAN_TEXTS[bucket]}`}`}
      actions={
        <span class="row">
          <Segments label="Bucket" value={bucket} options={BUCKETS} onValue={(next) => setBucket(next)} />
          <Segments label="Group" value={groupBy} options={GROUPINGS} onValue={(next) => setGroupBy(next)} />
        </span>
      }
      footer={
        <SameAs cli={`svc usage show --bucket ${bucket} --group-by ${groupBy} --start ${start}`} curl={{ path }} />
      }
    >
      {error !== undefined && <Problem error={error} retry={reload} />}
      {rows === undefined && error === undefined && <p class="pad quiet">Reading…</p>}
      {rows?.length === 0 && (
        <Empty title="Nothing was rented" cli="svc price list">
          In the last {SPAN_TEXTS[bucket]} no instance ran. What models cost is on the bill below.
        </Empty>
      )}
      {rows !== undefined && rows.length > 0 && (
        <>
          {isCut && <Note tone="warn">There are more rows than this page reads. Group by GPU type to see all.</Note>}
          <UsageChart chart={chartOf(rows, { bucket, groupBy, startMs, nowMs })} bucket={bucket} />
          <GroupTable groups={groups} groupBy={groupBy} total={total} />
        </>
      )}
    </Card>
  );
}

function startText(startMs: number, bucket: Bucket): string {
  const iso = new Date(startMs).toISOString();
  return bucket === 'hour' ? `${iso.slice(0, 19)}Z` : iso.slice(0, 10);
}

function GroupTable({ groups, groupBy, total }: { groups: readonly Group[]; groupBy: GroupBy; total: string }) {
  const columns: readonly Column<Group>[] = [
    {
      title: groupBy === 'gpu_type' ? 'GPU type' : 'Instance',
      cell: ({ name }) =>
        groupBy === 'gpu_type' ? (
          name.replaceAll('_', ' ')
        ) : (
          <Link class="brk" href={`/console/instances/${encodeURIComponent(name)}`}>
            <code>{name}</code>
          </Link>
        ),
    },
    { title: 'GPU seconds', class: 'num w', cell: ({ gpuSeconds }) => count(gpuSeconds) },
    { title: 'GPU hours', class: 'num', cell: ({ gpuSeconds }) => (gpuSeconds / HOUR_S).toFixed(1) },
    { title: 'Cost', class: 'num', cell: ({ ucents }) => dollars(dollarsFromUcents(ucents)) },
  ];
  const gpuSeconds = groups.reduce((all, group) => all + group.gpuSeconds, 0);
  return (
    <RowsTable
      caption="Cost by group"
      rows={groups}
      columns={columns}
      footer={
        <tr>
          <th scope="row">All</th>
          <td class="num w">{count(gpuSeconds)}</td>
          <td class="num">{(gpuSeconds / HOUR_S).toFixed(1)}</td>
          <td class="num">{total}</td>
        </tr>
      }
    />
  );
}
