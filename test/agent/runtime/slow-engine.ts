// An engine with one container at a time, which a test plays: it answers late, and fails as the script says.
import { Readable } from 'node:stream';
import type { Engine, LastExit, LocalContainer } from '../../../agent/runtime/engine.ts';
import { type Clock, systemClock } from '../../../shared/clock.ts';

export interface EngineScript {
  clock: Clock;
  /** The exit of a container right after its start. */
  lastExit: LastExit;
  /** Whether a container that is started goes on. */
  staysUp: boolean;
  /** The engine creates no container before it resolves. */
  mayCreate: Promise<void>;
  /** The engine starts no container before it resolves. */
  mayStart: Promise<void>;
  /** The engine does not say which containers there are. */
  isAway: boolean;
  /** The engine shows that it has the same data as when it listed a container. */
  hasItsData: boolean;
  /** The engine lists no containers before it resolves. */
  mayList: Promise<void>;
  /** One entry for each inspection of the image: whether it is missing. After the last entry it is there. */
  absences: boolean[];
  /** Why the next pulls fail, one each. */
  pullFaults: Error[];
  /** Calls that change something on the engine, in the order in which they begin. */
  calls: string[];
  /** The folders of the host that are mounted into the container. */
  mountSources: string[];
  /** Ends the container. */
  loseContainer(): void;
  /** The last container is there again, and runs. */
  comeBack(): void;
  /** Somebody else pauses the container. */
  pauseContainer(): void;
  /** Somebody else removes the container. */
  removeContainer(): void;
}

/** An engine on which everything succeeds. */
export function newScript(): EngineScript {
  return {
    clock: systemClock(),
    lastExit: { code: 0, out_of_memory: false, reason: '', ran_ms: undefined },
    staysUp: true,
    mayCreate: Promise.resolve(),
    mayStart: Promise.resolve(),
    isAway: false,
    hasItsData: false,
    mayList: Promise.resolve(),
    absences: [],
    pullFaults: [],
    calls: [],
    mountSources: [],
    loseContainer: () => undefined,
    comeBack: () => undefined,
    pauseContainer: () => undefined,
    removeContainer: () => undefined,
  };
}

/** Lists the containers as they were at the call, and answers some turns later. */
export function openSlowEngine(script: EngineScript): Engine {
  let containers: LocalContainer[] = [];
  let created: Pick<LocalContainer, 'workload_id' | 'gpu_uuids'> = { workload_id: 'none', gpu_uuids: [] };
  const put = (running: boolean): void => {
    containers = [{ ...created, id: 'c', running, mount_sources: script.mountSources, started: true }];
  };
  script.loseContainer = () => put(false);
  script.comeBack = () => put(true);
  script.pauseContainer = () => {
    put(true);
    containers = containers.map((one) => ({ ...one, paused: true }));
  };
  script.removeContainer = () => void (containers = []);
  return {
    version: async () => '1',
    list: async () => {
      await script.mayList;
      if (script.isAway) throw new Error('no answer');
      const then = containers;
      for (let turn = 0; turn < 5; turn += 1) await script.clock.nextTurn();
      return then;
    },
    hasItsData: async () => script.hasItsData,
    bridges: async () => [],
    keepSpareNetwork: async () => void script.calls.push('spare'),
    removeUnusedNetworks: async () => undefined,
    inspectImage: async () => (script.absences.shift() === true ? undefined : IMAGE),
    pull: async () => {
      script.calls.push('pull');
      const fault = script.pullFaults.shift();
      if (fault !== undefined) throw fault;
    },
    disk: async () => undefined,
    removeImage: async () => undefined,
    create: async ({ workload_id, gpu_uuids }) => {
      script.calls.push('create');
      await script.mayCreate;
      created = { workload_id, gpu_uuids };
      put(false);
      return 'c';
    },
    start: async () => {
      script.calls.push('start');
      await script.mayStart;
      put(script.staysUp);
    },
    resume: async () => {
      script.calls.push('resume');
      put(true);
    },
    stopAndCut: async () => {
      script.calls.push('stop');
      put(false);
    },
    remove: async () => {
      script.calls.push('remove');
      containers = [];
    },
    runBare: async () => 0,
    logs: async () => Readable.from([]),
    stop: async () => undefined,
    fileIn: async () => undefined,
    lastExit: async () => script.lastExit,
  };
}

const IMAGE = {
  digest: 'sha256:0',
  entrypoint: ['run'],
  cmd: [],
  env: [],
  user: '',
  working_dir: '',
  stop_signal: '',
};
