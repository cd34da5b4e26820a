// What can go wrong in a fleet: each begins, and ends by itself after a while in virtual time.
import { type Backup, backUp, restore } from './backup.ts';
import type { EngineCall } from './engine.ts';
import type { Fleet } from './fleet.ts';
import type { SimHost } from './host.ts';

export interface Trouble {
  name:
    | 'agent crash'
    | 'power cut'
    | 'engine restart'
    | 'engine trouble'
    | 'full disk'
    | 'slow host'
    | 'wrong clock'
    | 'path cut'
    | 'partition'
    | 'stray link'
    | 'lost link'
    | 'sent twice'
    | 'copied disk'
    | 'holder death'
    | 'holder hangs'
    | 'plane crash'
    | 'plane absence'
    | 'restored backup'
    | 'lost containers';
  /** Returns what the trouble has hit; undefined if there is nothing to hit. */
  begin(fleet: Fleet): string | undefined;
}

const SECOND_MS = 1_000;
/** Two days in milliseconds. */
const CLOCK_ERROR_MS_MAX = 172_800_000;
/** A backup that is older is not restored: a new one is made. */
const BACKUP_AGE_MS_MAX = 20 * 60_000;
const FALLIBLE = new Set<EngineCall>(['pull', 'create', 'start', 'stopAndCut', 'remove']);
const WORDS = [
  'write /var/lib/docker: no space left on device',
  'could not select device driver "nvidia" with capabilities: [[gpu]]',
  'context deadline exceeded',
];

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
  {
    name: 'engine trouble',
    begin: onHost('engine', ({ engine }, fleet) => {
      const words = WORDS[Math.floor(fleet.rng.float() * WORDS.length)] ?? '';
      const part = fleet.rng.float();
      engine.trouble = (call) => (FALLIBLE.has(call) && fleet.rng.float() < part ? words : undefined);
      return { forMs: between(fleet, 5, 400), end: async () => void (engine.trouble = undefined) };
    }),
  },
  {
    name: 'full disk',
    begin: onHost('disk', ({ disk }, fleet) => {
      disk.isFull = true;
      return { forMs: between(fleet, 20, 900), end: async () => void (disk.isFull = false) };
    }),
  },
  {
    name: 'slow host',
    begin: onHost('pace', (host, fleet) => {
      host.setSlowness(3 + 20 * fleet.rng.float());
      return { forMs: between(fleet, 60, 900), end: async () => host.setSlowness(1) };
    }),
  },
  {
    name: 'wrong clock',
    begin: onHost('clock', (host, fleet) => {
      host.setClockAhead(Math.round((fleet.rng.float() - 0.5) * CLOCK_ERROR_MS_MAX));
      return { forMs: between(fleet, 60, 1_800), end: async () => host.setClockAhead(0) };
    }),
  },
  { name: 'plane crash', begin: (fleet) => planeDown(fleet, between(fleet, 1, 50)) },
  { name: 'plane absence', begin: (fleet) => planeDown(fleet, between(fleet, 60, 1_200)) },
  {
    name: 'restored backup',
    begin: (fleet) => {
      const { backup, busy, clock, plane, witness } = fleet;
      // While a backup is being restored, the database is still the one from before. What was recorded of it is forgotten.
      if (busy.has(PLANE)) return undefined;
      if (backup === undefined || clock.now() - backup.atMs > BACKUP_AGE_MS_MAX) {
        void backUp(plane.world().db, witness.upUntilMs).then((made) => (fleet.backup = made));
        return 'not yet: it is made now';
      }
      return planeDown(fleet, between(fleet, 5, 120), { restored: backup });
    },
  },
  {
    name: 'lost containers',
    begin: ({ hosts, rng }) => {
      const host = hosts[Math.floor(rng.float() * hosts.length)];
      const ids = [...(host?.engine.containers.keys() ?? [])];
      host?.engine.lose();
      return ids.length === 0 ? undefined : ids.join(', ');
    },
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
    // What was sent over the old link arrives when the next link is up already, and one end still takes the old link for open.
    name: 'stray link',
    begin: onHost('link', ({ path }, fleet) => {
      const lagMs = between(fleet, 1, 25);
      const end = fleet.rng.float() < 0.6 ? 'near' : 'far';
      const links = path.connections();
      for (const { near, far } of links) for (const socket of [near, far]) socket.lag(lagMs);
      return {
        forMs: between(fleet, 0, 20),
        end: async () => {
          for (const link of links) link[end].fail('read ECONNRESET');
        },
      };
    }),
  },
  {
    // What was under way is lost too.
    name: 'lost link',
    begin: onHost('link', ({ path }, fleet) => {
      const links = path.connections().flatMap(({ near, far }) => [near, far]);
      for (const socket of links) socket.lose();
      return {
        forMs: between(fleet, 0, 20),
        end: async () => {
          for (const socket of links) socket.fail('read ETIMEDOUT');
        },
      };
    }),
  },
  { name: 'copied disk', begin: onHost('copy', copyDisk) },
  {
    name: 'sent twice',
    begin: ({ plane, hosts }) => {
      if (!plane.isUp()) return undefined;
      for (const { machineId } of [...hosts, ...hosts]) plane.world().rooms.link.push(machineId);
      return 'all hosts';
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
  {
    // The agent ends the holder when the control plane asks. Nothing else can.
    name: 'holder hangs',
    begin: ({ hosts, rng }) => {
      const host = hosts[Math.floor(rng.float() * hosts.length)];
      const id = host?.holders.ids().at(-1);
      if (id !== undefined) host?.holders.hang(id);
      return id;
    },
  },
];

/** What is hit, in the notes of a story. */
const PLANE = 'the control plane';

function planeDown(fleet: Fleet, forMs: number, { restored }: { restored?: Backup } = {}): string | undefined {
  const { plane, clock, witness } = fleet;
  return during(fleet, PLANE, () => {
    const goneMs = restored?.atMs ?? clock.now();
    plane.kill();
    const end = async (): Promise<void> => {
      if (restored !== undefined) witness.forgetSince(restored.atMs);
      witness.noteOwnOutage([goneMs, clock.now()]);
      await plane.restart(restored === undefined ? undefined : await restore(restored, clock));
    };
    return { forMs, end };
  });
}

interface Course {
  forMs: number;
  end(): Promise<void>;
}

function cutPath(host: SimHost, fleet: Fleet): Course {
  host.path.set(false);
  return { forMs: between(fleet, 5, 600), end: async () => host.path.set(true) };
}

/** A copy of the disk is started elsewhere after some minutes. Some minutes later it goes for good, and the operator says so. */
function copyDisk(host: SimHost, fleet: Fleet): Course {
  const copy = host.copyTo(host.disk.copy());
  const startsMs = between(fleet, 120, 400);
  fleet.clock.after(startsMs, () => {
    host.setCopied(true);
    copy.setCopied(true);
    void copy.startAgent();
  });
  const end = async (): Promise<void> => {
    copy.cutPower();
    copy.path.set(false);
    host.setCopied(false);
  };
  return { forMs: startsMs + between(fleet, 20, 400), end };
}

/** The trouble hits one of the hosts, unless something of the same kind has hit it already. */
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

/** The result is in milliseconds, and the bounds are in seconds. */
function between({ rng }: Fleet, least: number, most: number): number {
  return Math.round((least + rng.float() ** 2 * (most - least)) * SECOND_MS);
}
