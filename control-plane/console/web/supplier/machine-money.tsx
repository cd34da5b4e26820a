// The earnings of one machine, and the outages in which it earned nothing.
import type { CommunityEarnings, EarningsEntry, MachineOutage } from '../../../../shared/api/community.ts';
import type { Page } from '../../../../shared/api/page.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { dollars, duration, plural, time } from '../core/format.ts';
import { SameAs } from '../parts/command.tsx';
import { Badge, Card, Empty, Problem } from '../parts/layout.tsx';
import { DayAxis, Ribbon } from '../parts/ribbon.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';

const REREAD_MS = 30_000;
const DAY_MS = 86_400_000;
const SHOWN = 20;
/** Digits after the point of a dollar, because the earnings of a part of an hour are often less than a cent. */
const DIGITS = 4;

const ENTRY_COLUMNS: readonly Column<EarningsEntry>[] = [
  { title: 'Time, UTC', cell: ({ accrued_at: at }) => <time dateTime={at}>{time(at)}</time> },
  {
    title: 'What',
    cell: ({ instance_id: id, reason, amount }) => (
      <>
        {Number(amount) < 0 ? 'Taken back, ' : ''}
        <code class="brk">{id}</code>
        {reason !== null && <small class="warn">{reason}</small>}
      </>
    ),
  },
  { title: 'Net', class: 'num', cell: ({ amount }) => dollars(amount, DIGITS) },
];

export function MachineEarnings({ id }: { id: string }) {
  const path = `/v1/community/earnings?machine_id=${id}&limit=${SHOWN}`;
  const { data, error, reload } = useResource<CommunityEarnings>(path, { everyMs: REREAD_MS });
  const earned = data.value;
  return (
    <Card
      title="Earnings"
      note={`its newest ${SHOWN} entries`}
      footer={<SameAs cli={`svc machine earnings --machine ${id}`} curl={{ path }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {earned === undefined ? (
        <p class="pad quiet">Reading…</p>
      ) : earned.entries.length === 0 ? (
        <Empty title="Nothing earned yet">What a rental earns is entered after each hour, and at its end.</Empty>
      ) : (
        <RowsTable
          caption="Earnings"
          rows={earned.entries}
          columns={ENTRY_COLUMNS}
          footer={
            <tr>
              <th scope="row" colSpan={2}>
                This machine, over its whole life
              </th>
              <td class="num">{dollars(earned.of_machine?.accrued ?? 0, DIGITS)}</td>
            </tr>
          }
        />
      )}
    </Card>
  );
}

const CAUSES: Record<MachineOutage['cause'], string> = { outage: 'Out of reach', gpu_fault: 'Broken GPU' };

const OUTAGE_COLUMNS: readonly Column<MachineOutage>[] = [
  {
    title: 'Time, UTC',
    cell: ({ from, until }) => (
      <>
        <time dateTime={from}>{time(from)}</time> – {until === null ? 'now' : time(until)}
      </>
    ),
  },
  { title: 'What', cell: (outage) => <What outage={outage} /> },
  { title: 'Not earned', class: 'num', cell: ({ not_earned: amount }) => dollars(amount, DIGITS) },
];

function What({ outage: { cause, from, until, rentals, reason } }: { outage: MachineOutage }) {
  const untilMs = until === null ? serviceNow() : Date.parse(until);
  const seconds = (untilMs - Date.parse(from)) / 1_000;
  return (
    <>
      {until === null ? <Badge tone="warn">{CAUSES[cause]}</Badge> : CAUSES[cause]} for {duration(seconds)},{' '}
      {plural(rentals, 'rental')}
      <small class="brk">{reason}</small>
    </>
  );
}

/** The outages of the last day as a ribbon, and a list of the newest outages. */
export function MachineOutages({ id }: { id: string }) {
  const path = `/v1/community/machines/${id}/outages?limit=${SHOWN}`;
  const { data, error, reload } = useResource<Page<MachineOutage>>(path, { everyMs: REREAD_MS });
  const outages = data.value?.data;
  return (
    <Card
      title="Outages"
      note="seen by logins from outside, or reported by the host"
      footer={<SameAs cli={`svc machine outages ${id}`} curl={{ path }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {outages === undefined ? (
        <p class="pad quiet">Reading…</p>
      ) : outages.length === 0 ? (
        <Empty title="No outage">No rental on this machine ever failed to be reached.</Empty>
      ) : (
        <>
          <LastDay outages={outages} />
          <RowsTable caption="Outages" rows={outages} columns={OUTAGE_COLUMNS} />
        </>
      )}
    </Card>
  );
}

function LastDay({ outages }: { outages: readonly MachineOutage[] }) {
  const nowMs = serviceNow();
  const pieces = outages.map(({ from, until }) => ({
    kind: 'outage' as const,
    fromMs: Date.parse(from),
    untilMs: until === null ? nowMs : Date.parse(until),
  }));
  const count = pieces.filter(({ untilMs }) => untilMs > nowMs - DAY_MS).length;
  return (
    <div class="pad stack tight">
      <Ribbon
        label={`The last 24 hours: ${plural(count, 'outage')}`}
        fromMs={nowMs - DAY_MS}
        untilMs={nowMs}
        pieces={pieces}
      />
      <DayAxis />
    </div>
  );
}
