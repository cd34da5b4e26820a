// The stored form of figures: lists of numbers in the order of fixed names, and sums from which averages and peaks come. Pure.
import { z } from 'zod';
import {
  type ContainerFigures,
  type Counters,
  GpuFigures,
  type MetricsSample,
} from '../../../shared/protocol/metrics.ts';

/** The order of stored values. A new name stands last. */
export const GPU_NAMES = Object.keys(GpuFigures.shape) as (keyof GpuFigures)[];
export const CONTAINER_NAMES = [
  'cpu_cores_used',
  'memory_used_bytes',
  'memory_limit_bytes',
  'network_received_bytes_per_second',
  'network_sent_bytes_per_second',
] as const;
export const HOST_NAMES = [...CONTAINER_NAMES, 'cpu_cores', 'disk_used_bytes', 'disk_total_bytes'] as const;

const Values = z.array(z.number().nullable());
export type Values = z.infer<typeof Values>;

/** The averages and the peaks of some samples. For throttle reasons, both lists have all bits that were set in any of the samples. */
const Summary = z.object({ n: z.number(), avg: Values, max: Values });
export type Summary = z.infer<typeof Summary>;

/**
 * The stored form of a minute, and of the newest sample. `instance_id` of a GPU is the instance whose workload had the GPU; null if no workload
 * had it.
 */
export const StoredFigures = z.object({
  gpus: z.array(Summary.extend({ uuid: z.string(), index: z.number(), instance_id: z.string().nullable() })),
  containers: z.array(Summary.extend({ instance_id: z.string() })),
  host: Summary.nullable(),
});
export type StoredFigures = z.infer<typeof StoredFigures>;
export type StoredGpu = StoredFigures['gpus'][number];

/** Adds up summaries of one subject. */
export interface Tally {
  add(summary: Summary): void;
  sum(): Summary;
}

const REASONS = GPU_NAMES.indexOf('throttle_reasons');

/** Begins a tally. `names` are the names of the values, in their order. */
export function newTally(names: readonly string[]): Tally {
  const sums = names.map(() => 0);
  const weights = names.map(() => 0);
  const peaks: Values = names.map(() => null);
  const isBits = (i: number): boolean => names === GPU_NAMES && i === REASONS;
  let n = 0;
  return {
    add: (summary) => {
      n += summary.n;
      for (const i of names.keys()) {
        const [average, peak] = [summary.avg[i] ?? null, summary.max[i] ?? null];
        if (average === null || peak === null) continue;
        sums[i] = (sums[i] ?? 0) + average * summary.n;
        weights[i] = (weights[i] ?? 0) + summary.n;
        const before = peaks[i] ?? null;
        peaks[i] = before === null ? peak : isBits(i) ? before | peak : Math.max(before, peak);
      }
    },
    sum: () => {
      const average = (i: number): number | null => {
        const weight = weights[i] ?? 0;
        if (weight === 0 || isBits(i)) return peaks[i] ?? null;
        return Math.round(((sums[i] ?? 0) / weight) * 100) / 100;
      };
      return { n, avg: names.map((_, i) => average(i)), max: [...peaks] };
    },
  };
}

/** The summary of a single sample. */
export function summaryOf(values: Values): Summary {
  return { n: 1, avg: values, max: values };
}

/** The values of a sample, by subject. Rates need the sample before of the same link; without one they are null. */
export interface SampleValues {
  gpus: { uuid: string; index: number; workload_id: string | null; values: Values }[];
  containers: { workload_id: string; values: Values }[];
  host: Values | null;
}

export function valuesOf(sample: MetricsSample, before: MetricsSample | undefined): SampleValues {
  const seconds = before === undefined ? 0 : (sample.taken_ms - before.taken_ms) / 1000;
  const sameBefore = (id: string): Counters | undefined => before?.containers.find((one) => one.workload_id === id);
  const host = sample.host;
  return {
    gpus: sample.gpus.map((gpu) => ({
      uuid: gpu.uuid,
      index: gpu.index,
      workload_id: gpu.workload_id,
      values: GPU_NAMES.map((name) => gpu[name]),
    })),
    containers: sample.containers.map((container) => ({
      workload_id: container.workload_id,
      values: usage(container, sameBefore(container.workload_id), seconds),
    })),
    host:
      host === null
        ? null
        : [
            ...usage(host, before?.host ?? undefined, seconds),
            host.cpu_cores,
            host.disk_used_bytes,
            host.disk_total_bytes,
          ],
  };
}

/** The values of a container, in the order of CONTAINER_NAMES. Rates are null without a sample before. */
function usage(now: ContainerFigures, before: Counters | undefined, seconds: number): Values {
  const rate = (name: keyof Counters): number | null => {
    const [from, to] = [before?.[name] ?? null, now[name]];
    // A counter that is lower than before belongs to a container that was started again, so there is no rate.
    if (from === null || to === null || to < from || seconds <= 0) return null;
    return Math.round(((to - from) / seconds) * 1000) / 1000;
  };
  const { memory_used_bytes: used, memory_limit_bytes: limit } = now;
  return [rate('cpu_seconds'), used, limit, rate('network_received_bytes'), rate('network_sent_bytes')];
}
