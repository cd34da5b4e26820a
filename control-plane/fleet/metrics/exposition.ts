// GET /v1/metrics as Prometheus reads it: GPU figures under the names of NVIDIA's exporter (DCGM), so that its dashboards fit.
import { exposition, type Measure } from '../../base/http/metrics.ts';
import { CONTAINER_NAMES, GPU_NAMES, HOST_NAMES, type StoredGpu, type Summary } from './figures.ts';
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
const GPU_LABELS = ['gpu', 'UUID', 'device', 'modelName', 'Hostname', 'instance_id', 'machine_id'];

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

type Labels = Record<string, string>;
interface Row {
  labels: Labels;
  summary: Summary;
}

/** Subjects without fresh figures, and figures that a card does not have, are left out. */
export function prometheusText({ instances, machines, live }: Scrape): Promise<{ text: string; contentType: string }> {
  const figuresOf = (machineId: string) => live.get(machineId)?.figures ?? { gpus: [], containers: [], host: null };
  const gpus: Row[] = [
    ...instances.flatMap((one) =>
      gpusOf(figuresOf(one.machineId).gpus, one.id).map((gpu) => gpuRow(gpu, one, 'instance_id')),
    ),
    ...machines.flatMap((one) => perCard(figuresOf(one.machineId).gpus).map((gpu) => gpuRow(gpu, one, 'machine_id'))),
  ];
  const containers = instances.flatMap(({ id, machineId }): Row[] =>
    figuresOf(machineId)
      .containers.filter(({ instance_id }) => instance_id === id)
      .map((summary) => ({ labels: { instance_id: id }, summary })),
  );
  const hosts = machines.flatMap(({ id, machineId }): Row[] => {
    const { host } = figuresOf(machineId);
    return host === null ? [] : [{ labels: { machine_id: id }, summary: host }];
  });
  return exposition([
    ...GPU_NAMES.map((name, i) => measure(DCGM[name], GPU_LABELS, samplesOf(gpus, i))),
    ...CONTAINER_NAMES.map((name, i) =>
      measure([`svc_instance_${name}`, `${name} of a running instance`], ['instance_id'], samplesOf(containers, i)),
    ),
    ...HOST_NAMES.map((name, i) =>
      measure([`svc_machine_${name}`, `${name} of a machine`], ['machine_id'], samplesOf(hosts, i)),
    ),
  ]);
}

function gpuRow(gpu: StoredGpu, { id, modelName, hostname }: Scraped, kind: 'instance_id' | 'machine_id'): Row {
  const labels = {
    gpu: String(gpu.index),
    UUID: gpu.uuid,
    device: `nvidia${gpu.index}`,
    modelName,
    Hostname: hostname,
  };
  return { labels: { ...labels, [kind]: id }, summary: gpu };
}

/** Keeps one entry for each GPU. A host may name a GPU twice, which would make the text invalid. */
function perCard(gpus: readonly StoredGpu[]): StoredGpu[] {
  return [...new Map(gpus.map((gpu) => [gpu.uuid, gpu])).values()].toSorted((a, b) => a.index - b.index);
}

function samplesOf(rows: readonly Row[], i: number): { labels: Labels; value: number }[] {
  return rows.flatMap(({ labels, summary }) => {
    const value = summary.avg[i] ?? null;
    return value === null ? [] : [{ labels, value }];
  });
}

function measure(
  [name, help]: readonly [string, string],
  labels: readonly string[],
  samples: { labels: Labels; value: number }[],
): Measure {
  return { name, help, kind: 'gauge', labels, read: () => samples };
}
