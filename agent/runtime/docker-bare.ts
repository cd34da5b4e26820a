// Runs one program in a container without an image, to find out what the engine can do.
import type Docker from 'dockerode';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { ignoring } from './docker-answers.ts';
import { makeNetwork } from './docker-networks.ts';
import type { BareRun, Mount } from './engine.ts';

/** The end of an archive without entries. */
const EMPTY_TAR = Buffer.alloc(1024);

/** Runs the program to its end; resolves with the exit code. */
export async function runBare(docker: Docker, bare: BareRun, machineId: string): Promise<number> {
  const name = `svc-bare-${bare.name}-${machineId}`;
  const [repo, tag] = ['svc-empty', `${bare.name}-${machineId}`];
  const clear = async (): Promise<void> => {
    await ignoring([404], docker.getContainer(name).remove({ force: true, v: true }));
    if (bare.network) await ignoring([404], docker.getNetwork(name).remove());
  };
  // Removes what a crash has left.
  await clear();
  await text(await docker.importImage(Readable.from([EMPTY_TAR]), { repo, tag }));
  try {
    if (bare.network) await makeNetwork(docker, name, {});
    const container = await docker.createContainer({
      name,
      Image: `${repo}:${tag}`,
      Entrypoint: bare.argv,
      HostConfig: {
        NetworkMode: bare.network ? name : 'none',
        Mounts: bare.mounts.map(bindMount),
        ...gpuRequests(bare.gpu_uuids ?? []),
        ...(bare.disk_mib === null ? {} : { StorageOpt: { size: `${bare.disk_mib}M` } }),
      },
    });
    await container.start();
    // The log ends when the program ends, and fails when the engine does. `wait` never answers if the engine is restarted.
    await text((await container.logs({ stdout: true, follow: true })) as unknown as Readable);
    const { State: state } = await container.inspect();
    if (state.Running) throw new Error('the log of the container ended before the container did');
    return state.ExitCode;
  } finally {
    await clear();
    await ignoring([404, 409], docker.getImage(`${repo}:${tag}`).remove());
  }
}

/** The part of a container's configuration that asks for these GPUs. */
export function gpuRequests(uuids: readonly string[]): Pick<Docker.HostConfig, 'DeviceRequests'> {
  if (uuids.length === 0) return {};
  return { DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: [...uuids], Capabilities: [['gpu']] }] };
}

/** A read-only mount. */
export function bindMount({ source, target }: Mount): Docker.MountConfig[number] {
  return { Type: 'bind', Source: source, Target: target, ReadOnly: true };
}
