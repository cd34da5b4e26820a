// What the runtime needs of a container engine, in our own words; docker.ts is the one that speaks to Docker.
import type { Readable } from 'node:stream';
import type { LogsTarget, PullLogin } from '../../shared/protocol/link.ts';

/** One of our containers, found by its labels. */
export interface LocalContainer {
  id: string;
  workload_id: string;
  running: boolean;
  /** Folders of the host that it sees; they must stay for as long as it exists. */
  mount_sources: string[];
}

/** What an image says about itself. */
export interface ImageFacts {
  /** `sha256:...`: the registry's digest where the image came from one, else the local id. */
  digest: string;
  entrypoint: string[];
  cmd: string[];
  /** `NAME=value`. */
  env: string[];
  /** `user[:group]`, empty for root. */
  user: string;
  working_dir: string;
  stop_signal: string;
}

export interface PullProgress {
  done_bytes: number;
  total_bytes: number;
}

/** What is known in the middle of a pull. */
export interface PullNews extends PullProgress {
  /** Bytes are expected from the registry now; false while they are only unpacked, or other pulls come first. */
  downloading: boolean;
}

/** A folder of the host, seen read-only inside. */
export interface Mount {
  source: string;
  target: string;
}

/** A container as we want it made. */
export interface ContainerShape {
  workload_id: string;
  instance_id: string;
  image: string;
  hostname: string;
  entrypoint: string[];
  /** `NAME=value` sets, `NAME` takes the image's value away. */
  env: string[];
  mounts: Mount[];
  gpu_uuids: string[];
  /** Limit of what it can write; null where the engine cannot enforce one. */
  disk_gb: number | null;
  memory_bytes: number;
  shm_bytes: number;
  nano_cpus: number;
  cpu_shares: number;
  pids_max: number;
  /** -1 is unlimited. */
  memlock_bytes: number;
  nofile: number;
}

/** A program in a container without an image, to try out what the engine can do. */
export interface BareRun {
  /** Two of one name would be in each other's way. */
  name: 'disk' | 'fence';
  argv: string[];
  mounts: Mount[];
  /** Limit of what it can write; null: none. */
  disk_mib: number | null;
  /** In a network like that of a workload; false: in none. */
  network: boolean;
}

export interface LastExit {
  code: number;
  /** In a sentence. */
  reason: string;
}

export interface Engine {
  /** Version of the engine; throws where it does not answer. */
  version(): Promise<string>;
  /** Our containers of this machine, running or not. */
  list(): Promise<LocalContainer[]>;
  /** Names of the bridges of workloads' networks, also of those of other machines on this engine. */
  bridges(): Promise<string[]>;
  /** Makes the network of the next container where none waits: an engine takes a tenth of a second for it. */
  keepSpareNetwork(): Promise<void>;
  /** Removes networks of this machine that no container has. */
  removeUnusedNetworks(): Promise<void>;
  /** Undefined where the image is not on this machine. */
  inspectImage(image: string): Promise<ImageFacts | undefined>;
  /** `login` is what the registry wants; null: nothing. Aborting it ends the download. */
  pull(image: string, login: PullLogin | null, onNews: (news: PullNews) => void, signal: AbortSignal): Promise<void>;
  /** The disk that holds images and containers; undefined if it is not one of this host. */
  disk(): Promise<{ free_bytes: number; total_bytes: number } | undefined>;
  /** Removes an image that was pulled, if it is there. Rejects while a container has it. */
  removeImage(image: string): Promise<void>;
  /** Makes the workload's container, in a network of its own; resolves with the container's id. */
  create(shape: ContainerShape): Promise<string>;
  start(containerId: string): Promise<void>;
  /** Stops the workload's container if there is one, and takes its network away. Repeating it is harmless. */
  stopAndCut(workloadId: string): Promise<void>;
  /** Removes what is left: container, its anonymous volumes, network. Repeating it is harmless. */
  remove(workloadId: string): Promise<void>;
  /** Runs it to its end and leaves nothing; its exit code. Rejects where the engine refuses the limit. */
  runBare(run: BareRun): Promise<number>;
  /** The engine's frames of the workload's log, each line with its time. Rejects where there is no container. */
  logs(workloadId: string, wanted: Omit<LogsTarget, 'kind'>): Promise<Readable>;
  /** How a container that is not running ended. */
  lastExit(containerId: string): Promise<LastExit>;
}
