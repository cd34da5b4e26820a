// Composes the agent: the only file that knows every room of it.
import { basename } from 'node:path';
import type { Readable } from 'node:stream';
import { type Clock, systemClock } from '../shared/clock.ts';
import type { Log } from '../shared/log.ts';
import { countCards, type Inventory } from '../shared/protocol/inventory.ts';
import { STREAMS_PATH } from '../shared/protocol/link.ts';
import { systemRng } from '../shared/rng.ts';
import { VERSION } from '../shared/version.ts';
import { dialStream } from './wire/dial.ts';
import { HOLDER_FLAGS } from './holders/holder-client.ts';
import { type HolderProcesses, type HoldersDeps, openHolders } from './holders/holders.ts';
import { bareNode, type Bundle, prepareBundle } from './holders/bundle.ts';
import { readCa, type AgentConfig } from './config.ts';
import { openFigures } from './gpus/figures.ts';
import { KERNEL, readContainer } from './metrics/cgroups.ts';
import { readHost } from './metrics/host-figures.ts';
import { type Sampler, startSampler } from './metrics/sampler.ts';
import type { JobLink } from './jobs/transfer.ts';
import { type Jobs, openJobs } from './jobs/jobs.ts';
import { type Confinement, openConfinement } from './host/confinement.ts';
import { readBootId, readHostFacts, readLimits, readOwnNetworks, readResolvers } from './host/facts.ts';
import { openNftables } from './host/nftables.ts';
import { startDetached } from './host/run.ts';
import { DISK, type StateFiles } from './host/state.ts';
import { openTimedFiles, type TimedFiles } from './host/timed-files.ts';
import type { AgentStatus } from './host/status-socket.ts';
import { proveIdentity, readIdentity, type Identity, openCloneToken } from './link/identity.ts';
import { dialLink, openLink, type Link, type LinkPeer } from './link/link.ts';
import { openDesired } from './runtime/desired.ts';
import { openDocker } from './runtime/docker.ts';
import type { Engine } from './runtime/engine.ts';
import { makeEtcFiles } from './runtime/shape.ts';
import { attackFence, openFence, openNoFence, type Fence } from './runtime/fence.ts';
import { openImages } from './runtime/images.ts';
import { sendLines } from './runtime/docker-answers.ts';
import type { GpuStanding } from './runtime/plan.ts';
import { openRecords, workloadFolder } from './runtime/records.ts';
import { openRuntime, type Runtime, type RuntimeDeps } from './runtime/runtime.ts';
import { openInventory, type InventoryWatch } from './inventory.ts';

export interface Enrolment {
  identity: Identity;
  machineId: string;
  url: string;
  linkPath: string;
}

export interface AgentHouse {
  status(): AgentStatus;
  /** Stops the agent. Containers and holders go on. */
  stop(): Promise<void>;
}

