// Samples of figures as hosts send them.
import type { ContainerSample, GpuSample, HostFigures, MetricsSample } from '../../shared/protocol/metrics.ts';

export function gpuSample(uuid: string, patch: Partial<GpuSample> = {}): GpuSample {
  return {
    uuid,
    index: 0,
    workload_id: null,
    utilization_percent: 90,
    memory_utilization_percent: 50,
    memory_used_mib: 70_000,
    memory_free_mib: 11_000,
    power_watts: 650.5,
    temperature_celsius: 60,
    memory_temperature_celsius: null,
    sm_clock_mhz: 1_755,
    memory_clock_mhz: 2_619,
    throttle_reasons: 4,
    ...patch,
  };
}

export function containerSample(workloadId: string, patch: Partial<ContainerSample> = {}): ContainerSample {
  return {
    workload_id: workloadId,
    cpu_seconds: 100,
    memory_used_bytes: 1_000,
    memory_limit_bytes: 2_000,
    network_received_bytes: 10_000,
    network_sent_bytes: 20_000,
    ...patch,
  };
}

const HOST: HostFigures = {
  cpu_cores: 64,
  cpu_seconds: 1_000,
  memory_used_bytes: 5_000,
  memory_limit_bytes: 9_000,
  network_received_bytes: 1,
  network_sent_bytes: 1,
  disk_used_bytes: 300,
  disk_total_bytes: 400,
};

export function metricsSample(takenMs: number, patch: Partial<MetricsSample> = {}): MetricsSample {
  return { type: 'metrics', taken_ms: takenMs, gpus: [], containers: [], host: HOST, ...patch };
}
