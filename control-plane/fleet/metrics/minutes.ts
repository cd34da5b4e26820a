// Sums up the samples of each machine by the minute, in memory, until they are stored.
import { GPUS_PER_MACHINE_MAX, METRICS_MINUTE_MS } from '../../../shared/limits.ts';
import type { MetricsSample } from '../../../shared/protocol/metrics.ts';
import {
  CONTAINER_NAMES,
  GPU_NAMES,
  HOST_NAMES,
  newTally,
  type SampleValues,
  type StoredFigures,
  summaryOf,
  type Tally,
  valuesOf,
} from './figures.ts';

/** Finds the instance of a workload that is on the machine; undefined for any other workload id. */
export type InstanceOf = (workloadId: string) => string | undefined;

export interface ClosedMinute {
  machineId: string;
  minuteMs: number;
  samples: number;
  figures(instanceOf: InstanceOf): StoredFigures;
}

export interface NewestSample {
  machineId: string;
  sampledMs: number;
  figures(instanceOf: InstanceOf): StoredFigures;
}

export interface Minutes {
  take(machineId: string, sample: MetricsSample, nowMs: number): void;
  /** Removes and returns all minutes that are over, the oldest first. With `all`, the minutes that are not over are included. */
  closed(nowMs: number, all?: boolean): ClosedMinute[];
  /** The newest samples of these machines, without samples that were returned before. */
  newest(machineIds: ReadonlySet<string>): NewestSample[];
  /** The number of machines that are remembered. */
  size(): number;
}

/**
 * Number of subjects of one kind that a host may report in a minute. An honest host reaches it if each of its GPUs goes to another rental
 * within the minute.
 */
const SUBJECTS_MAX = 2 * GPUS_PER_MACHINE_MAX;
/** Largest number of minutes of one machine that are kept in memory while the database does not answer. */
const WAITING_MAX = 5;
/** A machine that is silent for this time is forgotten. */
const SILENT_MS = 2 * METRICS_MINUTE_MS;

interface Machine {
  minute: Minute;
  waiting: Minute[];
  last: MetricsSample;
  lastMs: number;
  values: SampleValues;
  isNew: boolean;
}

export function openMinutes(): Minutes {
  const machines = new Map<string, Machine>();
  return {
    take: (machineId, sample, nowMs) => {
      const minuteMs = Math.floor(nowMs / METRICS_MINUTE_MS) * METRICS_MINUTE_MS;
      const known = machines.get(machineId);
      const values = valuesOf(sample, known?.last);
      const newest = { last: sample, lastMs: nowMs, values, isNew: true };
      const isSame = known?.minute.minuteMs === minuteMs;
      const minute = known !== undefined && isSame ? known.minute : newMinute(minuteMs);
      // A minute that was closed has left an empty one behind.
      const older = known === undefined || isSame || known.minute.samples() === 0 ? [] : [known.minute];
      const waiting = [...(known?.waiting ?? []), ...older].slice(-WAITING_MAX);
      minute.add(values);
      machines.set(machineId, { minute, waiting, ...newest });
    },
    closed: (nowMs, all = false) => {
      const found: ClosedMinute[] = [];
      for (const [machineId, machine] of machines) {
        const { minute, waiting } = machine;
        const isOver = all || minute.minuteMs + METRICS_MINUTE_MS <= nowMs;
        const over = isOver && minute.samples() > 0 ? [...waiting, minute] : waiting;
        machine.waiting = [];
        if (isOver) machine.minute = newMinute(minute.minuteMs);
        for (const { minuteMs, samples, figures } of over)
          found.push({ machineId, minuteMs, samples: samples(), figures });
        if (nowMs - machine.lastMs > SILENT_MS) machines.delete(machineId);
      }
      return found;
    },
    newest: (ids) =>
      [...ids].flatMap((machineId) => {
        const machine = machines.get(machineId);
        if (machine?.isNew !== true) return [];
        machine.isNew = false;
        const { values, lastMs: sampledMs } = machine;
        const minute = newMinute(sampledMs);
        minute.add(values);
        return [{ machineId, sampledMs, figures: minute.figures }];
      }),
    size: () => machines.size,
  };
}

interface Minute {
  minuteMs: number;
  samples(): number;
  add(values: SampleValues): void;
  figures(instanceOf: InstanceOf): StoredFigures;
}

function newMinute(minuteMs: number): Minute {
  const gpus = new Map<string, { uuid: string; index: number; workload_id: string | null; tally: Tally }>();
  const containers = new Map<string, Tally>();
  let host: Tally | undefined;
  let samples = 0;
  return {
    minuteMs,
    samples: () => samples,
    add: (values) => {
      samples += 1;
      for (const { uuid, index, workload_id, values: own } of values.gpus) {
        // A GPU that goes to another workload within the minute has two entries, so that no customer sees figures of another.
        const key = `${uuid} ${workload_id ?? ''}`;
        if (!gpus.has(key) && gpus.size >= SUBJECTS_MAX) continue;
        const entry = gpus.get(key) ?? { uuid, index, workload_id, tally: newTally(GPU_NAMES) };
        entry.tally.add(summaryOf(own));
        gpus.set(key, entry);
      }
      for (const { workload_id: id, values: own } of values.containers) {
        if (!containers.has(id) && containers.size >= SUBJECTS_MAX) continue;
        const tally = containers.get(id) ?? newTally(CONTAINER_NAMES);
        tally.add(summaryOf(own));
        containers.set(id, tally);
      }
      if (values.host === null) return;
      host ??= newTally(HOST_NAMES);
      host.add(summaryOf(values.host));
    },
    figures: (instanceOf) => ({
      gpus: [...gpus.values()].map(({ uuid, index, workload_id: id, tally }) => {
        const instanceId = id === null ? null : (instanceOf(id) ?? null);
        return { uuid, index, instance_id: instanceId, ...tally.sum() };
      }),
      containers: [...containers].flatMap(([id, tally]) => {
        const instanceId = instanceOf(id);
        return instanceId === undefined ? [] : [{ instance_id: instanceId, ...tally.sum() }];
      }),
      host: host?.sum() ?? null,
    }),
  };
}
