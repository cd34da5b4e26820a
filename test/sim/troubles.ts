// What can go wrong in a fleet: each begins, and ends by itself after a while in virtual time.
import type { Fleet } from './fleet.ts';
import type { SimHost } from './host.ts';

export interface Trouble {
  name: 'agent crash' | 'power cut' | 'engine restart' | 'path cut' | 'partition' | 'holder death';
  /** Says what it has hit; undefined where there is nothing to hit. */
  begin(fleet: Fleet): string | undefined;
}

const SECOND_MS = 1_000;

export const TROUBLES: readonly Trouble[] = [
  {
    name: 'agent crash',
    begin: onHost('machine', (host, fleet) => {
      host.killAgent();
      return { forMs: between(fleet, 1, 60), end: () => host.startAgent() };
    }),
  },
  {
    name: 'power cut',
    begin: onHost('machine', (host, fleet) => {
      host.cutPower();
      return {
        forMs: between(fleet, 30, 400),
        end: async () => {
          host.engine.setAway(false, false);
          await host.startAgent();
        },
      };
    }),
  },
  {
    name: 'engine restart',
    begin: onHost('machine', (host, fleet) => {
      host.engine.setAway(true, fleet.rng.float() < 0.5);
      return { forMs: between(fleet, 2, 200), end: async () => host.engine.setAway(false, false) };
    }),
  },
  { name: 'path cut', begin: onHost('path', cutPath) },
  {
    name: 'partition',
    begin: (fleet) => {
      const forMs = between(fleet, 10, 400);
      const cut = fleet.hosts.filter(() => fleet.rng.float() < 0.6);
      const hit = cut.map((host) =>
        during(fleet, `path of ${host.machineId}`, () => ({ ...cutPath(host, fleet), forMs })),
      );
      return hit.filter((one) => one !== undefined).join(', ') || undefined;
    },
  },
  {
    name: 'holder death',
    begin: ({ hosts, rng }) => {
      const host = hosts[Math.floor(rng.float() * hosts.length)];
      const id = host?.holders.ids()[0];
      if (id !== undefined) host?.holders.kill(id);
      return id;
    },
  },
];

interface Course {
  forMs: number;
  end(): Promise<void>;
}

function cutPath(host: SimHost, fleet: Fleet): Course {
  host.path.set(false);
  return { forMs: between(fleet, 5, 600), end: async () => host.path.set(true) };
}

/** On one of the hosts, unless something of the same kind has hit it already. */
function onHost(kind: string, begin: (host: SimHost, fleet: Fleet) => Course): Trouble['begin'] {
  return (fleet) => {
    const host = fleet.hosts[Math.floor(fleet.rng.float() * fleet.hosts.length)];
    return host && during(fleet, `${kind} of ${host.machineId}`, () => begin(host, fleet));
  };
}

/** One thing at a time happens to each `what`. */
function during(fleet: Fleet, what: string, begin: () => Course): string | undefined {
  if (fleet.busy.has(what)) return undefined;
  fleet.busy.add(what);
  const { forMs, end } = begin();
  fleet.clock.after(forMs, () => void end().then(() => fleet.busy.delete(what)));
  return `${what} for ${Math.round(forMs / SECOND_MS)} s`;
}

/** Milliseconds; the bounds are seconds. */
function between({ rng }: Fleet, least: number, most: number): number {
  return Math.round((least + rng.float() ** 2 * (most - least)) * SECOND_MS);
}
