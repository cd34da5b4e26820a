// Keeps the network fence of this host in place: installs it, restores it after changes, and attacks it before customer code runs.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import { startLoop, type LoopStatus } from '../../shared/loop.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { FENCED_BRIDGE_PREFIX, fenceRules, type Nftables } from '../host/nftables.ts';
import type { Engine } from './engine.ts';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { BareNode } from './disk-check.ts';

export type FenceFinding = Pick<Inventory, 'network_fence' | 'fence_error'>;

export interface Fence {
  /** Reports no error while nothing is known yet: no customer code runs before that anyway. */
  finding(): FenceFinding;
  /** Checks now. Rejects with the reason if customer code must not start on this host. */
  assertStands(): Promise<void>;
  status(): LoopStatus[];
  /** Stops the loop. The fence stays, because containers go on. */
  stop(): Promise<void>;
}

export interface FenceDeps {
  clock: Clock;
  log: Log;
  engine: Engine;
  nftables: Nftables;
  resolvers(): Promise<string[]>;
  /** Networks of the host's own interfaces, as `address/length`. */
  networks(): string[];
  /** Attacks the fence from a container. Rejects with the hole that it found. */
  attack(): Promise<void>;
}

/** A removed fence is restored within this time. */
const PERIOD_MS = 5_000;
/** An attack creates a network and a container. After a failure the next one waits for `first`, then twice as long each time. */
const NEXT_ATTACK_MS = { first: 1000, max: 60_000 };
const ERROR_CHARS_MAX = 400;

/** Starts the loop. `onChange` is called when `finding()` has changed. */
export function openFence(deps: FenceDeps, onChange: () => void): Fence {
  const { clock, log } = deps;
  const up = createUp(deps);
  const proof = createProof(deps);
  /** Empty if the fence stands; undefined until that is known. */
  let error: string | undefined;

  const check = async (): Promise<void> => {
    const bridges = await up.bridges();
    // Nothing can be tried without the engine. The inventory reports that it is away.
    if (bridges === undefined) return;
    const found = await up.hold(bridges).then(proof, messageOf);
    if (found === error) return;
    error = found;
    if (found === '') log.info('the network fence stands');
    else log.error({ detail: found }, 'the network fence does not stand: nothing is offered, no container is started');
    onChange();
  };
  /** Checks run one after another: two at once would attack twice. */
  let turn = Promise.resolve();
  const inTurn = (): Promise<void> => {
    turn = turn.then(check);
    return turn;
  };
  const loop = startLoop({ name: 'fence', periodMs: PERIOD_MS, run: inTurn }, { clock, log });

  return {
    finding: () => ({ network_fence: 'nftables', fence_error: (error ?? '').slice(0, ERROR_CHARS_MAX) }),
    assertStands: async () => {
      await inTurn();
      const detail = error ?? 'the container engine does not answer';
      if (detail !== '') throw new Error(`the network fence of this host does not stand: ${detail}`);
    },
    status: () => [loop.status()],
    stop: () => loop.stop(),
  };
}

/** The fence of a host whose supplier isolates containers by other means. The supplier's configuration is trusted without a check. */
export function openNoFence(log: Log): Fence {
  log.warn('network_fence is none: containers reach whatever this host lets them reach');
  return {
    finding: () => ({ network_fence: 'none', fence_error: '' }),
    assertStands: () => Promise.resolve(),
    status: () => [],
    stop: () => Promise.resolve(),
  };
}

const HELD = 0;
const NOT_HELD = 3;

/** One address of each closed kind. */
const CLOSED_TARGETS = ['10.0.0.1', '172.16.0.1', '192.168.0.1', '192.168.1.1', '100.64.0.1', '169.254.169.254'];
const CLOSED_PORT = 80;
/** Enough for every host nearby. A refusal may show as a timeout, because the kernel limits the rate of its ICMP errors. */
const CONNECT_MS_MAX = 1000;

/**
 * A bare container tries to connect to our own listener at every address of this host, and to the closed addresses. An answer "port
 * closed" counts as reached too. If the counter of the fence has not grown, the fence does not see the packets of containers.
 * @throws Error that names the hole
 */
