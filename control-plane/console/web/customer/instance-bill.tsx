// The bill of one instance: charged time, time that is not charged with the evidence, refunds, and the sum.
import type { InstanceBill } from '../../../../shared/api/instance-bill.ts';
import type { Instance } from '../../../../shared/api/instance.ts';
import { count, dollars, quoted, rate, time as timeOf } from '../core/format.ts';
import { SameAs } from '../parts/command.tsx';
import { Badge, Card } from '../parts/layout.tsx';
import { Ribbon, RibbonKey, type RibbonPiece } from '../parts/ribbon.tsx';
import { RowsTable } from '../parts/table.tsx';

/** Digits after the point of a dollar. The ledger counts microcents, so whole cents would not be exact enough. */
const DIGITS = 4;

interface Line {
  /** Time of a refund, or begin of the charged or free time. */
  at: string;
  when: string;
  what: string;
  /** The evidence of a credit, or the reason of a refund. */
  why?: string;
  status?: string;
  seconds: number | undefined;
  rate: number | undefined;
  amount: string;
}

export function Bill({ instance, bill }: { instance: Instance; bill: InstanceBill | undefined }) {
  const name = quoted(instance.name ?? instance.id);
  return (
    <Card
      title="Bill"
      note={<RibbonKey />}
      footer={<SameAs cli={`svc instance bill ${name}`} curl={{ path: `/v1/instances/${instance.id}/bill` }} />}
    >
      <Content instance={instance} bill={bill} />
    </Card>
  );
}

function Content({ instance, bill }: { instance: Instance; bill: InstanceBill | undefined }) {
  if (instance.status === 'error' && instance.ready_at === null)
    return <p class="pad quiet">It never ran, so it costs nothing.</p>;
  return bill === undefined ? <p class="pad quiet">Reading…</p> : <Lines instance={instance} bill={bill} />;
}

function Lines({ instance, bill }: { instance: Instance; bill: InstanceBill }) {
  const fromMs = Date.parse(instance.created_at);
  const ended = endOf(instance, bill);
  const untilMs = Date.parse(ended ?? bill.as_of);
  return (
    <>
      <div class="pad stack tight">
        <Ribbon
          isTall
          label={`From ${timeOf(instance.created_at)} to ${timeOf(bill.as_of)}: ${words(bill)}`}
          fromMs={fromMs}
          untilMs={untilMs}
          pieces={piecesOf(instance, bill)}
        />
        <div class="axis">
          <span>{timeOf(instance.created_at)}</span>
          <span>{ended === undefined ? 'now' : timeOf(ended)}</span>
        </div>
      </div>
      <RowsTable
        caption="Bill"
        rows={linesOf(instance, bill)}
        columns={[
          { title: 'Time, UTC', class: 'num l', cell: ({ when }) => when },
          { title: 'What', cell: (line) => <What line={line} /> },
          {
            title: 'Seconds',
            class: 'num w',
            cell: ({ seconds }) => (seconds === undefined ? '–' : count(Math.round(seconds))),
          },
          { title: 'Per hour', class: 'num w x', cell: ({ rate: price }) => (price === undefined ? '–' : rate(price)) },
          { title: 'Amount', class: 'num', cell: ({ amount }) => dollars(amount, DIGITS) },
        ]}
        footer={<Total bill={bill} />}
      />
    </>
  );
}

/** Undefined if the instance has not ended. One that has failed has no time of its end, so its last charged or credited time counts. */
function endOf({ status, terminated_at: ended, ready_at: ready }: Instance, bill: InstanceBill): string | undefined {
  if (ended !== null || status !== 'error') return ended ?? undefined;
  const ends = [...bill.segments, ...bill.credits].map(({ until }) => until ?? bill.as_of);
  return [ready ?? bill.as_of, ...ends].reduce((last, end) => (Date.parse(end) > Date.parse(last) ? end : last));
}

function What({ line: { what, why, status } }: { line: Line }) {
  return (
    <>
      {what}{' '}
      {status !== undefined && <Badge tone={status === 'open' || status === 'held' ? 'warn' : ''}>{status}</Badge>}
      {why !== undefined && (
        <details>
          <summary>Evidence</summary>
          <p class="small dim brk">{why}</p>
        </details>
      )}
    </>
  );
}

