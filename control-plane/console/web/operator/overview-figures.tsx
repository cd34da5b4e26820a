// The figures of the overview over a time: links and outages of the last day, and requests to models of the last five minutes.
import type { OverviewDay, OverviewTraffic } from '../../../../shared/api/overview.ts';
import { count, dollars, plural, time } from '../core/format.ts';
import { Card } from '../parts/layout.tsx';
import { Ribbon, type RibbonPiece } from '../parts/ribbon.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';

const KINDS: Record<OverviewDay['spans'][number]['state'], RibbonPiece['kind']> = {
  up: 'up',
  silent: 'silent',
  away: 'free',
  outage: 'down',
};

export function LinksDay({ day }: { day: OverviewDay }) {
  const { from, until, spans, silent_most: silent, outages, credited } = day;
  const pieces = spans.map((span) => ({
    kind: KINDS[span.state],
    fromMs: Date.parse(span.from),
    untilMs: Date.parse(span.until),
  }));
  const words = `${plural(outages, 'outage')}, at most ${plural(silent, 'machine')} without a link`;
  return (
    <Card title="Links and outages, 24 h">
      <div class="pad stack tight">
        <Ribbon
          label={`The last 24 hours: ${words}`}
          fromMs={Date.parse(from)}
          untilMs={Date.parse(until)}
          pieces={pieces}
        />
        <div class="axis">
          <span>{time(from)}</span>
          <span>now</span>
        </div>
        <p class="small dim">
          {spans.length === 0 ? 'No minute was noted yet. ' : ''}
          {words}. Credits given: {dollars(credited)}. Green: all machines were linked. Amber: some were not. Red:
          rentals were not charged. Hatched: no control plane ran.
        </p>
      </div>
    </Card>
  );
}

const COLUMNS: readonly Column<OverviewTraffic>[] = [
  { title: 'Model', cell: ({ model }) => <span class="brk">{model}</span> },
  { title: 'Requests/s', class: 'num', cell: ({ requests_per_second: rate }) => rate.toFixed(rate < 10 ? 2 : 0) },
  {
    title: 'Whole answer, p95',
    class: 'num w',
    cell: ({ p95_ms: ms }) => (ms === null ? '–' : `${count(Math.round(ms))} ms`),
  },
  {
    title: 'Not answered',
    class: 'num',
    cell: ({ failed, requests }) => (
      <span
        class={failed === 0 ? 'dim' : 'warn'}
      >{`${((100 * failed) / requests).toFixed(failed === 0 ? 0 : 2)} %`}</span>
    ),
  },
];

export function Traffic({ traffic }: { traffic: readonly OverviewTraffic[] }) {
  return (
    <Card title="Requests to models" note="of all control planes, in five minutes">
      <RowsTable caption="Requests to models" rows={traffic} columns={COLUMNS} />
    </Card>
  );
}
