// Calls of the Docker Engine that only jobs need: to stop a container with a grace period, and to read a file of a container.
import type Docker from 'dockerode';
import type { Readable } from 'node:stream';
import { fileOfArchive } from './archive.ts';
import { absentAsUndefined, ignoring } from './docker-answers.ts';
import type { Engine } from './engine.ts';

/** `findAll` lists the containers of a workload. */
export function jobCalls(
  docker: Docker,
  findAll: (workloadId: string) => Promise<Docker.ContainerInfo[]>,
): Pick<Engine, 'stop' | 'fileIn'> {
  return {
    stop: async (workloadId, graceMs) => {
      for (const { Id: id } of await findAll(workloadId))
        await ignoring([304, 404], docker.getContainer(id).stop({ t: Math.ceil(graceMs / 1000) }));
    },
    fileIn: async (workloadId, path) => {
      const [found] = await findAll(workloadId);
      if (found === undefined) return undefined;
      const archive = await absentAsUndefined(docker.getContainer(found.Id).getArchive({ path }));
      return archive && fileOfArchive(archive as Readable);
    },
  };
}
