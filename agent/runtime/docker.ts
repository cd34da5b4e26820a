// Docker Engine behind our own words (engine.ts): the only file that knows its API.
import Docker from 'dockerode';
import { statfs } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { systemClock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import { createIds } from '../../shared/ids.ts';
import type { LogsTarget, PullLogin } from '../../shared/protocol/link.ts';
import { systemRng } from '../../shared/rng.ts';
import { absentAsUndefined, ignoring } from './docker-answers.ts';
import { makeNetwork, openNetworks, type Networks } from './docker-networks.ts';
import { countBytes, type PullEvent } from './pull-progress.ts';
import { tagWithoutVolumes, type Volumeless, withoutVolumes } from './volumeless.ts';
import type {
  BareRun,
  ContainerShape,
  Engine,
  ImageFacts,
  LastExit,
  LocalContainer,
  Mount,
  PullNews,
} from './engine.ts';

export interface DockerOptions {
  socketPath: string;
  /** Containers of other machines (several agents may share one engine in tests) are not ours. */
  machineId: string;
  /** How long an engine may think about what it knows by heart; one that has hung takes every call and answers none. */
  answerMsMax?: number;
}

const LABEL_WORKLOAD = 'svc.workload_id';
const LABEL_INSTANCE = 'svc.instance_id';
const LABEL_MACHINE = 'svc.machine_id';
const STOP_SECONDS = 10;
const ANSWER_MS_MAX = 60_000;

/** Opens nothing yet: every call connects by itself, so an engine that restarts is simply there again. */
export function openDocker(options: DockerOptions): Engine {
  const { socketPath, answerMsMax: timeout = ANSWER_MS_MAX } = options;
  const docker = new Docker({ socketPath });
  const asked = new Docker({ socketPath, timeout });
  const findAll = (workloadId?: string): Promise<Docker.ContainerInfo[]> =>
    asked.listContainers({
      all: true,
      filters: {
        label: [
          `${LABEL_MACHINE}=${options.machineId}`,
          workloadId === undefined ? LABEL_WORKLOAD : `${LABEL_WORKLOAD}=${workloadId}`,
        ],
      },
    });

  const networks = openNetworks({
    docker,
    asked,
    ids: createIds(systemClock(), systemRng()),
    machineId: options.machineId,
    inUse: async () => (await findAll()).map(networkOf),
  });

  return inItsOwnWords({
    version: async () => (await asked.version()).Version,

    list: async () => (await findAll()).map(localContainer),

    bridges: networks.bridges,

    keepSpareNetwork: networks.keepSpare,

    removeUnusedNetworks: networks.sweep,

    inspectImage: (image) =>
      absentAsUndefined(
        docker
          .getImage(image)
          .inspect()
          .then((facts) => imageFacts(image, facts)),
      ),

    pull: (image, login, onNews, signal) => pullImage(docker, image, { login, onNews, signal }),

    disk: () => diskOf(asked),

    removeImage: (image) => removeImage(docker, image),

    create: (shape) => create(docker, networks, shape, options.machineId),

    start: (containerId) => start(networks, docker.getContainer(containerId)),

    stopAndCut: async (workloadId) => stopAndCut(docker, networks, await findAll(workloadId)),

    remove: async (workloadId) => {
      for (const container of await findAll(workloadId)) await remove(docker, networks, container);
    },

    runBare: (run) => runBare(docker, run, options.machineId),

    logs: async (workloadId, wanted) => {
      const [found] = await findAll(workloadId);
      if (found === undefined) throw new Error('there is no container any more, and no log of it');
      return readLogs(docker.getContainer(found.Id), wanted);
    },

    lastExit: (containerId) => lastExit(docker.getContainer(containerId)),
  });
}

async function create(docker: Docker, networks: Networks, shape: ContainerShape, machineId: string): Promise<string> {
  const labels = {
    [LABEL_WORKLOAD]: shape.workload_id,
    [LABEL_INSTANCE]: shape.instance_id,
    [LABEL_MACHINE]: machineId,
  };
  const container = await networks.forContainer((network) =>
    createContainer(docker, createOptions(shape, labels, network)),
  );
  return container.id;
}

/**
 * No volume that the image declares is made. One would lie beside the disk and outside its size, and one over our files (also through a
 * link of the image) would put the image's own files in their place.
 */
async function createContainer(
  docker: Docker,
  options: Docker.ContainerCreateOptions & { Image: string },
): Promise<Docker.Container> {
  const image = withoutVolumes(await docker.getImage(options.Image).inspect());
  if (image === undefined) return docker.createContainer(options);
  await loadOnce(docker, image);
  const container = await docker.createContainer({ ...options, Image: image.tag });
  for (const { path, archive } of image.folders) {
    // The engine would have made it for the volume.
    const isThere = (await absentAsUndefined(container.infoArchive({ path }))) !== undefined;
    if (!isThere) await container.putArchive(archive, { path: '/' });
  }
  return container;
}

async function loadOnce(docker: Docker, { tag, archive }: Volumeless): Promise<void> {
  const isThere = async (): Promise<boolean> => (await absentAsUndefined(docker.getImage(tag).inspect())) !== undefined;
  if (await isThere()) return;
  const told = await text(await docker.loadImage(Readable.from([archive])));
  if (!(await isThere())) throw new Error(`the engine does not take the image without its volumes: ${told}`);
}

async function start(networks: Networks, container: Docker.Container): Promise<void> {
  await ignoring([304], container.start()).catch(async (error: unknown) => {
    if (!/network \S+ not found/.test(messageOf(error))) throw error;
    // We were ended between making the container and making its network, or somebody has removed what nobody used yet.
    await networks.make((await container.inspect()).HostConfig.NetworkMode ?? '');
    await container.start();
  });
}

async function stopAndCut(docker: Docker, networks: Networks, containers: Docker.ContainerInfo[]): Promise<void> {
  for (const container of containers) {
    const network = networkOf(container);
    await ignoring([304, 404], docker.getContainer(container.Id).stop({ t: STOP_SECONDS }));
    await ignoring([404, 500], docker.getNetwork(network).disconnect({ Container: container.Id, Force: true }));
    await networks.remove(network);
  }
}

async function remove(docker: Docker, networks: Networks, container: Docker.ContainerInfo): Promise<void> {
  await ignoring([404, 409], docker.getContainer(container.Id).remove({ force: true, v: true }));
  await networks.remove(networkOf(container));
}

/** Errors reach customers: `(HTTP code 500) server error - ` is dockerode's addition and says nothing to them. */
function inItsOwnWords(engine: Engine): Engine {
  const plain =
    <A extends unknown[], R>(call: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      try {
        return await call(...args);
      } catch (error) {
        const words = messageOf(error)
          .replace(/^\(HTTP code \d+\) [^-]* - /, '')
          .trim();
        throw new Error(words, { cause: error });
      }
    };
  return {
    version: plain(engine.version),
    list: plain(engine.list),
    bridges: plain(engine.bridges),
    keepSpareNetwork: plain(engine.keepSpareNetwork),
    removeUnusedNetworks: plain(engine.removeUnusedNetworks),
    inspectImage: plain(engine.inspectImage),
    pull: plain(engine.pull),
    disk: plain(engine.disk),
    removeImage: plain(engine.removeImage),
    create: plain(engine.create),
    start: plain(engine.start),
    stopAndCut: plain(engine.stopAndCut),
    remove: plain(engine.remove),
    runBare: plain(engine.runBare),
    logs: plain(engine.logs),
    lastExit: plain(engine.lastExit),
  };
}

async function pullImage(
  docker: Docker,
  image: string,
  { login, onNews, signal }: { login: PullLogin | null; onNews: (news: PullNews) => void; signal: AbortSignal },
): Promise<void> {
  const authconfig = login === null ? {} : { authconfig: registryAuth(login) };
  const stream = await docker.pull(image, { ...authconfig, abortSignal: signal });
  await new Promise<void>((resolve, reject) => {
    // A layer that fails is only a line of the stream, which then ends like a good one.
    const finished = (error: Error | null, lines: PullEvent[]): void => {
      const failed = lines.find((line) => line.error !== undefined);
      if (error !== null) reject(error);
      else if (failed !== undefined) reject(new Error(failed.error));
      else resolve();
    };
    docker.modem.followProgress(stream, finished, countBytes(onNews));
  });
  if ((await absentAsUndefined(docker.getImage(image).inspect())) === undefined) {
    throw new Error('the engine stopped pulling before the image was whole');
  }
}

async function diskOf(docker: Docker): Promise<{ free_bytes: number; total_bytes: number } | undefined> {
  const { DockerRootDir: folder } = (await docker.info()) as { DockerRootDir: string };
  const found = await statfs(folder).catch(() => undefined);
  return found && { free_bytes: found.bavail * found.bsize, total_bytes: found.blocks * found.bsize };
}

/** The image that was made from this one holds the same layers. */
async function removeImage(docker: Docker, image: string): Promise<void> {
  const found = await absentAsUndefined(docker.getImage(image).inspect());
  if (found === undefined) return;
  await ignoring([404], docker.getImage(tagWithoutVolumes(found.Id)).remove());
  await ignoring([404], docker.getImage(image).remove());
}

/** The engine's X-Registry-Auth: a token is passed through as it is, a login is used as the registry asks for it. */
function registryAuth(login: PullLogin): Docker.AuthConfig {
  return login.kind === 'bearer'
    ? { registrytoken: login.token }
    : { username: login.username, password: login.password };
}

/** Whole where it is not followed: the engine's client knows no other way, and LOG_LINES_MAX bounds it. */
async function readLogs(
  container: Docker.Container,
  { tail, follow, since }: Omit<LogsTarget, 'kind'>,
): Promise<Readable> {
  const options = { stdout: true, stderr: true, timestamps: true, tail, ...(since === null ? {} : { since }) } as const;
  if (!follow) return Readable.from([await container.logs({ ...options, follow: false })]);
  // An IncomingMessage, which its types do not say: only that has a `destroy` that ends the request.
  return (await container.logs({ ...options, follow: true })) as unknown as Readable;
}

/** The end of an archive without entries. */
const EMPTY_TAR = Buffer.alloc(1024);

async function runBare(docker: Docker, bare: BareRun, machineId: string): Promise<number> {
  const name = `svc-bare-${bare.name}-${machineId}`;
  const [repo, tag] = ['svc-empty', `${bare.name}-${machineId}`];
  const clear = async (): Promise<void> => {
    await ignoring([404], docker.getContainer(name).remove({ force: true, v: true }));
    if (bare.network) await ignoring([404], docker.getNetwork(name).remove());
  };
  // What a crash has left behind.
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
        ...(bare.disk_mib === null ? {} : { StorageOpt: { size: `${bare.disk_mib}M` } }),
      },
    });
    await container.start();
    // The log ends with the program, or fails with the engine; `wait` of an engine that is restarted never answers.
    await text((await container.logs({ stdout: true, follow: true })) as unknown as Readable);
    const { State: state } = await container.inspect();
    if (state.Running) throw new Error('the engine stopped telling of the container before its end');
    return state.ExitCode;
  } finally {
    await clear();
    await ignoring([404, 409], docker.getImage(`${repo}:${tag}`).remove());
  }
}

