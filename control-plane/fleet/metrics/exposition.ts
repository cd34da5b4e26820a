// GET /v1/metrics as Prometheus reads it: GPU figures under the names of NVIDIA's exporter (DCGM), so that its dashboards fit.
import { CONTAINER_NAMES, GPU_NAMES, HOST_NAMES, type StoredGpu, type Values } from './figures.ts';
import type { LiveFigures } from './metrics.ts';
import { gpusOf } from './views.ts';

/** DCGM's name and help of each figure. */
const DCGM: Readonly<Record<(typeof GPU_NAMES)[number], readonly [name: string, help: string]>> = {
  utilization_percent: ['DCGM_FI_DEV_GPU_UTIL', 'GPU utilization (in %).'],
  memory_utilization_percent: ['DCGM_FI_DEV_MEM_COPY_UTIL', 'Memory utilization (in %).'],
  memory_used_mib: ['DCGM_FI_DEV_FB_USED', 'Framebuffer memory used (in MiB).'],
  memory_free_mib: ['DCGM_FI_DEV_FB_FREE', 'Framebuffer memory free (in MiB).'],
  power_watts: ['DCGM_FI_DEV_POWER_USAGE', 'Power draw (in W).'],
  temperature_celsius: ['DCGM_FI_DEV_GPU_TEMP', 'GPU temperature (in C).'],
  memory_temperature_celsius: ['DCGM_FI_DEV_MEMORY_TEMP', 'Memory temperature (in C).'],
  sm_clock_mhz: ['DCGM_FI_DEV_SM_CLOCK', 'SM clock frequency (in MHz).'],
  memory_clock_mhz: ['DCGM_FI_DEV_MEM_CLOCK', 'Memory clock frequency (in MHz).'],
  throttle_reasons: ['DCGM_FI_DEV_CLOCK_THROTTLE_REASONS', 'Why the clocks are not higher (bitmask).'],
};

/** Lines that are written in one turn of the event loop: about a millisecond. */
const LINES_PER_PIECE = 2_000;

/** An instance or a machine of the caller. */
export interface Scraped {
  id: string;
  machineId: string;
  modelName: string;
  hostname: string;
}

export interface Scrape {
  instances: readonly Scraped[];
  machines: readonly Scraped[];
  /** The key is the machine's id. */
  live: ReadonlyMap<string, LiveFigures>;
}

/** The labels and the values of a subject. The labels are written once for all of its figures. */
interface Row {
  labels: string;
  values: Values;
}

/** A figure of some subjects: its name, its help, and its place in their values. */
interface Figure {
  name: string;
  help: string;
  rows: readonly Row[];
  i: number;
}

/**
 * The text in pieces of bounded size, so that its writer can serve others between them. Subjects without fresh figures, and figures that a card
 * does not have, are left out.
 */
export function* prometheusPieces(scrape: Scrape): Generator<string> {
  for (const [n, figure] of figuresOf(scrape).entries()) {
    const { name, help, rows, i } = figure;
    yield `${n === 0 ? '' : '\n'}# HELP ${name} ${help}\n# TYPE ${name} gauge\n`;
    for (let from = 0; from < rows.length; from += LINES_PER_PIECE) {
      let piece = '';
      for (const { labels, values } of rows.slice(from, from + LINES_PER_PIECE)) {
        const value = values[i] ?? null;
        if (value !== null) piece += `${name}{${labels}} ${value}\n`;
      }
      yield piece;
    }
  }
}

function figuresOf(scrape: Scrape): Figure[] {
  const [gpus, containers, hosts] = [gpuRows(scrape), containerRows(scrape), hostRows(scrape)];
  return [
    ...GPU_NAMES.map((figure, i) => ({ name: DCGM[figure][0], help: DCGM[figure][1], rows: gpus, i })),
    ...CONTAINER_NAMES.map((figure, i) => {
      return { name: `svc_instance_${figure}`, help: `${figure} of a running instance`, rows: containers, i };
    }),
    ...HOST_NAMES.map((figure, i) => {
      return { name: `svc_machine_${figure}`, help: `${figure} of a machine`, rows: hosts, i };
    }),
  ];
}

function gpuRows({ instances, machines, live }: Scrape): Row[] {
  const gpusAt = (machineId: string): StoredGpu[] => live.get(machineId)?.figures.gpus ?? [];
  const own = instances.flatMap((one) =>
    gpusOf(gpusAt(one.machineId), one.id).map((gpu) => gpuRow(gpu, one, 'instance_id')),
  );
  const cards = machines.flatMap((one) => perCard(gpusAt(one.machineId)).map((gpu) => gpuRow(gpu, one, 'machine_id')));
  return [...own, ...cards];
}

function containerRows({ instances, live }: Scrape): Row[] {
  return instances.flatMap(({ id, machineId }): Row[] => {
    const containers = live.get(machineId)?.figures.containers ?? [];
    const own = containers.filter((container) => container.instance_id === id).map(({ avg }) => avg);
    return own.length === 0 ? [] : [{ labels: labelled([['instance_id', id]]), values: added(own) }];
  });
}

function hostRows({ machines, live }: Scrape): Row[] {
  return machines.flatMap(({ id, machineId }): Row[] => {
    const host = live.get(machineId)?.figures.host ?? null;
    return host === null ? [] : [{ labels: labelled([['machine_id', id]]), values: host.avg }];
  });
}

function gpuRow(gpu: StoredGpu, { id, modelName, hostname }: Scraped, kind: 'instance_id' | 'machine_id'): Row {
  const labels = labelled([
    ['gpu', String(gpu.index)],
    ['UUID', gpu.uuid],
    ['device', `nvidia${gpu.index}`],
    ['modelName', modelName],
    ['Hostname', hostname],
    [kind, id],
  ]);
  return { labels, values: gpu.avg };
}

/** Keeps one entry for each GPU. A host may name a GPU twice, which would make the text invalid. */
function perCard(gpus: readonly StoredGpu[]): StoredGpu[] {
  return [...new Map(gpus.map((gpu) => [gpu.uuid, gpu])).values()].toSorted((a, b) => a.index - b.index);
}

/** The sum of each value. An instance has two containers in the minute in which its workload is replaced. */
function added([first = [], ...others]: readonly Values[]): Values {
  return others.reduce<Values>(
    (sums, values) => sums.map((sum, i) => (sum === null ? (values[i] ?? null) : sum + (values[i] ?? 0))),
    first,
  );
}

function labelled(labels: readonly (readonly [name: string, value: string])[]): string {
  return labels.map(([name, value]) => `${name}="${escaped(value)}"`).join(',');
}

function escaped(value: string): string {
  return value
    .replaceAll('\\', '\\\\')
    .replaceAll('\n', String.raw`\n`)
    .replaceAll('"', String.raw`\"`);
}
