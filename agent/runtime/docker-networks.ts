// The Docker networks of our containers. Each container gets its own network, which no other container ever uses.
import type Docker from 'dockerode';
import { createHash } from 'node:crypto';
import { throwAll } from '../../shared/errors.ts';
import type { Ids } from '../../shared/ids.ts';
import { FENCED_BRIDGE_PREFIX } from '../host/nftables.ts';
import { ignoring } from './docker-answers.ts';

export interface Networks {
  /** Creates a container and its own network, possibly in parallel: only the start of the container needs both. */
  forContainer<T>(makeContainer: (network: string) => Promise<T>): Promise<T>;
  /** Creates the network if it does not exist. */
  make(name: string): Promise<void>;
  /** Removes a network without containers. One that does not exist is no error, and one that somebody uses against us stays. */
  remove(name: string): Promise<void>;
  /** Creates the network of the next container if there is none, and removes networks without a container. */
  keepSpare(): Promise<void>;
  /** Removes networks that no container uses or will use: leftovers of a crash, or of a container that was removed by hand. */
  sweep(): Promise<void>;
  /**
   * True if the engine has a network that it had beside our containers at the last sweep or `keepSpare`. Docker stores networks and containers in
   * one folder, and no other engine has a network of that name.
   */
  haveWitness(): Promise<boolean>;
  /** Names of the bridges of all machines on this engine. */
  bridges(): Promise<string[]>;
}

interface NetworksDeps {
  docker: Docker;
  /** Client of the same engine as `docker`, with a short time limit for each call. */
  asked: Docker;
  ids: Ids;
  machineId: string;
  /** Names of the networks that our containers have, running or not. */
  inUse(): Promise<string[]>;
}

const LABEL_MACHINE = 'svc.machine_id';
const BRIDGE_NAME = 'com.docker.network.bridge.name';
/** The kernel's limit for the name of a bridge, prefix included. */
const BRIDGE_NAME_CHARS = 15;

export function openNetworks({ docker, asked, ids, machineId, inUse }: NetworksDeps): Networks {
  /** The network of the next container, already created. */
  let spare: string | undefined;
  /** Networks whose containers are being created. */
  const taken = new Set<string>();
  /** Names of the networks that the engine had beside our containers. */
  let witnesses: readonly string[] = [];

  const make = (name: string): Promise<void> => makeNetwork(docker, name, { [LABEL_MACHINE]: machineId });
  const newName = (): string => `svc-${ids.prefixed('net')}`;
  /** 403: somebody's container is in it, or an engine that has crashed left an endpoint. The end of a rental must not wait for that. */
  const remove = (name: string): Promise<void> => ignoring([403, 404], docker.getNetwork(name).remove());
  /** Keeps a network for the next container, or removes it if there is one already. */
  const keep = async (name: string): Promise<void> => {
    if (spare === undefined) spare = name;
    else await remove(name);
  };

  /** Notes the witnesses, and returns the networks that no container uses or will use. */
  const look = async (): Promise<string[]> => {
    const ours = (): (string | undefined)[] => [spare, ...taken];
    // A network may get its container between two calls. So a network is kept if it was in use before, between or after them.
    const before = ours();
    const names = await namesOf(asked, machineId);
    const used = await inUse();
    const kept = new Set([...before, ...used, ...ours()]);
    if (used.length > 0) witnesses = names.filter((name) => kept.has(name));
    return names.filter((name) => !kept.has(name));
  };
  const removeUnused = async (): Promise<unknown[]> => removeEach(await look(), remove);

  return {
    forContainer: async (makeContainer) => {
      const ready = spare;
      spare = undefined;
      const name = ready ?? newName();
      taken.add(name);
      const [container, network] = await Promise.allSettled([makeContainer(name), ready ?? make(name)]);
      // A sweep must not remove the network before it is decided who gets it. If it cannot be removed now, a sweep removes it later.
      if (container.status === 'rejected' && network.status === 'fulfilled' && (await isFree(name, inUse)))
        await keep(name).catch(() => undefined);
      taken.delete(name);
      // If the network could not be created, the start tries again and reports the reason.
      if (container.status === 'fulfilled') return container.value;
      throw container.reason;
    },
    make,
    remove,
    keepSpare: async () => {
      const reasons = await removeUnused();
      if (spare === undefined) {
        const name = newName();
        await make(name);
        await keep(name);
        // It is a witness only if it is seen beside our containers, and the next sweep may be after the last of them.
        await look();
      }
      throwAll(reasons);
    },
    sweep: async () => throwAll(await removeUnused()),
    haveWitness: async () => (await namesOf(asked, machineId)).some((name) => witnesses.includes(name)),
    bridges: async () => (await asked.listNetworks({ filters: { label: [LABEL_MACHINE] } })).map(bridgeOf),
  };
}

/**
 * A container may be there although its creation has failed. Then its network must never be given to another one. If the engine does not
 * say who has the network, nobody gets it, and a sweep removes it.
 */
async function isFree(name: string, inUse: NetworksDeps['inUse']): Promise<boolean> {
  try {
    return !(await inUse()).includes(name);
  } catch {
    return false;
  }
}

/** The networks of this machine on the engine. */
async function namesOf(asked: Docker, machineId: string): Promise<string[]> {
  const there = await asked.listNetworks({ filters: { label: [`${LABEL_MACHINE}=${machineId}`] } });
  return there.map(({ Name: name }) => name);
}

/** Resolves with the reasons why some could not be removed. One of them must not keep the others. */
async function removeEach(names: readonly string[], remove: Networks['remove']): Promise<unknown[]> {
  const reasons: unknown[] = [];
  for (const name of names) await remove(name).catch((reason: unknown) => reasons.push(reason));
  return reasons;
}

/** The prefix of the bridge's name puts the network behind the fence. */
export async function makeNetwork(docker: Docker, name: string, labels: Record<string, string>): Promise<void> {
  const bridge = `${FENCED_BRIDGE_PREFIX}${createHash('sha256').update(name).digest('hex')}`.slice(
    0,
    BRIDGE_NAME_CHARS,
  );
  const options = { [BRIDGE_NAME]: bridge };
  const network = { Name: name, Driver: 'bridge', CheckDuplicate: true, Labels: labels, Options: options };
  await ignoring([409], docker.createNetwork(network));
}

/** The name of the network's bridge; the engine chooses one if none was given. */
function bridgeOf(network: Docker.NetworkInspectInfo): string {
  return network.Options?.[BRIDGE_NAME] ?? `br-${network.Id.slice(0, 12)}`;
}
