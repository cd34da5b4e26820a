// A line chart over time. uPlot is loaded with the first chart. The line is interrupted where a value is null.
import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';

interface ChartProps {
  /** Description of the chart in words, with the newest value, for people who do not see the chart. */
  label: string;
  /** Seconds since 1970, ascending. */
  times_s: readonly number[];
  values: readonly (number | null)[];
  /** The top of the chart. Left out: the largest value. */
  max?: number;
}

const HEIGHT_PX = 56;
const ROOM_ABOVE = 1.1;

export function Chart({ label, times_s: times, values, max }: ChartProps) {
  const ref = useRef<HTMLDivElement>(null);
  const [isMissing, setMissing] = useState(false);
  useEffect(() => {
    const place = ref.current;
    if (place === null) return undefined;
    const stop = new AbortController();
    void draw(place, [[...times], [...values]], { max, stop: stop.signal }).catch(() => {
      if (!stop.signal.aborted) setMissing(true);
    });
    return () => stop.abort();
  }, [times, values, max]);
  if (isMissing)
    return (
      <p class="small quiet">
        {label}. The chart cannot be drawn, because a part of the console could not be loaded: load the page again.
      </p>
    );
  return <div class="plot" role="img" aria-label={label} ref={ref} />;
}

async function draw(
  place: HTMLElement,
  data: uPlot.AlignedData,
  { max, stop }: { max: number | undefined; stop: AbortSignal },
): Promise<void> {
  const { default: Plot } = await import('uplot');
  if (stop.aborted) return;
  const style = getComputedStyle(place);
  const top = max ?? Math.max(1, ...(data[1] ?? []).map((value) => value ?? 0)) * ROOM_ABOVE;
  const grid = { stroke: style.borderTopColor, width: 1 };
  const axis = { show: true, size: 0, gap: 0, ticks: { show: false }, values: () => [] };
  const plot = new Plot(
    {
      width: place.clientWidth,
      height: HEIGHT_PX,
      padding: [2, 2, 2, 2],
      legend: { show: false },
      cursor: { show: false },
      select: { show: false, left: 0, top: 0, width: 0, height: 0 },
      scales: { x: { time: true }, y: { range: [0, top] } },
      axes: [
        { ...axis, grid: { show: false } },
        { ...axis, grid, splits: () => [0, top / 2, top] },
      ],
      series: [{}, { stroke: style.color, width: 1.5, spanGaps: false, points: { show: false } }],
    },
    data,
    place,
  );
  const resized = new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: HEIGHT_PX }));
  resized.observe(place);
  stop.addEventListener('abort', () => {
    resized.disconnect();
    plot.destroy();
  });
}
