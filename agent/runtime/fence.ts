// The network fence of this host at work: put up, put back when it was taken away, and attacked before customer code runs behind it.
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { Log } from '../../shared/log.ts';
import { startLoop, type LoopStatus } from '../../shared/loop.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { FENCED_BRIDGE_PREFIX, fenceRules } from '../host/fence-rules.ts';
import type { Nftables } from '../host/nftables.ts';
import type { Engine } from './engine.ts';

export type FenceFinding = Pick<Inventory, 'network_fence' | 'fence_error'>;

export interface Fence {
  /** Without an error while nothing is known yet: no customer code runs before that anyway. */
  finding(): FenceFinding;
  /** Looks now. Rejects with the reason where customer code must not start on this host. */
  assertStands(): Promise<void>;
  status(): LoopStatus[];
  /** The fence stays: containers go on. */
  stop(): Promise<void>;
}

export interface FenceDeps {
  clock: Clock;
  log: Log;
  engine: Engine;
  nftables: Nftables;
  resolvers(): Promise<string[]>;
  /** Those of the host's own interfaces, as `address/length`. */
  networks(): string[];
  /** Attacks the fence from a container. Rejects with what was found. */
  attack(): Promise<void>;
}

/** How long a fence that somebody took away may be down. */
const PERIOD_MS = 5_000;
/** An attack makes a network and a container: the next one after a failure waits so long, twice as long each time. */
const NEXT_ATTACK_MS = { first: 1000, max: 60_000 };
const ERROR_CHARS_MAX = 400;

/** Starts the loop. `onChange` is called when `finding()` has changed. */
export function openFence(deps: FenceDeps, onChange: () => void): Fence {
  const { clock, log } = deps;
  const up = createUp(deps);
  const proof = createProof(deps);
  /** Empty where the fence stands; undefined until that is known. */
  let error: string | undefined;

  const look = async (): Promise<void> => {
    const bridges = await up.bridges();
    // Nothing can be tried without the engine, and its absence is told elsewhere.
    if (bridges === undefined) return;
    const found = await up.hold(bridges).then(proof, messageOf);
    if (found === error) return;
    error = found;
    if (found === '') log.info('the network fence stands');
    else log.error({ detail: found }, 'the network fence does not stand: nothing is offered, no container is started');
    onChange();
  };
  /** One after another: two looks at once would attack twice. */
  let turn = Promise.resolve();
  const inTurn = (): Promise<void> => (turn = turn.then(look));
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

/** Of a host whose supplier keeps containers in by other means: said, and believed. */
export function openNoFence(log: Log): Fence {
  log.warn('network_fence is none: containers reach whatever this host lets them reach');
  return {
    finding: () => ({ network_fence: 'none', fence_error: '' }),
    assertStands: () => Promise.resolve(),
    status: () => [],
    stop: () => Promise.resolve(),
  };
}

interface Up {
  /** Those of all workloads; as last known while the engine does not answer, undefined before its first answer. */
  bridges(): Promise<string[] | undefined>;
  /** Makes the table what it should be. */
  hold(bridges: readonly string[]): Promise<void>;
}

function createUp({ engine, nftables, resolvers, networks, log }: FenceDeps): Up {
  let known: string[] | undefined;
  let stood = false;
  let repaired = false;
  return {
    bridges: async () => (known = await engine.bridges().catch(() => known)),
    hold: async (bridges) => {
      const unnamed = bridges.filter((bridge) => !bridge.startsWith(FENCED_BRIDGE_PREFIX));
      const facts = { bridges: unnamed, resolvers: await resolvers(), networks: networks() };
      const changed = await nftables.hold(fenceRules(facts));
      // Said once, not at every period of a quarrel with another program.
      if (changed && stood && !repaired)
        log.warn('the network fence was changed, or its facts were: it is put up anew');
      repaired = changed && stood;
      stood = true;
    },
  };
}

/** Tries the fence until it has held once; resolves with what is wrong, empty where nothing is. */
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
