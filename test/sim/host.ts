// A simulated host with the agent's real reconciler and link. What is on its disk and in its engine outlasts each agent.
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { proveIdentity, type Identity, openCloneToken } from '../../agent/link/identity.ts';
import { openLink } from '../../agent/link/link.ts';
import { openDesired } from '../../agent/runtime/desired.ts';
import { openImages } from '../../agent/runtime/images.ts';
import { openRecords } from '../../agent/runtime/records.ts';
import { openRuntime } from '../../agent/runtime/runtime.ts';
import type { Clock } from '../../shared/clock.ts';
import { AUTO_TERMINATE_GRACE_MS } from '../../shared/limits.ts';
import { createLog } from '../../shared/log.ts';
import { type DesiredMessage, LINK_CLOSE } from '../../shared/protocol/link.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import type { Rng } from '../../shared/rng.ts';
import { type Disk, openDisk } from './disk.ts';
import { openSimHolders, type SimHolders } from './holders.ts';
import { type SimEngine, openEngine } from './engine.ts';
import { type Life, openLife } from './life.ts';
import { openPath, type Path, type Socket } from './wire.ts';

export const QUARANTINE_MS = 10 * 60_000;
/** What was sent while a copy ran arrives within this time after its end, also over a link that lags by 25 seconds. */
const ON_THE_WAY_MS = 30_000;

export interface SimHost {
  machineId: string;
  supplierOrgId: string;
  engine: SimEngine;
  disk: Disk;
  holders: SimHolders;
  path: Path;
  /** Sets by how much its wall clock is wrong. */
  setClockAhead(ms: number): void;
  /** Makes the calls of the host slower by a factor. */
  setSlowness(factor: number): void;
  /** True if somebody who connects to the workload's endpoint over the network is let in. */
  answersFor(workloadId: string): boolean;
  startAgent(): Promise<void>;
  /** The agent ends like after kill -9. */
  killAgent(): void;
  /** The power fails: no connection is closed, containers and holders are gone, the disk stays. */
  cutPower(): void;
  /** A second host of the same identity, with what was on this one's disk; its agent does not run yet. */
  copyTo(disk: Disk): SimHost;
  /** Tells the host that a copy of it runs: each keeps the other from its link. */
  setCopied(isCopied: boolean): void;
  isCopied(): boolean;
  /** True if the host has a link to the control plane that nothing disturbs. */
  isLinked(): boolean;
  /** What the agent has done although it must never do it. */
  crimes: readonly string[];
}

interface HostDeps {
  clock: Clock;
  rng: Rng;
  machineId: string;
  /** The organisation of its supplier. */
  orgId: string;
  identity: Identity;
  inventory: Inventory;
  /** Called if the answers of the host may have changed. */
  onChange(): void;
  /** Connects to the control plane. */
  dial(path: Path): Socket;
}

interface Agent {
  life: Life;
  sockets: Set<Socket>;
  holdersChanged(): void;
}

/** `disk` is empty unless said otherwise. */
export function openHost(deps: HostDeps, disk = openDisk(deps.clock)): SimHost {
  const { clock, rng, machineId } = deps;
  const orders = openOrders(clock);
  let [aheadMs, slowness, boots, bootedMs] = [0, 1, 1, 0];
  let [isCopied, copiedUntilMs] = [false, Number.NEGATIVE_INFINITY];
  let agent: Agent | undefined;
  const changed = (): void => {
    agent?.holdersChanged();
    deps.onChange();
  };
  const engine = openEngine({ clock, rng, slowness: () => slowness }, orders.noteEnd, changed);
  const holders = openSimHolders(engine, clock, changed);
  const path = openPath(() => Math.round(5 + rng.float() * 60), deps.onChange);

  const killAgent = (isPowerCut: boolean): void => {
    agent?.life.end();
    for (const socket of agent?.sockets ?? []) socket.vanish(isPowerCut);
    agent = undefined;
    deps.onChange();
  };
  return {
    machineId,
    supplierOrgId: deps.orgId,
    engine,
    disk,
    holders,
    path,
    crimes: orders.crimes,
    setClockAhead: (ms) => void (aheadMs = ms),
    setSlowness: (factor) => void (slowness = factor),
    answersFor: (id) => path.isOpen() && agent !== undefined && holders.answers(id),
    copyTo: (other) => openHost(deps, other),
    setCopied: (to) => {
      [isCopied, copiedUntilMs] = [to, clock.now()];
      deps.onChange();
    },
    isCopied: () => isCopied,
    isLinked: () =>
      path.isOpen() && path.isCalm() && path.connections().some(({ near }) => near.readyState === near.OPEN),
    startAgent: async () => {
      const life = openLife(clock, { aheadMs: () => aheadMs, bootedMs });
      const sockets = new Set<Socket>();
      const dial = (): Socket => {
        const socket = deps.dial(path);
        sockets.add(socket);
        socket.on('close', (code: number) => {
          sockets.delete(socket);
          // There is no newer link, so nobody may close this one in favour of another.
          const isOfCopy = isCopied || clock.now() - copiedUntilMs < ON_THE_WAY_MS;
          if (code === LINK_CLOSE.superseded && !isOfCopy)
            orders.crimes.push(`the only link of ${machineId} was closed for a newer one`);
        });
        return socket;
      };
      const starting: Agent = { life, sockets, holdersChanged: () => undefined };
      agent = starting;
      deps.onChange();
      const bootId = `boot-${boots}`;
      starting.holdersChanged = await runAgent({ ...deps, life, engine, disk, holders, dial, bootId, orders });
    },
    killAgent: () => killAgent(false),
    cutPower: () => {
      boots += 1;
      bootedMs = clock.monotonicMs();
      killAgent(true);
      holders.endAll();
      engine.setAway(true, false);
    },
  };
}

