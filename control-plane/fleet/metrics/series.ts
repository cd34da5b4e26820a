// Turns stored minutes into series with a bounded number of points, and a sample into values. Pure.
import { isoTime } from '../../../shared/clock.ts';
import type { MetricsQuery } from '../../../shared/api/metrics.ts';
import { failField } from '../../../shared/errors.ts';
import { isoTimeMs } from '../../../shared/iso-time.ts';
import { METRICS_MINUTE_MS, METRICS_POINTS_MAX } from '../../../shared/limits.ts';
import { GPU_NAMES, newTally, type StoredGpu, type Summary, type Tally, type Values } from './figures.ts';

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
  const tallies = new Map<number, Tally>();
  const count = Math.ceil((untilMs - fromMs) / stepMs);
  return {
    add: (minuteMs, summary) => {
      const at = Math.floor((minuteMs - fromMs) / stepMs);
      const tally = tallies.get(at) ?? newTally(order);
      tally.add(summary);
      tallies.set(at, tally);
    },
    series: <Name extends string>(names: readonly Name[]) => {
      const sums = Array.from({ length: count }, (_, at) => tallies.get(at)?.sum());
      const valuesAt = (i: number, kind: 'avg' | 'max'): Values => sums.map((sum) => sum?.[kind][i] ?? null);
      const entries = names.map((name) => {
        const i = order.indexOf(name);
        return [name, { avg: valuesAt(i, 'avg'), max: valuesAt(i, 'max') }];
      });
      return Object.fromEntries(entries) as Record<Name, { avg: Values; max: Values }>;
    },
  };
}

/** The values of one sample by the name of the figure. */
export function named<Name extends string>(names: readonly Name[], { avg }: Summary): Record<Name, number | null> {
  return Object.fromEntries(names.map((name, i) => [name, avg[i] ?? null])) as Record<Name, number | null>;
}

/** The series of each GPU, in the order of their indices. */
export interface GpuPoints {
  add(minuteMs: number, gpu: StoredGpu): void;
  all(): { uuid: string; index: number; points: Points }[];
}

export function newGpuPoints(window: Window): GpuPoints {
  const found = new Map<string, { uuid: string; index: number; points: Points }>();
  return {
    add: (minuteMs, { uuid, index, ...summary }) => {
      const { points } = found.get(uuid) ?? { points: newPoints(window, GPU_NAMES) };
      points.add(minuteMs, summary);
      found.set(uuid, { uuid, index, points });
    },
    all: () => [...found.values()].toSorted((a, b) => a.index - b.index),
  };
}
