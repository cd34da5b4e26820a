// A small container without an image of its own, for tests of the engine's driver.
import type Docker from 'dockerode';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { ContainerShape } from '../../agent/runtime/engine.ts';

const IMAGE = 'empty:1';

/** Makes the image that the shapes name: one without files. `changes` are lines of a Dockerfile. */
export async function importEmptyImage(docker: Docker, changes: string[] = []): Promise<void> {
  const [repo, tag] = IMAGE.split(':');
  await text(await docker.importImage(Readable.from([Buffer.alloc(1024)]), { repo, tag, changes }));
}

export function containerShape(
  workloadId: string,
  more: Pick<ContainerShape, 'entrypoint' | 'mounts'> & Partial<ContainerShape>,
): ContainerShape {
  return {
    workload_id: workloadId,
    instance_id: `i-${workloadId}`,
    image: IMAGE,
    hostname: 'host',
    env: [],
    gpu_uuids: [],
    network: 'own',
    stop_signal: 'SIGTERM',
    folders: [],
    disk_gb: null,
    memory_bytes: 512 * 1024 ** 2,
    shm_bytes: 64 * 1024 ** 2,
    nano_cpus: 1e9,
    cpu_shares: 1024,
    pids_max: 100,
    memlock_bytes: 65_536,
    nofile: 1024,
    ...more,
  };
}
