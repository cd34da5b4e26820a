// The Docker Engine as the runtime's `Engine` (engine.ts): the only file that knows Docker's API.
import Docker from 'dockerode';
import { statfs } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { systemClock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import { createIds } from '../../shared/ids.ts';
import type { LogsTarget, PullLogin } from '../../shared/protocol/link.ts';
import { systemRng } from '../../shared/rng.ts';
import { absentAsUndefined, countBytes, followPull, ignoring, statusOf } from './docker-answers.ts';
import { bindMount, gpuRequests, runBare } from './docker-bare.ts';
import { jobCalls } from './docker-jobs.ts';
import { openNetworks, type Networks } from './docker-networks.ts';
import { tagWithoutVolumes, tarOf, type Volumeless, withoutVolumes } from './volumeless.ts';
import type { ContainerShape, Engine, LocalImage, LastExit, LocalContainer, PullNews } from './engine.ts';

export interface DockerOptions {
  socketPath: string;
  /** Containers of other machines (several agents may share one engine in tests) are not ours. */
  machineId: string;
  /** Time limit of calls that need no work in the engine. An engine that hangs accepts every call and answers none. */
  answerMsMax?: number;
}

const LABEL_WORKLOAD = 'svc.workload_id';
const LABEL_INSTANCE = 'svc.instance_id';
/** UUIDs separated by commas. A list of containers has their labels, and not the GPUs that they were created with. */
const LABEL_GPUS = 'svc.gpu_uuids';
const LABEL_MACHINE = 'svc.machine_id';
/** Docker's name for a container without any network. */
const NO_NETWORK = 'none';
const STOP_SECONDS = 10;
const ANSWER_MS_MAX = 60_000;

/** Opens no connection: each call opens its own, so a restart of the engine needs no handling. */
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

    hasItsData: networks.haveWitness,

    bridges: networks.bridges,

    keepSpareNetwork: networks.keepSpare,

    removeUnusedNetworks: networks.sweep,

    inspectImage: (image) => inspectImage(docker, image),

    pull: (image, login, onNews, signal) => pullImage(docker, image, { login, onNews, signal }),

    disk: () => diskOf(asked),

    removeImage: (image) => removeImage(docker, image),

    create: (shape) => create(docker, networks, shape, options.machineId),

    start: (containerId) => start(networks, docker.getContainer(containerId)),

    resume: async (containerId) => void (await docker.getContainer(containerId).unpause()),

    stopAndCut: async (workloadId) => stopAndCut(docker, networks, await findAll(workloadId)),

    ...jobCalls(docker, findAll),

    remove: async (workloadId) => {
      for (const container of await findAll(workloadId)) await remove(docker, networks, container);
    },

    runBare: (run) => runBare(docker, run, options.machineId),

    logs: async (workloadId, wanted) => readLogs(docker, await findAll(workloadId), wanted),

    lastExit: (containerId) => lastExit(docker.getContainer(containerId)),
  });
}

type CreateOptions = Docker.ContainerCreateOptions & { Image: string; name: string };

async function create(docker: Docker, networks: Networks, shape: ContainerShape, machineId: string): Promise<string> {
  const labels = {
    [LABEL_WORKLOAD]: shape.workload_id,
    [LABEL_INSTANCE]: shape.instance_id,
    [LABEL_MACHINE]: machineId,
    [LABEL_GPUS]: shape.gpu_uuids.join(','),
  };
  const createIn = (network: string): Promise<Docker.Container> =>
    createContainer(docker, createOptions(shape, labels, network), shape.folders);
  const container = await (shape.network === 'none' ? createIn(NO_NETWORK) : networks.forContainer(createIn));
  return container.id;
}

/**
 * Creates the container with its folders, and without the volumes that the image declares. A volume would not count against the disk size. A
 * volume over our files (also through a symbolic link of the image) would replace them with the image's files.
 */
async function createContainer(
  docker: Docker,
  options: CreateOptions,
  folders: readonly string[],
): Promise<Docker.Container> {
  const image = withoutVolumes(await docker.getImage(options.Image).inspect());
  if (image !== undefined) await loadOnce(docker, image);
  const container = await createNew(docker, { ...options, Image: image?.tag ?? options.Image });
  try {
    for (const folder of image?.folders ?? []) await makeFolder(container, folder);
    const entries = folders.map((folder) => ({ name: `${folder.replace(/^\/+/, '')}/`, mode: '1777' }));
    if (entries.length > 0) await container.putArchive(tarOf(entries), { path: '/' });
  } catch (error) {
    // A half-made container must not stay: it would be found by its labels and started. The first error says more than a second one.
    await container.remove({ force: true, v: true }).catch(() => undefined);
    throw error;
  }
  return container;
}

