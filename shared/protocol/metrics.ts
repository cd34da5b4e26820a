// The figures that a host measures: of its GPUs, of the containers of its workloads, and of itself. Hosts are strangers, so every
// number has a range and every list a length.
import { z } from 'zod';
import { GPUS_PER_MACHINE_MAX } from '../limits.ts';
import { WorkloadId } from './workload.ts';

const bytes = z.int().min(0);
/** Seconds of CPU time since the container or the host started. */
const cpuSeconds = z.number().min(0).max(1e12);
const mebibytes = z.number().min(0).max(1e8);
const percent = z.number().min(0).max(100);
const megahertz = z.number().min(0).max(1e5);

/** Null: the card does not have the value, or nvidia-smi does not know it. A card in MIG mode has no utilisation. */
export const GpuFigures = z.strictObject({
  utilization_percent: percent.nullable(),
  memory_utilization_percent: percent.nullable(),
  memory_used_mib: mebibytes.nullable(),
  memory_free_mib: mebibytes.nullable(),
  power_watts: z.number().min(0).max(1e5).nullable(),
  temperature_celsius: z.number().min(-100).max(1_000).nullable(),
  memory_temperature_celsius: z.number().min(-100).max(1_000).nullable(),
  sm_clock_mhz: megahertz.nullable(),
  memory_clock_mhz: megahertz.nullable(),
  /** The bits of nvml.h, `nvmlClocksEventReason...`: why the clocks are not higher. */
  throttle_reasons: z.int().min(0).max(0x7fff_ffff).nullable(),
});
export type GpuFigures = z.infer<typeof GpuFigures>;

export const GpuSample = GpuFigures.extend({
  uuid: z.string().min(1).max(128),
  index: z.int().min(0).max(255),
  /** The workload whose running container has the GPU; null if it has none. */
  workload_id: WorkloadId.nullable(),
});
export type GpuSample = z.infer<typeof GpuSample>;

/** The counters of a container or of a host. They only grow. They begin again at 0 if the container or the host starts again. */
const Counters = z.strictObject({
  cpu_seconds: cpuSeconds.nullable(),
  network_received_bytes: bytes.nullable(),
  network_sent_bytes: bytes.nullable(),
});
export type Counters = z.infer<typeof Counters>;

/** Null: the host's cgroups do not have the value. */
export const ContainerFigures = Counters.extend({
  /** Memory in use without the page cache, which the kernel can drop at any time. */
  memory_used_bytes: bytes.nullable(),
  memory_limit_bytes: bytes.nullable(),
});
export type ContainerFigures = z.infer<typeof ContainerFigures>;

export const ContainerSample = ContainerFigures.extend({ workload_id: WorkloadId });
export type ContainerSample = z.infer<typeof ContainerSample>;

export const HostFigures = ContainerFigures.extend({
  cpu_cores: z.int().min(0).max(65_536),
  /** The file system with the agent's state. */
  disk_used_bytes: bytes.nullable(),
  disk_total_bytes: bytes.nullable(),
});
export type HostFigures = z.infer<typeof HostFigures>;

/**
 * One sample. A figure that could not be read is null. If all figures of a GPU or a container could not be read, it is missing in its list.
 */
export const MetricsSample = z.strictObject({
  type: z.literal('metrics'),
  /** The host's monotonic clock. Only the time between two samples of one link has a meaning. */
  taken_ms: z.number().min(0).max(1e15),
  gpus: z.array(GpuSample).max(GPUS_PER_MACHINE_MAX),
  /** At most one container for each GPU, because each running container has at least one GPU. */
  containers: z.array(ContainerSample).max(GPUS_PER_MACHINE_MAX),
  host: HostFigures.nullable(),
});
export type MetricsSample = z.infer<typeof MetricsSample>;