export async function attackFence(deps: { engine: Engine; node: BareNode; nftables: Nftables }): Promise<void> {
  const { engine, node, nftables } = deps;
  const listener = createServer((socket) => socket.destroy()).listen(0, '0.0.0.0');
  await once(listener, 'listening');
  // Without a listener, a connection that cannot be accepted would end the process.
  listener.on('error', () => undefined);
  try {
    const { port } = listener.address() as AddressInfo;
    const before = await nftables.refused();
    const argv = [...node.argv, '-e', attackProgram(ownAddresses(), port)];
    const code = await engine.runBare({ name: 'fence', argv, mounts: node.mounts, disk_mib: null, network: true });
    if (code !== HELD && code !== NOT_HELD) throw new Error(`the program that attacks it failed with code ${code}`);
    if ((await nftables.refused()) === before) {
      throw new Error(
        'it saw no packet of a container: the engine has a network of its own (a virtual machine, or another network namespace)',
      );
    }
    if (code === NOT_HELD) throw new Error('a container reached this host, or a private network through it');
  } finally {
    listener.close();
  }
}

interface Up {
  /** Bridges of all workloads, as the engine last listed them; undefined before its first answer. */
  bridges(): Promise<string[] | undefined>;
  /** Installs the table if it is missing or differs. */
  hold(bridges: readonly string[]): Promise<void>;
}

function createUp({ engine, nftables, resolvers, networks, log }: FenceDeps): Up {
  let known: string[] | undefined;
  let stood = false;
  let repaired = false;
  return {
    bridges: async () => {
      known = await engine.bridges().catch(() => known);
      return known;
    },
    hold: async (bridges) => {
      const unnamed = bridges.filter((bridge) => !bridge.startsWith(FENCED_BRIDGE_PREFIX));
      const facts = { bridges: unnamed, resolvers: await resolvers(), networks: networks() };
      const changed = await nftables.hold(fenceRules(facts));
      // Logged once. Another program that keeps changing the table would cause a line every period.
      if (changed && stood && !repaired)
        log.warn('the network fence or the networks of this host have changed: the fence is installed again');
      repaired = changed && stood;
      stood = true;
    },
  };
}

/** Attacks the fence until it has held once. Resolves with the fault, or with an empty text. */
function createProof({ attack, clock }: FenceDeps): () => Promise<string> {
  let found: string | undefined;
  let nextMs = 0;
  let delayMs = NEXT_ATTACK_MS.first;
  return async () => {
    if (found === '' || (found !== undefined && clock.monotonicMs() < nextMs)) return found;
    found = await attack().then(() => '', messageOf);
    nextMs = clock.monotonicMs() + delayMs;
    delayMs = Math.min(delayMs * 2, NEXT_ATTACK_MS.max);
    return found;
  };
}

function ownAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address);
}

/** The program also attacks the container's gateway, which is the host too. Its address is only known inside. */
function attackProgram(hostAddresses: string[], port: number): string {
  const targets = [
    ...hostAddresses.map((host) => ({ host, port })),
    ...CLOSED_TARGETS.map((host) => ({ host, port: CLOSED_PORT })),
  ];
  return `
const net = require('node:net');
const rows = require('node:fs').readFileSync('/proc/net/route', 'utf8').split('\\n').map((row) => row.split('\\t'));
const gateways = rows.filter((row) => row[1] === '00000000').map((row) => Buffer.from(row[2], 'hex').reverse().join('.'));
if (gateways.length === 0) process.exit(1);
const targets = [...gateways.map((host) => ({ host, port: ${port} })), ...${JSON.stringify(targets)}];
const reaches = (target) => new Promise((resolve) => {
  const socket = net.connect({ ...target, timeout: ${CONNECT_MS_MAX} });
  const end = (reached) => { socket.destroy(); resolve(reached); };
  socket.on('connect', () => end(true));
  socket.on('timeout', () => end(false));
  socket.on('error', (error) => end(error.code === 'ECONNREFUSED'));
});
Promise.all(targets.map(reaches)).then((all) => process.exit(all.includes(true) ? ${NOT_HELD} : ${HELD}));
`;
}
