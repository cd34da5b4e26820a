// Reads what each GPU does at this moment: one query of nvidia-smi for all cards.
import { messageOf } from '../../shared/errors.ts';
import { GPUS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import { GpuFigures, GpuSample } from '../../shared/protocol/metrics.ts';
import { queryRows } from './nvidia-smi.ts';

export type CardFigures = Omit<GpuSample, 'workload_id'>;

/** nvidia-smi's name of each figure. */
const FIELDS: Readonly<Record<Exclude<keyof GpuFigures, 'throttle_reasons'>, string>> = {
  utilization_percent: 'utilization.gpu',
  memory_utilization_percent: 'utilization.memory',
  memory_used_mib: 'memory.used',
  memory_free_mib: 'memory.free',
  power_watts: 'power.draw',
  temperature_celsius: 'temperature.gpu',
  memory_temperature_celsius: 'temperature.memory',
  sm_clock_mhz: 'clocks.sm',
  memory_clock_mhz: 'clocks.mem',
};
/** Names of the throttle reasons. Drivers before 535 know only the first one. NVIDIA plans to remove it, so newer ones may know only the second. */
const REASONS = ['clocks_throttle_reasons.active', 'clocks_event_reasons.active'];

/** Resolves with an empty list on a machine without nvidia-smi. Rejects if nvidia-smi fails. */
export type ReadFigures = () => Promise<CardFigures[]>;

/** Remembers which name of the throttle reasons the driver knows. */
export function openFigures(nvidiaSmi: string): ReadFigures {
  const known = [...REASONS];
  return async () => {
    for (;;) {
      const fields = ['uuid', 'index', ...Object.values(FIELDS), ...known.slice(0, 1)];
      try {
        return cardsOf(await queryRows(nvidiaSmi, `--query-gpu=${fields.join()}`));
      } catch (error) {
        // nvidia-smi reports `Field "..." is not a valid field to query.` Try the next name; after the last one, read only the other figures.
        if (known.length === 0 || !messageOf(error).includes('not a valid field')) throw error;
        known.shift();
      }
    }
  };
}

/** A value is null if it is not a number (`[N/A]`, `[Not Supported]`, `[Unknown Error]`) or is outside of the range that a card can have. */
function cardsOf(rows: readonly string[][]): CardFigures[] {
  return rows
    .flatMap(([uuid, index, ...cells]) => {
      const names = Object.keys(FIELDS) as (keyof typeof FIELDS)[];
      const figures = Object.fromEntries(names.map((name, i) => [name, figureOf(name, cells[i])]));
      const throttle_reasons = figureOf('throttle_reasons', cells[names.length]);
      const card = { uuid, index: Number(index), workload_id: null, ...figures, throttle_reasons };
      const { data } = GpuSample.safeParse(card);
      return data === undefined || data.uuid.startsWith('[') ? [] : [data];
    })
    .slice(0, GPUS_PER_MACHINE_MAX);
}

/** The number in a cell: decimal, or hexadecimal with 0x for the throttle reasons. Null if it is not a number or is out of range. */
function figureOf(name: keyof GpuFigures, cell: string | undefined): number | null {
  if (cell === undefined || !/^(-?\d+(\.\d+)?|0x[\da-f]+)$/i.test(cell)) return null;
  return GpuFigures.shape[name].safeParse(Number(cell)).data ?? null;
}
