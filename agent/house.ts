// The supervisor put together: the only file that knows every room of the agent.
import { systemClock } from '../shared/clock.ts';
import type { Log } from '../shared/log.ts';
import { startLoop } from '../shared/loop.ts';
import type { Inventory } from '../shared/protocol/inventory.ts';
import { STREAMS_PATH } from '../shared/protocol/link.ts';
import { systemRng } from '../shared/rng.ts';
import { openDoors } from './access/doors.ts';
import { prepareKit, removeOldKits } from './access/kit.ts';
import { readCa, type AgentConfig } from './config.ts';
import { readGpus } from './gpus/nvidia-smi.ts';
import { readBootId, readHostFacts, readLimits, type HostFacts } from './host/facts.ts';
import { startDetached } from './host/run.ts';
import type { AgentStatus } from './host/status-socket.ts';
import { proveIdentity, readIdentity, type Identity } from './link/identity.ts';
import { openLink, type Link } from './link/link.ts';
import { openDesired } from './runtime/desired.ts';
import { openDocker } from './runtime/docker.ts';
import type { Engine } from './runtime/engine.ts';
import { openRecords } from './runtime/records.ts';
import { openRuntime } from './runtime/runtime.ts';

/** Version of this agent, as its inventory says it. */
const AGENT_VERSION = '0.1.0';

const INVENTORY_PERIOD_MS = 60_000;
/** A holder carries bytes and keeps little; a client that makes it grow ends this one door. */
const HOLDER_HEAP_MIB = 192;

export interface AgentHouse {
  status(): AgentStatus;
  /** Leaves containers and holders as they are. */
  stop(): Promise<void>;
}

/** Starts the supervisor. Throws a sentence for people where this host is not enrolled. */
export async function openHouse(config: AgentConfig, log: Log): Promise<AgentHouse> {
  const clock = systemClock();
  const { identity, machineId, url, linkPath } = await requireEnrolment(config.state_dir);
  const ca = await readCa(config);
  const engine = openDocker({ socketPath: config.docker_socket, machineId });
  const [facts, bootId, limits] = await Promise.all([readHostFacts(config.state_dir), readBootId(), readLimits()]);
  let inventory = await takeInventory({ config, engine, facts, containerIds: [] });
  let link: Link | undefined;
  const changed = (): void => link?.observedChanged();

  const kit = await prepareKit(config.state_dir);
  const startHolder = (folder: string, logFile: string): Promise<number> =>
    startDetached(holderArgv(kit.holderProgram, folder), logFile);
  const doors = openDoors({ clock, log, stateDir: config.state_dir, kit, startHolder }, () => {
    changed();
    runtime.nudge();
  });
  const runtime = openRuntime(
    {
      clock,
      log,
      engine,
      doors,
      desired: await openDesired(config.state_dir, { log, clock }),
      records: await openRecords(config.state_dir, { log, now: clock.now }),
      machine: () => ({ ...facts, gpu_count: inventory.gpus.length, limits }),
      gpuUuids: () => new Set(inventory.gpus.map((gpu) => gpu.uuid)),
      quarantineMs: config.quarantine_minutes * 60_000,
    },
    changed,
  );

  const wire = (path: string): string => new URL(path, url).href.replace(/^http/, 'ws');
  link = openLink(
    { url: wire(linkPath), machineId, ca },
    {
      hello: () => ({ held: runtime.held(), boot_id: bootId, inventory }),
      prove: (nonce) => proveIdentity(identity, machineId, nonce),
      observed: runtime.observed,
      onDesired: runtime.take,
      onOpen: ({ workload_id, stream_id, token, target }) =>
        doors.open({ workload_id, stream_id, target, ca, url: wire(STREAMS_PATH + encodeURIComponent(token)) }),
    },
    { clock, rng: systemRng(), log },
  );
  const takeStock = async (): Promise<void> => {
    // An engine that does not answer is not an empty one.
    const containers = await engine.list().catch(() => undefined);
    const inUse = containers?.flatMap((container) => container.mount_sources);
    if (inUse !== undefined) await removeOldKits(config.state_dir, kit, inUse);
    const now = await takeInventory({ config, engine, facts, containerIds: runtime.containerIds() });
    if (JSON.stringify(now) === JSON.stringify(inventory)) return;
    inventory = now;
    link.sendInventory(now);
  };
  const stock = startLoop({ name: 'inventory', periodMs: INVENTORY_PERIOD_MS, run: takeStock }, { clock, log });
  log.info({ machine_id: machineId, url, gpus: inventory.gpus.length }, 'the agent runs');

  return {
    status: () => ({
      link: link.status(),
      loops: [runtime.status(), stock.status()],
      engine_version: inventory.engine_version,
    }),
    stop: async () => {
      await Promise.all([link.stop(), stock.stop(), runtime.stop()]);
      doors.leave();
    },
  };
}

interface Enrolment {
  identity: Identity;
  machineId: string;
  url: string;
  linkPath: string;
}

async function requireEnrolment(stateDir: string): Promise<Enrolment> {
  const identity = await readIdentity(stateDir);
  if (identity?.enrolled == null) {
    throw new Error('this host is not enrolled: run `svc-agent enroll --url https://... --token ...` first');
  }
  const { machine_id: machineId, url, link_path: linkPath } = identity.enrolled;
  return { identity, machineId, url, linkPath };
}

export interface StockTaking {
  config: AgentConfig;
  engine: Engine;
  facts: HostFacts;
  containerIds: readonly string[];
}

/** What this host says about itself. An engine that does not answer has no version; an nvidia-smi that fails is an error. */
export async function takeInventory({ config, engine, facts, containerIds }: StockTaking): Promise<Inventory> {
  const [gpus, engineVersion] = await Promise.all([
    readGpus(config.nvidia_smi, containerIds),
    engine.version().catch(() => ''),
  ]);
  return {
    gpus,
    ...facts,
    disk_enforced: false,
    engine_version: engineVersion.slice(0, 64),
    agent_version: AGENT_VERSION,
  };
}

function holderArgv(program: string, folder: string): [string, ...string[]] {
  const heap = `--max-old-space-size=${HOLDER_HEAP_MIB}`;
  return [process.execPath, heap, '--disable-sigusr1', program, 'holder', '--dir', folder];
}