/** Starts the supervisor. Only one may run on a state directory, because it changes containers from its first moment. */
export async function openHouse(config: AgentConfig, enrolment: Enrolment, log: Log): Promise<AgentHouse> {
  const clock = systemClock();
  const { identity, machineId, url, linkPath } = enrolment;
  const ca = await readCa(config);
  const engine = openDocker({ socketPath: config.docker_socket, machineId });
  const [facts, bootId, limits] = await Promise.all([readHostFacts(config.state_dir), readBootId(), readLimits()]);
  const bundle = await prepareBundle(config.state_dir);
  const files = openTimedFiles(DISK, { clock, log });
  let link: Link | undefined;
  let inventoryWatch: InventoryWatch | undefined;
  let sampler: Sampler | undefined;
  const fence = openFenceOf(config, { engine, bundle, clock, log }, () => inventoryWatch?.nudge());
  inventoryWatch = await openInventory(config, { engine, facts, bootId, files, bundle, fence, clock, log });
  const { inventory } = inventoryWatch;
  const changed = (): void => link?.observedChanged();

  const { startHolder, confinement } = await holderStarter(bundle, log);
  const tell: Link['sendHolder'] = (seen) => link?.sendHolder(seen);
  const holders = openHolders({ clock, log, stateDir: config.state_dir, bundle, startHolder, tell }, () => {
    changed();
    runtime.holdersChanged();
  });
  const memory = await openMemory(config, { engine, files, bootId, clock, log });
  const jobsDeps = { ...memory, clock, log, engine, ca, stateDir: config.state_dir, link: jobLink(() => link) };
  const jobs = openJobs({ ...jobsDeps, onChange: () => runtime.jobsChanged() });
  const base = { clock, log, engine, holders, jobs, ...memory };
  const runtime = openRuntime(
    {
      ...base,
      machine: () => ({ ...facts, gpu_count: countCards(inventory()), limits }),
      assertFenced: fence.assertStands,
      onGpusRefused: inventoryWatch.doubtGpus,
      gpus: () => standingOf(inventory()),
      quarantineMs: config.quarantine_minutes * 60_000,
      pullLogin: async (workloadId) => (await link?.pullLogin(workloadId)) ?? null,
    },
    changed,
  );

  const wire = (path: string): string => new URL(path, url).href.replace(/^http/, 'ws');
  link = openLink(
    { url: wire(linkPath), machineId },
    {
      hello: () => ({ held: runtime.held(), boot_id: bootId, inventory: inventory() }),
      prove: (nonce) => proveIdentity(identity, machineId, nonce),
      observed: runtime.observed,
      onDesired: runtime.take,
      onOpen: streamOpener({ engine, holders, ca }, (token) => wire(STREAMS_PATH + encodeURIComponent(token))),
      onWatch: (forMs) => sampler?.watch(forMs),
      onRepair: (workloadId) => void holders.replace(workloadId, 'it does not answer the control plane'),
      cloneToken: await openCloneToken(config.state_dir, { files, log }),
    },
    { clock, rng: systemRng(), log, dial: (to) => dialLink(to, ca) },
  );
  inventoryWatch.start(runtime, link.sendInventory);
  sampler = startSamplerOf(config, { runtime, link, clock, log });
  log.info({ version: VERSION, machine_id: machineId, url, gpus: inventory().gpus.length }, 'the agent runs');

  return {
    status: () =>
      statusOf(enrolment, { link, runtime, jobs, fence, inventoryWatch, sampler, holders, confinement, files }),
    stop: async () => {
      const rooms = [link, inventoryWatch, sampler, fence, runtime, jobs];
      await Promise.all(rooms.map((room) => room.stop()));
      await holders.leave();
    },
  };
}

function startSamplerOf(
  { nvidia_smi: nvidiaSmi, state_dir: stateDir }: AgentConfig,
  { runtime, link, clock, log }: { runtime: Runtime; link: Link; clock: Clock; log: Log },
): Sampler {
  return startSampler({
    readFigures: openFigures(nvidiaSmi),
    containers: runtime.running,
    send: link.sendMetrics,
    readContainer: (id) => readContainer(id, KERNEL),
    readHost: () => readHost(stateDir, KERNEL.proc),
    clock,
    log,
  });
}

/** @throws Error with a sentence for people if this host is not enrolled */
export async function readEnrolment(stateDir: string): Promise<Enrolment> {
  const identity = await readIdentity(stateDir);
  if (identity?.enrolled == null) {
    throw new Error('this host is not enrolled: run `svc-agent enroll --url https://... --token ...` first');
  }
  const { machine_id: machineId, url, link_path: linkPath } = identity.enrolled;
  return { identity, machineId, url, linkPath };
}

function openFenceOf(
  config: AgentConfig,
  deps: { engine: Engine; bundle: Bundle; clock: Clock; log: Log },
  onChange: () => void,
): Fence {
  const { engine, bundle, clock, log } = deps;
  if (config.network_fence === 'none') return openNoFence(log);
  const nftables = openNftables();
  const attack = (): Promise<void> => attackFence({ engine, node: bareNode(bundle), nftables });
  const facts = { resolvers: readResolvers, networks: readOwnNetworks };
  return openFence({ clock, log, engine, nftables, attack, ...facts }, onChange);
}

interface MemoryDeps {
  engine: Engine;
  files: StateFiles;
  bootId: string;
  clock: Clock;
  log: Log;
}