async function lastExit(container: Docker.Container): Promise<LastExit> {
  const { Error: error, ExitCode: code, OOMKilled: starved } = (await container.inspect()).State;
  return { code, reason: error || (starved ? 'it ran out of memory' : `it ended with code ${code}`) };
}

/** Its own, also after that is gone. */
function networkOf({ HostConfig: host }: Docker.ContainerInfo): string {
  return host.NetworkMode;
}

function createOptions(
  shape: ContainerShape,
  labels: Record<string, string>,
  network: string,
): Docker.ContainerCreateOptions & { Image: string } {
  const gpus = { Driver: 'nvidia', DeviceIDs: shape.gpu_uuids, Capabilities: [['gpu']] };
  return {
    name: `svc-${shape.workload_id}`,
    Image: shape.image,
    Hostname: shape.hostname,
    Entrypoint: shape.entrypoint,
    Env: shape.env,
    Labels: labels,
    // The image's own check would run without the environment that we keep from the container.
    Healthcheck: { Test: ['NONE'] },
    // To our guest, which sends the main process what the image asks for.
    StopSignal: 'SIGTERM',
    HostConfig: {
      Init: true,
      NetworkMode: network,
      Mounts: shape.mounts.map(bindMount),
      Memory: shape.memory_bytes,
      MemorySwap: shape.memory_bytes,
      ShmSize: shape.shm_bytes,
      NanoCpus: shape.nano_cpus,
      CpuShares: shape.cpu_shares,
      PidsLimit: shape.pids_max,
      CapDrop: ['NET_RAW', 'MKNOD'],
      SecurityOpt: ['no-new-privileges:true'],
      Ulimits: [
        { Name: 'memlock', Soft: shape.memlock_bytes, Hard: shape.memlock_bytes },
        { Name: 'nofile', Soft: shape.nofile, Hard: shape.nofile },
      ],
      LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
      // Our reconciler starts it again after a reboot: it alone knows whether it should run.
      RestartPolicy: { Name: 'no' },
      ...(shape.gpu_uuids.length === 0 ? {} : { DeviceRequests: [gpus] }),
      ...(shape.disk_gb === null ? {} : { StorageOpt: { size: `${shape.disk_gb}G` } }),
    },
  };
}

