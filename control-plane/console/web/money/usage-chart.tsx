// Stacked bars of money over time. The table below the chart has the same figures.
import { dollars } from '../core/format.ts';
import { type Bucket, type Chart, OTHERS } from './usage-rows.ts';

/** The width of a bar, in per cent of the width of its bucket. */
const BAR = 78;
const LABELS = 5;

export function UsageChart({ chart: { starts, series, columns, top }, bucket }: { chart: Chart; bucket: Bucket }) {
  const width = 100 / columns.length;
  return (
    <div class="pad stack tight">
      <div class="row far">
        <p class="key">
          {series.map((name, index) => (
            <span key={name}>
              <svg aria-hidden="true">
                <rect width="10" height="10" rx="2" class={`f${index + 1}`} />
              </svg>
              {name === OTHERS ? name : name.replaceAll('_', ' ')}
            </span>
          ))}
        </p>
        <span class="small quiet num">{dollars(top)} at the top line</span>
      </div>
      <svg class="plot tall" role="img" aria-label={`Cost by ${bucket}, the table below has the sums`}>
        <line x1="0" x2="100%" y1="0" y2="0" />
        <line x1="0" x2="100%" y1="50%" y2="50%" />
        {columns.map((column, index) => (
          <Bar
            key={starts[index]}
            column={column}
            top={top}
            x={index * width + (width * (100 - BAR)) / 200}
            width={(width * BAR) / 100}
          />
        ))}
        <line x1="0" x2="100%" y1="100%" y2="100%" />
      </svg>
      <div class="axis">
        {labelsOf(starts).map((startMs) => (
          <span key={startMs}>{labelOf(startMs, bucket)}</span>
        ))}
      </div>
    </div>
  );
}

interface BarProps {
  column: readonly bigint[];
  top: number;
  x: number;
  width: number;
}

function Bar({ column, top, x, width }: BarProps) {
  const heights = column.map((ucents) => Math.max(0, Number(ucents)) / 1e6 / top);
  return (
    <>
      {heights.map((height, index) => {
        const below = heights.slice(0, index).reduce((all, each) => all + each, 0);
        return (
          height > 0 && (
            <rect
              key={index}
              class={`f${index + 1}`}
              x={`${x.toFixed(3)}%`}
              width={`${width.toFixed(3)}%`}
              y={`${(100 - below - height).toFixed(3)}%`}
              height={`${height.toFixed(3)}%`}
            />
          )
        );
      })}
    </>
  );
}

/** The starts that get a label: evenly spread, with the first and the last one. */
function labelsOf(starts: readonly number[]): number[] {
  const last = starts.length - 1;
  const at = Array.from({ length: LABELS }, (_, index) => starts[Math.round((index * last) / (LABELS - 1))]);
  return at.filter((each) => each !== undefined);
}

function labelOf(startMs: number, bucket: Bucket): string {
  const at = new Date(startMs);
  const day = at.toLocaleDateString('en-GB', { timeZone: 'UTC', day: 'numeric', month: 'short' });
  return bucket === 'hour' ? `${day} ${at.toISOString().slice(11, 16)}` : day;
}
