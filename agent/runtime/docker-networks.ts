// The networks of our containers on Docker: each container has one of its own, which no other has before or after it.
import type Docker from 'dockerode';
import { createHash } from 'node:crypto';
import type { Ids } from '../../shared/ids.ts';
import { FENCED_BRIDGE_PREFIX } from '../host/fence-rules.ts';
import { ignoring } from './docker-answers.ts';

export interface Networks {
  /** For a new container, which may be made before the network is there: only its start needs both. */
  take(): { name: string; made: Promise<void> };
  /** The container that it was taken for could not be made. */
  giveBack(name: string): void;
  /** One that is there already is the one. */
  make(name: string): Promise<void>;
  /** Nobody can be in it. One that is gone is no fault. */
  remove(name: string): Promise<void>;
  /** Makes one for the next container, where none waits. */
  keepSpare(): Promise<void>;
  /** Removes those that no container has, and none will have: a crash between two steps leaves one. */
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
  const spare: string[] = [];
  /** In our hands: a listing may be older than the container that it was taken for. */
  const ours = new Set<string>();
  let swept = false;

  const make = (name: string): Promise<void> => makeNetwork(docker, name, { [LABEL_MACHINE]: machineId });
  const newName = (): string => {
    const name = `svc-${ids.prefixed('net')}`;
    ours.add(name);
    return name;
  };
  const sweep = async (): Promise<void> => {
    const there = await asked.listNetworks({ filters: { label: [`${LABEL_MACHINE}=${machineId}`] } });
    const used = new Set(await inUse());
    for (const { Name: name } of there) {
      if (!used.has(name) && !ours.has(name)) await ignoring([403, 404], docker.getNetwork(name).remove());
    }
  };

  return {
    take: () => {
      const ready = spare.shift();
      if (ready !== undefined) return { name: ready, made: Promise.resolve() };
      const name = newName();
      return { name, made: make(name) };
    },
    giveBack: (name) => void spare.push(name),
    make,
    remove: async (name) => {
      await ignoring([404], docker.getNetwork(name).remove());
      ours.delete(name);
    },
    keepSpare: async () => {
      if (!swept) await sweep();
      swept = true;
      if (spare.length > 0) return;
      const name = newName();
      await make(name).catch((error: unknown) => {
        ours.delete(name);
        throw error;
      });
      spare.push(name);
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
