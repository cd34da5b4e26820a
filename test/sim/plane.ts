// The control plane of a simulation: the real rooms and the real loops as one process after another on one database.
import type { Db } from '../../control-plane/base/db/db.ts';
import { type Running, startLoops } from '../../control-plane/loops.ts';
import type { ProbeResult } from '../../control-plane/rental/instances/steps.ts';
import { openWorld, type World } from '../kit/world.ts';
import { type Life, openLife } from './life.ts';
import type { Socket } from './wire.ts';

export interface Plane {
  /** The world of the process that runs, or ran last. */
  world(): World;
  isUp(): boolean;
  /** Accepts the connection of a host; false if nobody listens. */
  accept(socket: Socket): boolean;
  /** The process ends like after kill -9. */
  kill(): void;
  /** Starts the next process, on the same database or on another. */
  restart(db?: Db): Promise<void>;
}

interface Outside {
  /** The way in which holders are probed. */
  probe(instanceId: string, plane: Plane, life: Life): Promise<ProbeResult>;
  /** Called when the control plane starts or ends. */
  onChange(): void;
}

export async function openPlane(seed: number, { probe, onChange }: Outside): Promise<Plane> {
  let life: Life | undefined;
  let running: Running | undefined;
  const sockets = new Set<Socket>();
  const nudge = (name: string) => (): void =>
    running?.loops.find(({ loop }) => loop.status().name === name)?.loop.nudge();
  const alive = (): Life => life as Life;
  /** The next life begins before its world is there. */
  let isOpen = true;
  let world = await openWorld(seed, {
    processOn: ({ db, clock }) => {
      life = openLife(clock);
      return { clock: life.clock, db: life.withinDb(db) };
    },
    nudges: {
      engine: () => running?.engine?.nudge(),
      edge: nudge('edge'),
      watch: nudge('watch'),
      webhooks: nudge('webhooks'),
    },
    probe: (instanceId) => probe(instanceId, plane, alive()),
  });
  const run = (): void => {
    running = startLoops(world.core, world.brings(), 'primary');
  };
  const plane: Plane = {
    world: () => world,
    isUp: () => isOpen && !alive().isOver(),
    accept: (socket) => {
      if (!plane.isUp()) return false;
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
      world.rooms.link.accept(socket, '192.0.2.1', () => undefined);
      return true;
    },
    kill: () => {
      alive().end();
      isOpen = false;
      for (const socket of sockets) socket.vanish(false);
      sockets.clear();
      onChange();
    },
    restart: async (db) => {
      world = await world.restart(db);
      isOpen = true;
      run();
      onChange();
    },
  };
  await world.rooms.ownOutages.beat();
  run();
  return plane;
}
