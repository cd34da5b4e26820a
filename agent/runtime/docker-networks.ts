// The networks of our containers on Docker: each container has one of its own, which no other has before or after it.
import type Docker from 'dockerode';
import { createHash } from 'node:crypto';
import type { Ids } from '../../shared/ids.ts';
import { FENCED_BRIDGE_PREFIX } from '../host/fence-rules.ts';
import { ignoring } from './docker-answers.ts';

export interface Networks {
  /** Has a container made in a network of its own. The two may come into being beside each other: only a start needs both. */
  forContainer<T>(makeContainer: (network: string) => Promise<T>): Promise<T>;
  /** One that is there already is the one. */
  make(name: string): Promise<void>;
  /** Nobody can be in it. One that is gone is no fault. */
  remove(name: string): Promise<void>;
  /** Sees to it that one waits for the next container, and that there are no others than those of containers. */
  keepSpare(): Promise<void>;
  /** Removes those that no container has, and none will have: a crash between two steps leaves one, and a container removed by hand. */
  sweep(): Promise<void>;
  /** Names of the bridges of all machines on this engine. */
  bridges(): Promise<string[]>;
}

interface NetworksDeps {
  docker: Docker;
  /** The same engine, which is not waited for long. */
  asked: Docker;
  ids: Ids;
  machineId: string;
  /** Names of the networks that our containers have, running or not. */
  inUse(): Promise<string[]>;
}

const LABEL_MACHINE = 'svc.machine_id';
const BRIDGE_NAME = 'com.docker.network.bridge.name';
/** A bridge's name, the prefix included. */
const BRIDGE_NAME_CHARS = 15;

export function openNetworks({ docker, asked, ids, machineId, inUse }: NetworksDeps): Networks {
  /** Made, and nobody's. */
  let spare: string | undefined;
  /** On the way to a container. */
  const taken = new Set<string>();

  const make = (name: string): Promise<void> => makeNetwork(docker, name, { [LABEL_MACHINE]: machineId });
  const newName = (): string => `svc-${ids.prefixed('net')}`;

  const remove = (name: string): Promise<void> => ignoring([404], docker.getNetwork(name).remove());
  /** For the next container; of two that are left over at once, one is enough. */
  const keep = async (name: string): Promise<void> => {
    if (spare === undefined) spare = name;
    else await remove(name);
  };

  const sweep = async (): Promise<void> => {
    const ours = (): (string | undefined)[] => [spare, ...taken];
    // One that gets its container in the meantime may be missing in either listing.
    const before = ours();
    const there = await asked.listNetworks({ filters: { label: [`${LABEL_MACHINE}=${machineId}`] } });
    const kept = new Set([...before, ...(await inUse()), ...ours()]);
    for (const { Name: name } of there) {
      if (!kept.has(name)) await ignoring([403, 404], docker.getNetwork(name).remove());
    }
  };

  return {
    forContainer: async (makeContainer) => {
      const ready = spare;
      spare = undefined;
      const name = ready ?? newName();
      taken.add(name);
      const [container, network] = await Promise.allSettled([makeContainer(name), ready ?? make(name)]);
      taken.delete(name);
      // A network that could not be made is made at the start, which says what is in the way.
      if (container.status === 'fulfilled') return container.value;
      if (network.status === 'fulfilled') await keep(name);
      throw container.reason;
    },
    make,
    remove,
    keepSpare: async () => {
      await sweep();
      if (spare !== undefined) return;
      const name = newName();
      await make(name);
      await keep(name);
    },
    sweep,
    bridges: async () => (await asked.listNetworks({ filters: { label: [LABEL_MACHINE] } })).map(bridgeOf),
  };
}

/** The bridge's name puts it behind the fence. */
export async function makeNetwork(docker: Docker, name: string, labels: Record<string, string>): Promise<void> {
  const bridge = `${FENCED_BRIDGE_PREFIX}${createHash('sha256').update(name).digest('hex')}`.slice(
    0,
    BRIDGE_NAME_CHARS,
  );
  const options = { [BRIDGE_NAME]: bridge };
  const network = { Name: name, Driver: 'bridge', CheckDuplicate: true, Labels: labels, Options: options };
  await ignoring([409], docker.createNetwork(network));
}

/** The engine's own name where none was wanted. */
function bridgeOf(network: Docker.NetworkInspectInfo): string {
  return network.Options?.[BRIDGE_NAME] ?? `br-${network.Id.slice(0, 12)}`;
}
