// The bill of a month: what changed the balance, by section, and each line of it.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { Bill, BillLine, BillSection } from '../../../../shared/api/bill.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { count, dollars, time } from '../core/format.ts';
import { SameAs } from '../parts/command.tsx';
import { Card, Empty, Problem } from '../parts/layout.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';

const MONTHS = 24;

const SECTIONS: Record<BillSection, string> = {
  rental: 'Rentals',
  inference: 'Requests to models',
  video: 'Videos',
  fine_tuning: 'Fine-tuning',
  outage_credit: 'Credits for outages',
  refund: 'Refunds',
  adjustment: 'Adjustments',
  deposit: 'Deposits',
  other: 'Other',
};

const columnsOf = (isOwn: boolean): readonly Column<BillLine>[] => [
  {
    title: 'What',
    cell: (line) => (
      <>
        {SECTIONS[line.section]}
        <br />
        <small class="quiet brk">{isOwn ? <Subject line={line} /> : <code>{aboutOf(line)}</code>}</small>
      </>
    ),
  },
  { title: 'Why', class: 'w', cell: ({ reason }) => reason ?? '' },
  { title: 'Postings', class: 'num w', cell: (line) => count(line.count) },
  { title: 'Last (UTC)', class: 'w', cell: ({ posted_at: at }) => <time dateTime={at}>{time(at)}</time> },
  { title: 'Amount', class: 'num', cell: ({ amount }) => <span title={amount}>{dollars(amount)}</span> },
];

interface MonthBillProps {
  /** The route of the bill, and the command that prints it. */
  path?: string;
  cli?: string;
  /** True if lines link to the customer's pages, such as the page of the charged instance. */
  isOwn?: boolean;
}

/** The bill of one month. Without `path` and `cli`, it is the bill of the session's own organisation. */
export function MonthBill({ path: base = '/v1/bill', cli = 'svc bill show', isOwn = true }: MonthBillProps) {
  const months = lastMonths(serviceNow());
  const [month, setMonth] = useState(months[0] ?? '');
  const path = `${base}?month=${month}`;
  const { data, error, reload } = useResource<Bill>(path);
  const bill = data.value;
  return (
    <Card
      title="Bill"
      note={bill?.is_complete === false ? 'The month is not over: lines may be added' : undefined}
      actions={
        <span class="row">
          <label class="field">
            <span class="sr">Month</span>
            <select value={month} onChange={(event) => setMonth(event.currentTarget.value)}>
              {months.map((each) => (
                <option key={each} value={each}>
                  {monthText(each)}
                </option>
              ))}
            </select>
          </label>
          <a class="btn" href={`${path}&format=csv`} download={`bill-${month}.csv`}>
            Download CSV
          </a>
        </span>
      }
      footer={<SameAs cli={`${cli} --month ${month}`} curl={{ path }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {bill === undefined ? (
        error.value === undefined && <p class="pad quiet">Reading…</p>
      ) : (
        <>
          <Sums bill={bill} />
          {bill.lines.length === 0 ? (
            <Empty title="No line">Nothing changed the balance in this month.</Empty>
          ) : (
            <RowsTable caption={`Lines of ${monthText(month)}`} rows={bill.lines} columns={columnsOf(isOwn)} />
          )}
        </>
      )}
    </Card>
  );
}

function Sums({ bill }: { bill: Bill }) {
  return (
    <dl class="kv sum pad">
      <dt>Opening balance</dt>
      <dd>{dollars(bill.opening_balance)}</dd>
      {bill.totals.map(({ section, amount }) => (
        <>
          <dt>{SECTIONS[section]}</dt>
          <dd title={amount}>{dollars(amount)}</dd>
        </>
      ))}
      <dt class="total">{bill.is_complete ? 'Closing balance' : 'Balance after these lines'}</dt>
      <dd class="total">{dollars(bill.closing_balance)}</dd>
    </dl>
  );
}

function Subject({ line: { section, subject_id: id, model } }: { line: BillLine }) {
  if (id !== null && (section === 'rental' || section === 'outage_credit'))
    return (
      <Link href={`/console/instances/${encodeURIComponent(id)}`}>
        <code>{id}</code>
      </Link>
    );
  if (id !== null && section === 'fine_tuning')
    return (
      <Link href={`/console/fine-tuning/${encodeURIComponent(id)}`}>
        <code>{id}</code>
      </Link>
    );
  return <code>{aboutOf({ subject_id: id, model })}</code>;
}

function aboutOf({ subject_id: id, model }: Pick<BillLine, 'subject_id' | 'model'>): string {
  return model ?? id ?? '';
}

/** The current month and the months before it, like `2026-11`, in UTC. */
function lastMonths(nowMs: number): string[] {
  const now = new Date(nowMs);
  return Array.from({ length: MONTHS }, (_, back) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1)).toISOString().slice(0, 7),
  );
}

function monthText(month: string): string {
  return new Date(`${month}-01T00:00:00Z`).toLocaleDateString('en-GB', {
    timeZone: 'UTC',
    month: 'long',
    year: 'numeric',
  });
}
