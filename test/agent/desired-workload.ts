// A workload as a control plane could want it, so that a test names only what it is about.
import type { DesiredWorkload } from '../../shared/protocol/workload.ts';

export function desiredWorkload(id: string, image: string, more: Partial<DesiredWorkload> = {}): DesiredWorkload {
  return {
    workload_id: id,
    instance_id: `i-${id}`,
    desired: 'running',
    image,
    pull_login: false,
    command: { entrypoint: null, cmd: null },
    env: {},
    gpu_uuids: [],
    disk_gb: null,
    ends_at_ms: null,
    ...more,
  };
}