/** The engine would have created this folder together with the volume. */
async function makeFolder(container: Docker.Container, { path, archive }: Volumeless['folders'][0]): Promise<void> {
  try {
    const isThere = (await absentAsUndefined(container.infoArchive({ path }))) !== undefined;
    if (!isThere) await container.putArchive(archive, { path: '/' });
  } catch (error) {
    // The engine refuses the question in no words at all.
    const words = ownWords(error);
    const reason = words === '' ? 'a file may be in the way, or a link that leads nowhere' : words;
    throw new Error(`a folder that the image declares as a VOLUME cannot be made: ${reason}`, { cause: error });
  }
}

/** Creates the container in place of one with its name that was never started. The name is the workload's, so the engine never has two of one. */
async function createNew(docker: Docker, options: CreateOptions): Promise<Docker.Container> {
  try {
    return await docker.createContainer(options);
  } catch (error) {
    if (statusOf(error) !== 409) throw error;
    const earlier = docker.getContainer(options.name);
    const found = await absentAsUndefined(earlier.inspect());
    if (found?.State.Status !== 'created') throw error;
    // This removal is not forced, so the engine refuses it if the container has been started in the meantime.
    await ignoring([404], earlier.remove({ v: true }));
    return docker.createContainer(options);
  }
}

async function loadOnce(docker: Docker, { tag, archive }: Volumeless): Promise<void> {
  const isThere = async (): Promise<boolean> => (await absentAsUndefined(docker.getImage(tag).inspect())) !== undefined;
  if (await isThere()) return;
  const answer = await text(await docker.loadImage(Readable.from([archive])));
  if (!(await isThere())) throw new Error(`the engine does not take the image without its volumes: ${answer}`);
}

async function start(networks: Networks, container: Docker.Container): Promise<void> {
  await ignoring([304], container.start()).catch(async (error: unknown) => {
    if (!/network \S+ not found/.test(messageOf(error))) throw error;
    // The agent was ended between creating the container and its network, or somebody has removed the unused network.
    await networks.make((await container.inspect()).HostConfig.NetworkMode ?? '');
    await container.start();
  });
}

async function stopAndCut(docker: Docker, networks: Networks, containers: Docker.ContainerInfo[]): Promise<void> {
  for (const container of containers) {
    const network = networkOf(container);
    await ignoring([304, 404], docker.getContainer(container.Id).stop({ t: STOP_SECONDS }));
    if (network === NO_NETWORK) continue;
    await ignoring([404, 500], docker.getNetwork(network).disconnect({ Container: container.Id, Force: true }));
    await networks.remove(network);
  }
}

async function remove(docker: Docker, networks: Networks, container: Docker.ContainerInfo): Promise<void> {
  await removeWhole(docker.getContainer(container.Id));
  const network = networkOf(container);
  if (network !== NO_NETWORK) await networks.remove(network);
}

/** Resolves once the container is gone. The engine refuses a second removal while the first one is under way, which may still fail. */
async function removeWhole(container: Docker.Container): Promise<void> {
  try {
    await ignoring([404], container.remove({ force: true, v: true }));
  } catch (error) {
    const isUnderWay = statusOf(error) === 409;
    if (!isUnderWay || (await absentAsUndefined(container.inspect())) !== undefined) throw error;
  }
}

/** The error without dockerode's prefix `(HTTP code 500) server error - `: customers see it, and the prefix means nothing to them. */
function ownWords(error: unknown): string {
  return messageOf(error)
    .replace(/^\(HTTP code \d+\) [^-]* - /, '')
    .trim();
}