function bindMount({ source, target }: Mount): Docker.MountConfig[number] {
  return { Type: 'bind', Source: source, Target: target, ReadOnly: true };
}

function localContainer(info: Docker.ContainerInfo): LocalContainer {
  return {
    id: info.Id,
    workload_id: info.Labels[LABEL_WORKLOAD] ?? '',
    running: info.State === 'running',
    mount_sources: info.Mounts.flatMap(({ Source }) => (Source === undefined ? [] : [Source])),
  };
}

function imageFacts(image: string, facts: Docker.ImageInspectInfo): ImageFacts {
  const config = facts.Config;
  const repoDigests = (facts.RepoDigests ?? []).map((one) => one.slice(one.indexOf('@') + 1));
  const asked = image.includes('@') ? image.slice(image.indexOf('@') + 1) : undefined;
  return {
    digest: asked ?? repoDigests[0] ?? facts.Id,
    entrypoint: listOf(config.Entrypoint),
    cmd: listOf(config.Cmd),
    env: config.Env ?? [],
    user: config.User ?? '',
    working_dir: config.WorkingDir ?? '',
    stop_signal: 'StopSignal' in config && typeof config.StopSignal === 'string' ? config.StopSignal : '',
  };
}

function listOf(value: string | string[] | null | undefined): string[] {
  if (value === null || value === undefined) return [];
  return typeof value === 'string' ? [value] : value;
}
