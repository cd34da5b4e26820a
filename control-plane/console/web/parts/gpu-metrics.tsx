// Figures of the GPUs of an instance or a machine: charts of the mean of all GPUs, and a table of the current figures of each GPU.
import { useCallback, useState } from 'preact/hooks';
import type { InstanceMetrics, MachineMetrics } from '../../../../shared/api/metrics.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { bytes, time } from '../core/format.ts';
import { Chart } from './chart.tsx';
import { SameAs } from './command.tsx';
import { Card, Problem } from './layout.tsx';
import { RowsTable } from './table.tsx';

type Metrics = InstanceMetrics | MachineMetrics;
type Series = InstanceMetrics['gpus'][number];
type SeriesName = 'utilization_percent' | 'memory_used_mib' | 'power_watts' | 'temperature_celsius';

const WINDOWS_H = [1, 6, 24] as const;
const HOUR_MS = 3_600_000;
const REREAD_MS = 10_000;
const MIB = 1_024 ** 2;

const CHARTS: readonly { name: SeriesName; title: string; short: string; max?: number; show(value: number): string }[] =
  [
    {
      name: 'utilization_percent',
      title: 'Utilisation',
      short: 'Busy',
      max: 100,
      show: (value) => `${value.toFixed(0)}%`,
    },
    { name: 'memory_used_mib', title: 'Memory', short: 'Memory', show: (value) => bytes(value * MIB) },
    { name: 'power_watts', title: 'Power', short: 'Power', show: (value) => `${value.toFixed(0)} W` },
    {
      name: 'temperature_celsius',
      title: 'Temperature',
      short: 'Temp.',
      max: 100,
      show: (value) => `${value.toFixed(0)} °C`,
    },
  ];

interface GpuMetricsProps {
  /** The route, like `/v1/instances/{id}/metrics`. */
  path: string;
  /** The command that shows the same figures. */
  cli: string;
}

export function GpuMetrics({ path: route, cli }: GpuMetricsProps) {
  const [hours, setHours] = useState<number>(WINDOWS_H[0]);
  // Each read has a window of its own, which ends now.
  const path = useCallback(() => pathOf(route, hours), [route, hours]);
  const { data, error, reload } = useResource<Metrics>(path, { everyMs: REREAD_MS });
  const metrics = data.value;
  const count = metrics?.gpus.length ?? 0;
  return (
    <Card
      title="GPUs"
      {...(count > 1 ? { note: `mean of ${count}` } : {})}
      actions={<Windows hours={hours} setHours={setHours} />}
      footer={<SameAs cli={cli} curl={{ path: route }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {metrics !== undefined && <Figures metrics={metrics} />}
    </Card>
  );
}

function Windows({ hours, setHours }: { hours: number; setHours(hours: number): void }) {
  return (
    <span class="seg push" role="group" aria-label="Hours shown">
      {WINDOWS_H.map((each) => (
        <label key={each}>
          <input type="radio" name="window" checked={each === hours} onChange={() => setHours(each)} />
          {each} h
        </label>
      ))}
    </span>
  );
}

function Figures({ metrics }: { metrics: Metrics }) {
  const times = metrics.points.map((at) => Date.parse(at) / 1_000);
  if (metrics.gpus.length === 0 && metrics.latest === null) {
    return <p class="pad quiet">The host has not sent figures in this time.</p>;
  }
  return (
    <>
      <div class="pad stack">
        {CHARTS.map(({ name, title, max, show }) => {
          const values = meanOf(metrics.gpus, name, times.length);
          const now = mean((metrics.latest?.gpus ?? []).map((gpu) => gpu[name]));
          const shown = now === null ? 'unknown' : show(now);
          return (
            <figure key={name}>
              <figcaption class="row far small">
                <span class="dim">{title}</span>
                <b class="num">{shown}</b>
              </figcaption>
              <Chart
                label={`${title}, now ${shown}`}
                times_s={times}
                values={values}
                {...(max === undefined ? {} : { max })}
              />
            </figure>
          );
        })}
        <div class="axis">
          <span>{time(metrics.from)}</span>
          <span>{time(metrics.until)}</span>
        </div>
      </div>
      <Latest latest={metrics.latest} />
    </>
  );
}

function Latest({ latest }: { latest: Metrics['latest'] }) {
  if (latest === null) return null;
  const [name, used] =
    'container' in latest ? (['Container', latest.container] as const) : (['Host', latest.host] as const);
  const shown = (value: number | null, show: (value: number) => string): string =>
    value === null ? 'unknown' : show(value);
  return (
    <>
      <RowsTable
        caption="Each GPU now"
        rows={latest.gpus}
        columns={[
          { title: 'GPU', class: 'num l', cell: ({ index }) => index },
          ...CHARTS.map(({ name, short, show }) => ({
            title: short,
            class: 'num',
            cell: (gpu: (typeof latest.gpus)[number]) => shown(gpu[name], show),
          })),
        ]}
      />
      <p class="pad small quiet">
        Sample of {time(latest.at)}.
        {used !== null &&
          ` ${name}: ${shown(used.cpu_cores_used, (cores) => cores.toFixed(1))} cores, ${shown(used.memory_used_bytes, bytes)} of memory.`}
      </p>
    </>
  );
}

function meanOf(gpus: readonly Series[], name: SeriesName, points: number): (number | null)[] {
  return Array.from({ length: points }, (_, index) => mean(gpus.map((gpu) => gpu[name].avg[index] ?? null)));
}

/** The mean of the known values; null if none is known, so that the chart shows a gap. */
function mean(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

function pathOf(route: string, hours: number): string {
  if (hours === WINDOWS_H[0]) return route;
  return `${route}?from=${encodeURIComponent(new Date(serviceNow() - hours * HOUR_MS).toISOString())}`;
}
