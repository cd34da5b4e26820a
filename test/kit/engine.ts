// A private Docker Engine for tests: own folder, socket and network namespace, simulated GPUs, gone afterwards.
import Docker from 'dockerode';
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { cleanUp } from './leaks.ts';
import { openNamespace, type Namespace } from './netns.ts';
import { eventually, startProgram, type Program } from './processes.ts';
import { requireProgram } from './setup.ts';

/** Put this folder in front of PATH, or name its `nvidia-smi`, and a machine has simulated GPUs. */
export const GPU_DIR = join(import.meta.dirname, 'gpu');

export interface Engine {
  docker: Docker;
  socketPath: string;
  /** True when it was started here; an engine that was there before is never restarted or stopped. */
  isPrivate: boolean;
  /** Lets the engine reach a registry (or anything else) on the machine's 127.0.0.1:port. */
  letThrough(port: number): Promise<void>;
  /** The command line that runs a program in the engine's network, where its bridges and firewall rules are. */
  inside(argv: readonly string[]): [string, ...string[]];
  /** Ends dockerd and starts it again; containers keep running (live-restore). SIGKILL is a crash. */
  restart(signal?: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** Removes its containers, ends it, and removes all it kept. */
  stop(): Promise<void>;
}

export interface EngineOptions {
  /** New and empty; by default a folder below the system's temporary one. */
  dir?: string;
  /** Environment of dockerd, and so of the GPU hook: FAKE_GPU_COUNT, FAKE_GPU_NAME, FAKE_GPU_SEED, FAKE_GPU_TABLE. */
  env?: Record<string, string>;
  /** If it is true (the default), dockerd finds the fake hook. If it is false, dockerd finds the machine's own. */
  simulatesGpus?: boolean;
  /** Folder of the fake hook, if it is not GPU_DIR: a copy that a test can break. */
  hookDir?: string;
  storageDriver?: string;
}

/** A private engine on Linux as root; elsewhere the one of DOCKER_HOST or the usual socket. Throws if there is none. */
export async function chooseEngine(options: EngineOptions = {}): Promise<Engine> {
  if (process.platform === 'linux' && process.getuid?.() === 0) return startEngine(options);
  const socketPath = (process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock').replace(/^unix:\/\//, '');
  const docker = new Docker({ socketPath });
  await docker.ping();
  const cannot = (): never => {
    throw new Error('this engine was there before the test and stays as it is');
  };
  return {
    docker,
    socketPath,
    isPrivate: false,
    letThrough: () => Promise.resolve(),
    inside: cannot,
    restart: cannot,
    stop: () => Promise.resolve(),
  };
}

/** Needs Linux, root, and the programs dockerd, iptables and busybox. */
export async function startEngine(options: EngineOptions = {}): Promise<Engine> {
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), 'engine-'));
  const socketPath = join(dir, 'docker.sock');
  const docker = new Docker({ socketPath });
  const namespace = await openNamespace(dir);
  let daemon = await startDaemon(dir, namespace, options);
  return {
    docker,
    socketPath,
    isPrivate: true,
    letThrough: namespace.letThrough,
    inside: namespace.inside,
    restart: async (signal = 'SIGTERM') => {
      await daemon.stop(signal, 30_000);
      // After a crash these name processes that are dead but perhaps not yet reaped, and dockerd would wait for them.
      for (const pidFile of ['docker.pid', 'exec/containerd/containerd.pid'])
        rmSync(join(dir, pidFile), { force: true });
      daemon = await startDaemon(dir, namespace, options);
    },
    stop: async () => {
      // A dockerd that a test left dead cannot remove them: then their processes are ended below.
      await removeContainers(docker).catch(() => undefined);
      await daemon.stop('SIGTERM', 30_000);
      await namespace.stop();
      await cleanUp({ id: dir, dir });
    },
  };
}

/** Pulls an image to the end. dockerode reports a failed layer only as a line of the progress; here it rejects. */
export async function pullImage(docker: Docker, ref: string): Promise<void> {
  const stream = await docker.pull(ref);
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(stream, (error: Error | null, lines: { error?: string }[]) => {
      const failed = error?.message ?? lines.find((line) => line.error !== undefined)?.error;
      if (failed === undefined) resolve();
      else reject(new Error(`${ref} was not pulled: ${failed}`));
    });
  });
}

/** One line for each container, volume and network (beyond Docker's own three) that the engine holds. */
export async function engineContents(docker: Docker): Promise<string[]> {
  const [containers, { Volumes: volumes }, networks] = await Promise.all([
    docker.listContainers({ all: true }),
    docker.listVolumes(),
    docker.listNetworks(),
  ]);
  return [
    ...containers.map(({ Names, Image, State }) => `container ${Names.join(' ')} of ${Image}, ${State}`),
    ...volumes.map(({ Name }) => `volume ${Name}`),
    ...networks.filter(({ Name }) => !['bridge', 'host', 'none'].includes(Name)).map(({ Name }) => `network ${Name}`),
  ];
}

/** Contents without the one network that an agent keeps ready. */
export function withoutSpare(contents: readonly string[]): string[] {
  const spare = contents.find((line) => line.startsWith('network svc-net_'));
  return contents.filter((line) => line !== spare);
}

async function startDaemon(dir: string, namespace: Namespace, options: EngineOptions): Promise<Program> {
  const configPath = join(dir, 'daemon.json');
  writeFileSync(configPath, JSON.stringify(daemonConfig(dir, options.storageDriver), undefined, 2));
  const dockerd = requireProgram('dockerd');
  const [command, ...args] = namespace.inside([dockerd, '--config-file', configPath]);
  // The hook must be found in dockerd's PATH, and containerd, runc and iptables beside dockerd.
  const hooks = options.simulatesGpus === false ? [] : [options.hookDir ?? GPU_DIR];
  const path = [...hooks, dirname(dockerd), '/usr/bin', '/usr/sbin', '/bin', '/sbin', process.env['PATH']].join(':');
  const daemon = startProgram({
    command,
    args,
    env: { ...options.env, PATH: path, DOCKER_HOST: undefined, TMPDIR: dir },
  });
  const docker = new Docker({ socketPath: join(dir, 'docker.sock') });
  try {
    await Promise.race([
      eventually('answer from dockerd', 60_000, () => docker.ping()),
      daemon.exited.then(() => Promise.reject(new Error('dockerd ended'))),
    ]);
  } catch (error) {
    await daemon.stop('SIGKILL');
    throw new Error(`dockerd did not start:\n${daemon.output().slice(-4000)}`, { cause: error });
  }
  return daemon;
}

function daemonConfig(dir: string, storageDriver: string | undefined): Record<string, unknown> {
  const OVERLAYFS_MAGIC = 0x794c7630;
  // overlay2 cannot stand on another overlay, which is what a container's own root is.
  const driver = storageDriver ?? (statfsSync(dir).type === OVERLAYFS_MAGIC ? 'vfs' : 'overlay2');
  return {
    'data-root': join(dir, 'data'),
    'exec-root': join(dir, 'exec'),
    pidfile: join(dir, 'docker.pid'),
    hosts: [`unix://${join(dir, 'docker.sock')}`],
    'live-restore': true,
    'insecure-registries': ['127.0.0.0/8'],
    'storage-driver': driver,
    'log-level': 'warn',
  };
}

async function removeContainers(docker: Docker): Promise<void> {
  const containers = await docker.listContainers({ all: true });
  await Promise.all(containers.map(({ Id }) => docker.getContainer(Id).remove({ force: true, v: true })));
}