interface AgentDeps extends Omit<HostDeps, 'dial'> {
  life: Life;
  engine: SimEngine;
  disk: Disk;
  holders: SimHolders;
  dial(): Socket;
  bootId: string;
  orders: Orders;
}

/** Puts the parts together like agent/house.ts. Returns what is called when a holder changes. */
async function runAgent(deps: AgentDeps): Promise<() => void> {
  const { life, machineId, identity, inventory, orders } = deps;
  const log = createLog('agent', 'silent');
  const { clock } = life;
  const files = life.within(deps.disk.files);
  const changed = (): void => link.observedChanged();
  const desired = await openDesired('state', { files, log, clock, bootId: deps.bootId });
  const records = await openRecords('state', { files, log, now: clock.now });
  const cloneToken = await openCloneToken('state', { files, log });
  // Nothing is awaited from here on: the runtime reports to the link.
  const runtime = openRuntime(
    {
      clock,
      log,
      engine: life.within(deps.engine.engine),
      holders: life.within(deps.holders.holdersOfAnAgent()),
      jobs: { prepare: async () => [] },
      desired,
      records,
      etcFiles: async () => [],
      images: await openImages({
        engine: deps.engine.engine,
        files,
        stateDir: 'state',
        log,
        now: clock.now,
        bounds: { high: 0.8, low: 0.7 },
      }),
      machine: () => ({ ...inventory, gpu_count: inventory.gpus.length, limits: { memlock_bytes: -1, nofile: 1024 } }),
      gpus: () => ({ gpuUuids: new Set(inventory.gpus.map(({ uuid }) => uuid)), gpuFaults: new Map() }),
      assertFenced: async () => undefined,
      onGpusRefused: () => undefined,
      quarantineMs: QUARANTINE_MS,
      pullLogin: (id) => link.pullLogin(id),
    },
    changed,
  );
  const link = openLink(
    { url: 'wss://control-plane', machineId },
    {
      hello: () => ({ held: runtime.held(), boot_id: deps.bootId, inventory }),
      prove: (nonce) => proveIdentity(identity, machineId, nonce),
      observed: runtime.observed,
      onDesired: async (message) => {
        orders.note(message);
        await runtime.take(message);
      },
      onOpen: async () => undefined,
      onWatch: () => undefined,
      onRepair: (id) => deps.holders.replace(id),
      cloneToken,
    },
    { clock, rng: deps.rng, log, dial: deps.dial },
  );
  return () => {
    changed();
    runtime.holdersChanged();
  };
}

interface Orders {
  crimes: string[];
  note(message: DesiredMessage): void;
  noteEnd(workloadId: string): void;
}

/** The workloads that the control plane has ordered to end. No other may end here. */
function openOrders(clock: Clock): Orders {
  const removed = new Set<string>();
  const endsAtMs = new Map<string, number>();
  const crimes: string[] = [];
  return {
    crimes,
    note: ({ workloads }) => {
      for (const { workload_id: id, desired, ends_at_ms: atMs } of workloads) {
        if (desired === 'removed') removed.add(id);
        if (atMs !== null) endsAtMs.set(id, atMs);
      }
    },
    noteEnd: (id) => {
      const atMs = endsAtMs.get(id) ?? Number.POSITIVE_INFINITY;
      if (removed.has(id) || clock.now() >= atMs + AUTO_TERMINATE_GRACE_MS) return;
      crimes.push(`workload ${id} was ended, and nobody had said so`);
    },
  };
}

/** The same seed makes the same host. */
export function identityFrom(rng: Rng): Identity {
  const der = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), rng.bytes(32)]);
  const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  return {
    private_key: key.export({ type: 'pkcs8', format: 'pem' }).toString(),
    public_key: createPublicKey(key).export({ format: 'jwk' }).x ?? '',
    enrolled: null,
  };
}