function Total({ bill: { totals, as_of: asOf, is_complete: isComplete } }: { bill: InstanceBill }) {
  const parts = [
    ['held for a decision', totals.held_credits],
    ['not covered by the balance, and not paid', totals.uncovered],
    ['refunded', totals.refunds],
  ].filter(([, amount]) => Number(amount) !== 0);
  return (
    <tr>
      <th scope="row" colSpan={2}>
        {isComplete ? 'Total' : `Total to ${timeOf(asOf)}`}
        {parts.map(([what, amount]) => (
          <small key={what} class="quiet">
            {dollars(amount ?? 0, DIGITS)} {what}
          </small>
        ))}
      </th>
      <td class="w" />
      <td class="w x" />
      <td class="num">{dollars(totals.cost, DIGITS)}</td>
    </tr>
  );
}

function linesOf(instance: Instance, bill: InstanceBill): Line[] {
  const time = [...bill.segments.map(segmentLine), ...bill.credits.map(creditLine)];
  const refunds = bill.refunds.map(({ created_at: at, amount, reason }): Line => ({
    at,
    when: timeOf(at),
    what: 'Refund',
    why: reason,
    seconds: undefined,
    rate: undefined,
    amount: String(-Number(amount)),
  }));
  return [...bootLine(instance), ...time.toSorted((a, b) => Date.parse(a.at) - Date.parse(b.at)), ...refunds];
}

function bootLine({ created_at: asked, ready_at: ready }: Instance): Line[] {
  if (ready === null) return [];
  const seconds = (Date.parse(ready) - Date.parse(asked)) / 1_000;
  return [{ at: asked, when: spanOf(asked, ready), what: 'Boot, not billed', seconds, rate: 0, amount: '0' }];
}

function segmentLine(segment: InstanceBill['segments'][number]): Line {
  const { from, until, seconds, price_per_hour: price, amount } = segment;
  return {
    at: from,
    when: spanOf(from, until),
    what: until === null ? 'Running' : 'Ran',
    seconds,
    rate: price,
    amount,
  };
}

function creditLine({ from, until, seconds, cause, status, reason, amount }: InstanceBill['credits'][number]): Line {
  return {
    at: from,
    when: spanOf(from, until),
    what: `${CAUSES[cause]}, ${dollars(amount, DIGITS)} not charged`,
    why: reason,
    status,
    seconds,
    rate: undefined,
    amount: '0',
  };
}

const spanOf = (from: string, until: string | null): string =>
  `${timeOf(from)} – ${until === null ? 'now' : timeOf(until)}`;

const CAUSES: Record<InstanceBill['credits'][number]['cause'], string> = {
  outage: 'Outage',
  gpu_fault: 'Broken GPU',
  own_outage: 'Outage of the service',
  dispute: 'Decided by the operator',
};

/** Pieces of the ribbon: the boot, charged time, and time that is not charged. */
function piecesOf(
  { created_at: asked, ready_at: ready, terminated_at: ended }: Instance,
  bill: InstanceBill,
): RibbonPiece[] {
  const asOfMs = Date.parse(bill.as_of);
  const untilOf = (until: string | null): number => (until === null ? asOfMs : Date.parse(until));
  return [
    { kind: 'free', fromMs: Date.parse(asked), untilMs: untilOf(ready ?? ended) },
    ...bill.segments.map(({ from, until }) => ({
      kind: 'billed' as const,
      fromMs: Date.parse(from),
      untilMs: untilOf(until),
    })),
    ...bill.credits.map(({ from, until }) => ({
      kind: 'outage' as const,
      fromMs: Date.parse(from),
      untilMs: untilOf(until),
    })),
  ];
}

function words({ segments, credits }: InstanceBill): string {
  const seconds = (spans: readonly { seconds: number }[]): string =>
    count(Math.round(spans.reduce((sum, { seconds: each }) => sum + each, 0)));
  return `${seconds(segments)} seconds billed, ${seconds(credits)} seconds not charged`;
}
