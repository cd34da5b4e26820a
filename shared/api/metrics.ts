// What GPUs, containers and machines use (GET /v1/instances/{id}/metrics, /v1/community/machines/{id}/metrics).
import { z } from 'zod';
import { METRICS_POINTS_MAX } from '../limits.ts';
import { moment } from './billing.ts';

const STEP_S_MIN = 60;
const STEP_S_MAX = 86_400;

export const MetricsQuery = z.strictObject({
  from: moment
    .optional()
    .describe(
      'Start of the window, inclusive: an ISO 8601 date or date-time, in UTC unless it has an offset. The default is an hour before `until`',
    ),
  until: moment
    .optional()
    .describe(
      'End of the window, exclusive: an ISO 8601 date or date-time, in UTC unless it has an offset. The default is now',
    ),
  step_s: z.coerce
    .number()
    .int()
    .min(STEP_S_MIN)
    .max(STEP_S_MAX)
    .multipleOf(STEP_S_MIN)
    .optional()
    .describe(
      `Seconds between two points, in whole minutes. The default is the smallest value with which the window has at most ${METRICS_POINTS_MAX} points`,
    ),
});
export type MetricsQuery = z.infer<typeof MetricsQuery>;

const GPU = {
  utilization_percent: 'Time in which a kernel ran; null in MIG mode',
  memory_utilization_percent: 'Time in which the memory was read or written',
  memory_used_mib: 'Memory in use, in MiB',
  memory_free_mib: 'Free memory, in MiB',
  power_watts: 'Power draw, in W',
  temperature_celsius: 'Temperature of the chip, in °C',
  memory_temperature_celsius: 'Temperature of the memory, in °C',
  sm_clock_mhz: 'Clock of the multiprocessors, in MHz',
  memory_clock_mhz: 'Clock of the memory, in MHz',
} as const;

const USAGE = {
  cpu_cores_used: 'Processor time per second, in cores',
  memory_used_bytes: 'Memory in use without the page cache',
  memory_limit_bytes: 'The most that can be used; null without a limit',
  network_received_bytes_per_second: 'Received from the network',
  network_sent_bytes_per_second: 'Sent to the network',
} as const;

const HOST = {
  ...USAGE,
  cpu_cores: 'Processors',
  disk_used_bytes: 'Used disk',
  disk_total_bytes: 'Size of the disk',
} as const;

const point = z.number().nullable();
const points = z.array(point);
const Series = z
  .strictObject({
    avg: points.describe('The average of the samples of each point. Null for a point without samples'),
    max: points.describe('The largest sample of each point. Null for a point without samples'),
  })
  .meta({ id: 'MetricSeries' });

const seriesOf = <Name extends string>(names: Record<Name, string>): Record<Name, typeof Series> =>
  mapped(names, (text) => Series.describe(text) as typeof Series);
const valuesOf = <Name extends string>(names: Record<Name, string>): Record<Name, typeof point> =>
  mapped(names, (text) => point.describe(text) as typeof point);

function mapped<Name extends string, T>(names: Record<Name, string>, make: (text: string) => T): Record<Name, T> {
  return Object.fromEntries(Object.entries<string>(names).map(([name, text]) => [name, make(text)])) as Record<Name, T>;
}

const identity = {
  uuid: z.string().describe('UUID of the GPU, as nvidia-smi prints it'),
  index: z.int().describe('The index of the GPU on its machine'),
};
const REASONS = 'Why the clocks are not higher: the bits of nvml.h, nvmlClocksEventReasons';

const GpuSeries = z
  .strictObject({
    ...identity,
    ...seriesOf(GPU),
    throttle_reasons: points.describe(`${REASONS}; all that were set in the time of the point`),
  })
  .meta({ id: 'GpuSeries' });
const GpuNow = z
  .strictObject({ ...identity, ...valuesOf(GPU), throttle_reasons: point.describe(REASONS) })
  .meta({ id: 'GpuFigures' });
const ContainerSeries = z.strictObject(seriesOf(USAGE)).meta({ id: 'ContainerSeries' });
const ContainerNow = z.strictObject(valuesOf(USAGE)).meta({ id: 'ContainerFigures' });
const HostSeries = z.strictObject(seriesOf(HOST)).meta({ id: 'HostSeries' });
const HostNow = z.strictObject(valuesOf(HOST)).meta({ id: 'HostFigures' });

const window = {
  from: z.iso.datetime().describe('The start of the first point'),
  until: z.iso.datetime().describe('The end of the window'),
  step_s: z.int().describe('Seconds between two points'),
  points: z.array(z.iso.datetime()).describe('The start of each point. Every series has one value for each point'),
};
const GPUS = 'The GPUs that have figures in the window';
const LATEST = 'The newest sample; null if there is none of the last minutes';
const at = z.iso.datetime().describe('When it was taken');

export const InstanceMetrics = z
  .strictObject({
    instance_id: z.string().describe('The instance'),
    ...window,
    gpus: z.array(GpuSeries).describe(GPUS),
    container: ContainerSeries.nullable().describe('The container; null if it has no figures in the window'),
    latest: z
      .strictObject({
        at,
        gpus: z.array(GpuNow).describe('The GPUs'),
        container: ContainerNow.nullable().describe('The container'),
      })
      .nullable()
      .describe(LATEST),
  })
  .meta({ id: 'InstanceMetrics' });
export type InstanceMetrics = z.infer<typeof InstanceMetrics>;

export const MachineMetrics = z
  .strictObject({
    machine_id: z.string().describe('The machine'),
    ...window,
    gpus: z.array(GpuSeries).describe(GPUS),
    host: HostSeries.nullable().describe('The machine as a whole; null if it has no figures in the window'),
    latest: z
      .strictObject({
        at,
        gpus: z.array(GpuNow).describe('The GPUs'),
        host: HostNow.nullable().describe('The machine as a whole'),
      })
      .nullable()
      .describe(LATEST),
  })
  .meta({ id: 'MachineMetrics' });
export type MachineMetrics = z.infer<typeof MachineMetrics>;