function inItsOwnWords(engine: Engine): Engine {
  const plain =
    <A extends unknown[], R>(call: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      try {
        return await call(...args);
      } catch (error) {
        throw new Error(ownWords(error), { cause: error });
      }
    };
  return {
    version: plain(engine.version),
    list: plain(engine.list),
    hasItsData: plain(engine.hasItsData),
    bridges: plain(engine.bridges),
    keepSpareNetwork: plain(engine.keepSpareNetwork),
    removeUnusedNetworks: plain(engine.removeUnusedNetworks),
    inspectImage: plain(engine.inspectImage),
    pull: plain(engine.pull),
    disk: plain(engine.disk),
    removeImage: plain(engine.removeImage),
    create: plain(engine.create),
    start: plain(engine.start),
    resume: plain(engine.resume),
    stopAndCut: plain(engine.stopAndCut),
    stop: plain(engine.stop),
    fileIn: plain(engine.fileIn),
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
  await followPull(stream, countBytes(onNews));
  if ((await absentAsUndefined(docker.getImage(image).inspect())) === undefined) {
    throw new Error('the engine stopped pulling before the image was whole');
  }
}

async function diskOf(docker: Docker): ReturnType<Engine['disk']> {
  const { DockerRootDir: folder } = (await docker.info()) as { DockerRootDir: string };
  const found = await statfs(folder).catch(() => undefined);
  return found && { folder, free_bytes: found.bavail * found.bsize, total_bytes: found.blocks * found.bsize };
}

/** Removes the image and the copy of it without volumes, which would keep the layers on the disk. */
async function removeImage(docker: Docker, image: string): Promise<void> {
  const found = await absentAsUndefined(docker.getImage(image).inspect());
  if (found === undefined) return;
  await ignoring([404], docker.getImage(tagWithoutVolumes(found.Id)).remove());
  await ignoring([404], docker.getImage(image).remove());
}

/** The engine's X-Registry-Auth. The engine passes a token on unchanged, and uses a login as the registry asks. */
function registryAuth(login: PullLogin): Docker.AuthConfig {
  return login.kind === 'bearer'
    ? { registrytoken: login.token }
    : { username: login.username, password: login.password };
}

async function readLogs(
  docker: Docker,
  [found]: Docker.ContainerInfo[],
  { tail, follow, since }: Omit<LogsTarget, 'kind'>,
): Promise<Readable> {
  if (found === undefined) throw new Error('the container no longer exists, and neither does its log');
  const statusCodes = { 200: true, 404: 'no such container', 500: 'server error' };
  const options = { stdout: true, stderr: true, timestamps: true, tail, follow, ...(since === null ? {} : { since }) };
  const request = { path: `/containers/${found.Id}/logs?`, method: 'GET', isStream: true, statusCodes, options };
  // dockerode's own `logs` keeps a log that is not followed in memory, several times. The `destroy` of this stream ends the request.
  return new Promise((resolve, reject) => {
    docker.modem.dial(request, (error, log) => (error === null ? resolve(log as Readable) : reject(error as Error)));
  });
}

async function lastExit(container: Docker.Container): Promise<LastExit> {
  const { State: state } = await container.inspect();
  const { Error: error, ExitCode: code, OOMKilled: starved } = state;
  const ranMs = Date.parse(state.FinishedAt) - Date.parse(state.StartedAt);
  const reason = error || (starved ? 'it ran out of memory' : `it ended with code ${code}`);
  return { code, out_of_memory: starved, reason, ran_ms: ranMs >= 0 ? ranMs : undefined };
}

/** The name of the container's own network, also after the network is gone. */
function networkOf({ HostConfig: host }: Docker.ContainerInfo): string {
  return host.NetworkMode;
}

function createOptions(shape: ContainerShape, labels: Record<string, string>, network: string): CreateOptions {
  return {
    name: `svc-${shape.workload_id}`,
    Image: shape.image,
    Hostname: shape.hostname,
    Entrypoint: shape.entrypoint,
    Env: shape.env,
    Labels: labels,
    // Off, because the image's check would run without the image's environment (see containerEnv).
    Healthcheck: { Test: ['NONE'] },
    StopSignal: shape.stop_signal,
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
        // Many hosts pipe core files into a service of their own, which stores them outside of the disk that the customer rents.
        { Name: 'core', Soft: 0, Hard: 0 },
      ],
      LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
      // The agent, and not the engine, starts the container after a reboot, because only the agent knows whether it should run.
      RestartPolicy: { Name: 'no' },
      ...gpuRequests(shape.gpu_uuids),
      ...(shape.disk_gb === null ? {} : { StorageOpt: { size: `${shape.disk_gb}G` } }),
    },
  };
}

function localContainer(info: Docker.ContainerInfo): LocalContainer {
  return {
    id: info.Id,
    workload_id: info.Labels[LABEL_WORKLOAD] ?? '',
    running: info.State === 'running' || info.State === 'paused',
    ...(info.State === 'paused' ? { paused: true } : {}),
    started: info.State !== 'created',
    gpu_uuids: (info.Labels[LABEL_GPUS] ?? '').split(',').filter((uuid) => uuid !== ''),
    mount_sources: info.Mounts.flatMap(({ Source }) => (Source === undefined ? [] : [Source])),
  };
}

async function inspectImage(docker: Docker, image: string): Promise<LocalImage | undefined> {
  const facts = await absentAsUndefined(docker.getImage(image).inspect());
  return facts === undefined ? undefined : imageFacts(image, facts);
}

function imageFacts(image: string, facts: Docker.ImageInspectInfo): LocalImage {
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
