// Turns stored minutes into series with a bounded number of points, and a sample into values. Pure.
import { isoTime } from '../../../shared/clock.ts';
import type { MetricsQuery } from '../../../shared/api/metrics.ts';
import { failField } from '../../../shared/errors.ts';
import { isoTimeMs } from '../../../shared/iso-time.ts';
import { GPUS_PER_MACHINE_MAX, METRICS_MINUTE_MS, METRICS_POINTS_MAX } from '../../../shared/limits.ts';
import { GPU_NAMES, newTallies, type StoredGpu, type Summary, type Values } from './figures.ts';

const HOUR_MS = 3_600_000;

export interface Window {
  /** The start of the first point, at a whole minute. */
  fromMs: number;
  untilMs: number;
  stepMs: number;
}

/** @throws ServiceError `validation_failed` */
export function windowOf({ from, until, step_s: stepS }: MetricsQuery, nowMs: number): Window {
  const untilMs = timeOf(until) ?? nowMs;
  const fromMs = Math.floor((timeOf(from) ?? untilMs - HOUR_MS) / METRICS_MINUTE_MS) * METRICS_MINUTE_MS;
  if (fromMs >= untilMs) return failField('from', 'must be before until');
  const smallestMs = Math.ceil((untilMs - fromMs) / METRICS_POINTS_MAX / METRICS_MINUTE_MS) * METRICS_MINUTE_MS;
  const stepMs = stepS === undefined ? smallestMs : stepS * 1000;
  if (stepMs < smallestMs)
    return failField(
      'step_s',
      `must be at least ${smallestMs / 1000} for this window: it has at most ${METRICS_POINTS_MAX} points`,
    );
  return { fromMs, untilMs, stepMs };
}

function timeOf(text: string | undefined): number | undefined {
  return text === undefined ? undefined : isoTimeMs(text);
}

export function pointsOf({ fromMs, untilMs, stepMs }: Window): string[] {
  return Array.from({ length: Math.ceil((untilMs - fromMs) / stepMs) }, (_, i) => isoTime(fromMs + i * stepMs));
}

export interface Points {
  add(minuteMs: number, summary: Summary): void;
  /** The series by the name of the figure. */
  series<Name extends string>(names: readonly Name[]): Record<Name, { avg: Values; max: Values }>;
}

/** Collects the figures of one subject by point. */
export function newPoints({ fromMs, untilMs, stepMs }: Window, order: readonly string[]): Points {
  const count = Math.ceil((untilMs - fromMs) / stepMs);
  const tallies = newTallies(order, count);
  return {
    add: (minuteMs, summary) => tallies.add(Math.floor((minuteMs - fromMs) / stepMs), summary),
    series: <Name extends string>(names: readonly Name[]) => {
      const values = (one: (point: number) => number | null): Values => {
        const list: Values = [];
        // Array.from takes three times as long, and a week of a machine has 200,000 values.
        for (let at = 0; at < count; at += 1) list.push(one(at));
        return list;
      };
      const entries = names.map((name) => {
        const i = order.indexOf(name);
        return [name, { avg: values((at) => tallies.average(at, i)), max: values((at) => tallies.peak(at, i)) }];
      });
      return Object.fromEntries(entries) as Record<Name, { avg: Values; max: Values }>;
    },
  };
}

/** The values of one sample by the name of the figure. */
export function named<Name extends string>(names: readonly Name[], { avg }: Summary): Record<Name, number | null> {
  return Object.fromEntries(names.map((name, i) => [name, avg[i] ?? null])) as Record<Name, number | null>;
}

/**
 * The series of each GPU, in the order of their indices. Takes the newest minute first. Each GPU needs some hundred kilobytes, and a host may
 * name other ones every minute, so only as many as a machine can have are kept: those with the newest figures.
 */
export interface GpuPoints {
  add(minuteMs: number, gpu: StoredGpu): void;
  all(): { uuid: string; index: number; points: Points }[];
}

export function newGpuPoints(window: Window): GpuPoints {
  const found = new Map<string, { uuid: string; index: number; points: Points }>();
  return {
    add: (minuteMs, gpu) => {
      const { uuid, index } = gpu;
      const known = found.get(uuid);
      if (known === undefined && found.size >= GPUS_PER_MACHINE_MAX) return;
      const { points } = known ?? { points: newPoints(window, GPU_NAMES) };
      points.add(minuteMs, gpu);
      if (known === undefined) found.set(uuid, { uuid, index, points });
    },
    all: () => [...found.values()].toSorted((a, b) => a.index - b.index),
  };
}
