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
type StoredContainer = StoredFigures['containers'][number];

/**
 * Reads a stored document. It is not checked again, because only this room writes it: a check would take as long as all the rest of a request for
 * a week of minutes.
 */
export function figuresOf(document: string): StoredFigures {
  return JSON.parse(document) as StoredFigures;
}

/**
 * The GPUs and containers of an instance in a stored document. Only these parts are parsed, because an instance may have one GPU of eight. A quote
 * within a stored string is escaped, so no name that a host has chosen looks like the member that is searched for.
 */
export function figuresOfInstance(document: string, instanceId: string): Pick<StoredFigures, 'gpus' | 'containers'> {
  const found: ReturnType<typeof figuresOfInstance> = { gpus: [], containers: [] };
  const member = `"instance_id":${JSON.stringify(instanceId)}`;
  for (let at = document.indexOf(member), end = 0; at !== -1; at = document.indexOf(member, end)) {
    end = document.indexOf('}', at) + 1;
    // A container begins with its instance, a GPU with its UUID. The members after these are numbers.
    if (document[at - 1] === '{') {
      found.containers.push(JSON.parse(document.slice(at - 1, end)) as StoredContainer);
      continue;
    }
    const start = document.lastIndexOf('{"uuid":', at);
    found.gpus.push(JSON.parse(document.slice(start, end)) as StoredGpu);
  }
  return found;
}

/** Adds up summaries of one subject. */
export interface Tally {
  add(summary: Summary): void;
  sum(): Summary;
}

/** Adds up summaries of one subject in a number of slots. */
export interface Tallies {
  add(slot: number, summary: Summary): void;
  /** The average of a value, by its place in the order of names. Null if the slot has none. */
  average(slot: number, i: number): number | null;
  peak(slot: number, i: number): number | null;
  /** The number of samples in a slot. */
  samples(slot: number): number;
}

const REASONS = GPU_NAMES.indexOf('throttle_reasons');

/** Begins a tally. `names` are the names of the values, in their order. */
export function newTally(names: readonly string[]): Tally {
  const tallies = newTallies(names, 1);
  return {
    add: (summary) => tallies.add(0, summary),
    sum: () => ({
      n: tallies.samples(0),
      avg: names.map((_, i) => tallies.average(0, i)),
      max: names.map((_, i) => tallies.peak(0, i)),
    }),
  };
}

/** Begins a tally for each of `count` slots. They share arrays of plain numbers: a request for a week adds up a million values. */
export function newTallies(names: readonly string[], count: number): Tallies {
  const size = names.length;
  const sums = new Float64Array(size * count);
  const weights = new Float64Array(size * count);
  const peaks = new Float64Array(size * count).fill(Number.NaN);
  const samples = new Float64Array(count);
  const isBits = (i: number): boolean => names === GPU_NAMES && i === REASONS;
  const at = (list: Float64Array, place: number): number => list[place] ?? Number.NaN;
  const peak = (slot: number, i: number): number | null => {
    const value = at(peaks, slot * size + i);
    return Number.isNaN(value) ? null : value;
  };
  return {
    add: (slot, { n, avg, max }) => {
      samples[slot] = at(samples, slot) + n;
      for (let i = 0; i < size; i += 1) {
        const average = avg[i] ?? null;
        const highest = max[i] ?? null;
        if (average === null || highest === null) continue;
        const place = slot * size + i;
        sums[place] = at(sums, place) + average * n;
        weights[place] = at(weights, place) + n;
        const before = at(peaks, place);
        if (Number.isNaN(before)) peaks[place] = highest;
        else peaks[place] = isBits(i) ? before | highest : Math.max(before, highest);
      }
    },
    average: (slot, i) => {
      const weight = at(weights, slot * size + i);
      if (weight === 0 || isBits(i)) return peak(slot, i);
      return Math.round((at(sums, slot * size + i) / weight) * 100) / 100;
    },
    peak,
    samples: (slot) => at(samples, slot),
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
    const from = before?.[name] ?? null;
    const to = now[name];
    // A counter that is lower than before belongs to a container that was started again, so there is no rate.
    if (from === null || to === null || to < from || seconds <= 0) return null;
    return Math.round(((to - from) / seconds) * 1000) / 1000;
  };
  const { memory_used_bytes: used, memory_limit_bytes: limit } = now;
  return [rate('cpu_seconds'), used, limit, rate('network_received_bytes'), rate('network_sent_bytes')];
}