/** Opens the state that the runtime keeps on the disk. */
async function openMemory(
  { state_dir: stateDir, image_disk_percent: percent }: AgentConfig,
  { engine, files, bootId, clock, log }: MemoryDeps,
): Promise<Pick<RuntimeDeps, 'desired' | 'records' | 'images' | 'etcFiles'>> {
  const bounds = { high: percent.high / 100, low: percent.low / 100 };
  return {
    desired: await openDesired(stateDir, { files, log, clock, bootId }),
    records: await openRecords(stateDir, { files, log, now: clock.now }),
    etcFiles: (id, hostname) => makeEtcFiles(workloadFolder(stateDir, id), hostname),
    images: await openImages({ engine, files, stateDir, log, now: clock.now, bounds }),
  };
}

/** The link's requests for jobs. They reject until the link is open, which is opened last. */
function jobLink(link: () => Link | undefined): JobLink {
  const jobs = (): Link['jobs'] => {
    const open = link();
    if (open === undefined) throw new Error('the link is not open yet');
    return open.jobs;
  };
  return {
    url: async (id, purpose) => jobs().url(id, purpose),
    events: async (id, events) => jobs().events(id, events),
  };
}

function standingOf({ gpus, gpu_faults }: Inventory): GpuStanding {
  return {
    gpuUuids: new Set(gpus.map((gpu) => gpu.uuid)),
    gpuFaults: new Map(gpu_faults.map(({ uuid, detail }) => [uuid, detail])),
  };
}

function toldOf(inventory: Inventory): Pick<AgentStatus, 'gpus' | 'gpu_error' | 'gpu_faults' | 'engine_version'> {
  const { gpus, gpu_error, gpu_faults, engine_version } = inventory;
  return { gpus: gpus.length, gpu_error, gpu_faults, engine_version };
}

async function holderStarter(
  { holderProgram }: Bundle,
  log: Log,
): Promise<Pick<HoldersDeps, 'startHolder'> & { confinement: Confinement }> {
  const confinement = await openConfinement();
  if (confinement.lack !== '') log.warn({ detail: confinement.lack }, 'holders run without all of their limits');
  const startHolder: HoldersDeps['startHolder'] = async (folder, logFile) => {
    const program = [process.execPath, ...HOLDER_FLAGS, holderProgram, 'holder', '--dir', folder];
    return startDetached(await confinement.around(basename(folder), program), logFile);
  };
  return { startHolder, confinement };
}

interface AgentRooms {
  link: Link;
  runtime: Runtime;
  jobs: Jobs;
  fence: Fence;
  inventoryWatch: InventoryWatch;
  sampler: Sampler;
  holders: HolderProcesses;
  confinement: Confinement;
  files: TimedFiles;
}

function statusOf({ machineId, url }: Enrolment, rooms: AgentRooms): AgentStatus {
  const { link, runtime, jobs, fence, inventoryWatch, sampler, holders, confinement, files } = rooms;
  return {
    version: VERSION,
    machine_id: machineId,
    url,
    link: link.status(),
    loops: [
      ...runtime.status(),
      jobs.status(),
      ...fence.status(),
      ...inventoryWatch.loops(),
      ...sampler.loops(),
      holders.status(),
    ],
    ...toldOf(inventoryWatch.inventory()),
    ...fence.finding(),
    containers_doubt: runtime.doubt(),
    holders_lack: confinement.lack,
    disk_error: files.fault(),
  };
}

function streamOpener(
  { engine, holders, ca }: { engine: Engine; holders: HolderProcesses; ca: string | undefined },
  urlOf: (token: string) => string,
): LinkPeer['onOpen'] {
  return async ({ workload_id, stream_id, token, target }) => {
    const url = urlOf(token);
    if (target.kind !== 'logs') return holders.open({ workload_id, stream_id, target, ca, url });
    await sendLog(await engine.logs(workload_id, target), { url, ca: ca ?? null });
  };
}

/** Resolves once the log is being sent. */
async function sendLog(raw: Readable, to: { url: string; ca: string | null }): Promise<void> {
  const stream = await dialStream(to).catch((error: unknown) => {
    raw.destroy();
    throw error;
  });
  sendLines(raw, stream);
}
