// The interface between the runtime and a container engine; docker.ts implements it for Docker.
import type { Readable } from 'node:stream';
import type { LogsTarget, PullLogin } from '../../shared/protocol/link.ts';

/** One of our containers, found by its labels. */
export interface LocalContainer {
  id: string;
  workload_id: string;
  /** True also while it is paused: its programs are there, and its GPUs are in use. */
  running: boolean;
  /** True if somebody has paused it by hand. */
  paused?: boolean;
  /** True if the container has been started at least once. */
  started: boolean;
  /** The GPUs that it was created with. */
  gpu_uuids: readonly string[];
  /** Folders of the host that are mounted into it. They must stay as long as the container exists. */
  mount_sources: string[];
}

/** The configuration of an image. */
export interface LocalImage {
  /** `sha256:...`: the registry's digest if the image came from a registry, else the local id. */
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

/** Progress of a pull. */
export interface PullNews extends PullProgress {
  /** True while the registry should be sending; false while layers are unpacked or wait for other pulls. */
  downloading: boolean;
}

/** A folder of the host, mounted read-only. */
export interface Mount {
  source: string;
  target: string;
}

/** The description of a container to create. */
export interface ContainerShape {
  workload_id: string;
  instance_id: string;
  image: string;
  hostname: string;
  entrypoint: string[];
  /** `NAME=value` sets a variable, `NAME` unsets the image's. */
  env: string[];
  mounts: Mount[];
  gpu_uuids: string[];
  /** `own`: a network that no other container uses. `none`: no network at all, for a job. */
  network: 'own' | 'none';
  /**
   * The signal with which the engine ends the container by itself, for example if the host shuts down. A job gets SIGKILL: after SIGTERM it would
   * store a part of its result as if it had been told to end.
   */
  stop_signal: 'SIGTERM' | 'SIGKILL';
  /** Folders that are created for every user of the container to write. They count against the disk like all its files. */
  folders: string[];
  /** Limit of its writes; null if the engine cannot enforce one. */
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

export interface FileInContainer {
  bytes: number;
  /** Exactly `bytes` bytes, or an error. */
  stream: Readable;
}

/** A test program in a container without an image, to find out what the engine can do. */
export interface BareRun {
  /** Part of the container's name: two runs with one name at the same time would conflict. */
  name: 'disk' | 'fence' | 'gpus';
  argv: string[];
  mounts: Mount[];
  /** Limit of its writes; null: none. */
  disk_mib: number | null;
  /** True: the container gets a network like that of a workload. False: it gets no network. */
  network: boolean;
  /** The GPUs that the container gets; none if it is left out. */
  gpu_uuids?: readonly string[];
}

export interface LastExit {
  code: number;
  /** True if the kernel has killed a program of the container because of its memory limit. */
  out_of_memory: boolean;
  /** A sentence for people. */
  reason: string;
  /** How long the container ran, by the engine's times; undefined if they make no sense. */
  ran_ms: number | undefined;
}

export interface Engine {
  /** Version of the engine. Rejects if it does not answer. */
  version(): Promise<string>;
  /** Our containers of this machine, running or not. */
  list(): Promise<LocalContainer[]>;
  /** True if the engine has the same data as when it listed our containers. False: that is not known, and the disk with its data may be away. */
  hasItsData(): Promise<boolean>;
  /** Bridge names of all workloads' networks, including those of other machines on this engine (tests share one). */
  bridges(): Promise<string[]>;
  /**
   * Creates the network of the next container in advance, because an engine takes a tenth of a second for it. Also notes the networks that are
   * there beside our containers, for `hasItsData`.
   */
  keepSpareNetwork(): Promise<void>;
  /** Removes networks of this machine that no container uses. */
  removeUnusedNetworks(): Promise<void>;
  /** Undefined if the image is not on this machine. */
  inspectImage(image: string): Promise<LocalImage | undefined>;
  /** `login` is for the registry; null: none is needed. Aborting ends the download. */
  pull(image: string, login: PullLogin | null, onNews: (news: PullNews) => void, signal: AbortSignal): Promise<void>;
  /** The folder that holds images and containers, and its disk; undefined if the engine is on another host. */
  disk(): Promise<{ folder: string; free_bytes: number; total_bytes: number } | undefined>;
  /** Removes an image that was pulled, if it exists. Rejects while a container uses it. */
  removeImage(image: string): Promise<void>;
  /**
   * Creates the workload's container in its own network; resolves with the container's id. Replaces a container of the workload that was never
   * started. Rejects if there is one that was.
   */
  create(shape: ContainerShape): Promise<string>;
  start(containerId: string): Promise<void>;
  /** Lets a paused container go on. */
  resume(containerId: string): Promise<void>;
  /** Stops the workload's container if there is one, and disconnects its network. Repeating it is harmless. */
  stopAndCut(workloadId: string): Promise<void>;
  /** Sends SIGTERM to the workload's container, and SIGKILL after `graceMs`. Resolves once it has ended. */
  stop(workloadId: string, graceMs: number): Promise<void>;
  /**
   * A regular file of the workload's container, running or not; undefined if there is none at this path. Symbolic links are not followed.
   * Rejects if the engine lists no container: the disk with its files may be away. The caller must read or destroy the stream.
   */
  fileIn(workloadId: string, path: string): Promise<FileInContainer | undefined>;
  /**
   * Removes the container, its anonymous volumes and its network. Repeating it is harmless. Rejects while the engine is still at an earlier
   * removal.
   */
  remove(workloadId: string): Promise<void>;
  /** Runs the program to its end, removes the container, and resolves with the exit code. Rejects if the engine refuses the limit. */
  runBare(run: BareRun): Promise<number>;
  /** The engine's frames of the workload's log, each line with its time. Rejects if there is no container. */
  logs(workloadId: string, wanted: Omit<LogsTarget, 'kind'>): Promise<Readable>;
  /** How a container that is not running ended. */
  lastExit(containerId: string): Promise<LastExit>;
}
