// A simulated container engine: every call takes time, and its effects outlast the agent that made the call.
import { Readable } from 'node:stream';
import type { Engine, LocalContainer } from '../../agent/runtime/engine.ts';
import type { Clock } from '../../shared/clock.ts';
import type { Rng } from '../../shared/rng.ts';

export interface SimContainer extends LocalContainer {
  instance_id: string;
  gpu_uuids: readonly string[];
  /** The network of the container is gone, so it cannot be started any more. */
  isCut: boolean;
}

export type EngineCall = 'list' | 'inspectImage' | 'pull' | 'create' | 'start' | 'stopAndCut' | 'remove' | 'version';

export interface SimEngine {
  engine: Engine;
  /** The key is the id of the workload. */
  containers: Map<string, SimContainer>;
  /** Calls fail while the engine is away, also those under way. `isLive`: containers go on meanwhile. */
  setAway(isAway: boolean, isLive: boolean): void;
  /** The storage of the engine is gone, and all containers with it. */
  lose(): void;
  /** The reason for which a call fails now, if it does. */
  trouble: ((call: EngineCall) => string | undefined) | undefined;
}

/** The shortest and the longest time that a call takes, in ms. */
const TAKES: Record<EngineCall, readonly [number, number]> = {
  version: [1, 5],
  list: [2, 40],
  inspectImage: [2, 20],
  pull: [500, 40_000],
  create: [80, 600],
  start: [150, 2_500],
  stopAndCut: [100, 10_500],
  remove: [50, 800],
};

/** `onEnd` is called for each container that is to be stopped or removed, `onChange` after each change. */
export function openEngine(
  deps: { clock: Clock; rng: Rng; slowness: () => number },
  onEnd: (workloadId: string) => void,
  onChange: () => void,
): SimEngine {
  const { clock, rng } = deps;
  const containers = new Map<string, SimContainer>();
  const images = new Set<string>();
  let [isAway, restarts] = [false, 0];
  const sim: Omit<SimEngine, 'engine'> = {
    containers,
    trouble: undefined,
    lose: () => {
      containers.clear();
      images.clear();
      onChange();
    },
    setAway: (to, isLive) => {
      isAway = to;
      if (!to) return;
      restarts += 1;
      if (!isLive) for (const container of containers.values()) container.running = false;
      onChange();
    },
  };
  const call = async <T>(name: EngineCall, act: () => T): Promise<T> => {
    const [least, most] = TAKES[name];
    const before = restarts;
    if (isAway) throw new Error('connect ENOENT /var/run/docker.sock');
    await clock.sleep(Math.round((least + rng.float() * (most - least)) * deps.slowness()));
    if (isAway || before !== restarts) throw new Error('socket hang up');
    const trouble = sim.trouble?.(name);
    if (trouble !== undefined) throw new Error(trouble);
    return act();
  };
  return Object.assign(sim, { engine: engineOn({ containers, images, call, onEnd, onChange }) });
}

interface Yard {
  containers: Map<string, SimContainer>;
  images: Set<string>;
  call<T>(name: EngineCall, act: () => T): Promise<T>;
  onEnd(workloadId: string): void;
  onChange(): void;
}

function engineOn({ containers, images, call, onEnd, onChange }: Yard): Engine {
  let made = 0;
  const end = (workloadId: string, act: () => void): void => {
    onEnd(workloadId);
    act();
    onChange();
  };
  return {
    version: () => call('version', () => '27.0.0'),
    list: () => call('list', () => [...containers.values()].map((container) => ({ ...container }))),
    hasItsData: async () => false,
    bridges: async () => [],
    keepSpareNetwork: async () => undefined,
    removeUnusedNetworks: async () => undefined,
    inspectImage: (image) => call('inspectImage', () => (images.has(image) ? IMAGE : undefined)),
    pull: (image) => call('pull', () => void images.add(image)),
    disk: async () => ({ folder: '/var/lib/docker', free_bytes: 2 ** 40, total_bytes: 2 ** 41 }),
    removeImage: async (image) => void images.delete(image),
    create: ({ workload_id, instance_id, gpu_uuids }) =>
      call('create', () => {
        if (containers.get(workload_id)?.started === true)
          throw new Error(`the container name ${workload_id} is already in use`);
        made += 1;
        const id = `c${made}`;
        containers.set(workload_id, {
          id,
          workload_id,
          instance_id,
          gpu_uuids,
          running: false,
          isCut: false,
          mount_sources: [],
          started: false,
        });
        return id;
      }),
    start: (id) =>
      call('start', () => {
        const container = [...containers.values()].find((one) => one.id === id);
        if (container === undefined) throw new Error(`no such container: ${id}`);
        if (container.isCut) throw new Error(`network of ${container.workload_id} not found`);
        container.running = true;
        container.started = true;
        onChange();
      }),
    resume: async () => undefined,
    stopAndCut: (id) =>
      call('stopAndCut', () =>
        end(id, () => {
          const container = containers.get(id);
          if (container !== undefined) [container.running, container.isCut] = [false, true];
        }),
      ),
    remove: (id) => call('remove', () => end(id, () => containers.delete(id))),
    runBare: async () => 0,
    logs: async () => Readable.from([]),
    stop: async () => undefined,
    fileIn: async () => undefined,
    lastExit: async () => ({ code: 1, out_of_memory: false, reason: 'it ended with code 1', ran_ms: undefined }),
  };
}

const IMAGE = {
  digest: `sha256:${'0'.repeat(64)}`,
  entrypoint: [],
  cmd: ['run'],
  env: [],
  user: '',
  working_dir: '',
  stop_signal: '',
};
