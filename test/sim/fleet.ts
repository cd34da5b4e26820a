// A whole fleet in one process on virtual time: the control plane, its hosts, suppliers and customers, all from one seed.
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import type { ProbeResult } from '../../control-plane/rental/instances/steps.ts';
import type { CreateInstance } from '../../shared/api/instance.ts';
import { ServiceError } from '../../shared/errors.ts';
import { STREAM_DIAL_MS_MAX } from '../../shared/limits.ts';
import { type Rng, seededRng } from '../../shared/rng.ts';
import type { VirtualClock } from '../kit/virtual-clock.ts';
import type { Backup } from './backup.ts';
import { identityFrom, openHost, type SimHost } from './host.ts';
import { openPlane, type Plane } from './plane.ts';
import type { Life } from './life.ts';
import { dial } from './wire.ts';

export interface Customer {
  orgId: string;
  apiKeyId: string;
}

export interface Fleet {
  seed: number;
  rng: Rng;
  clock: VirtualClock;
  plane: Plane;
  hosts: readonly SimHost[];
  customers: readonly Customer[];
  /** All so far, with whose they are. */
  instances: Map<string, Customer>;
  /** Troubles that are not over. */
  busy: Set<string>;
  /** The newest copy of the database. */
  backup: { rows: Backup; atMs: number } | undefined;
  launch(who: Customer, wish: Partial<CreateInstance>): Promise<string | undefined>;
  remove(instanceId: string): Promise<void>;
}

export interface FleetSize {
  /** GPUs of each host. */
  hosts: readonly number[];
  customers: number;
}

const CENTS = 1_000_000;

export async function openFleet(seed: number, size: FleetSize): Promise<Fleet> {
  const rng = seededRng(seed);
  const hosts: SimHost[] = [];
  const plane = await openPlane(seed, (id, asking, life) => look(id, { plane: asking, life, hosts }));
  const { clock } = plane.world();
  for (const gpus of size.hosts) {
    const identity = identityFrom(rng);
    const made = await plane.world().machine({ gpus, publicKey: identity.public_key });
    const host = openHost({ ...made, identity, rng, clock, dial: (path) => dial(path, clock, plane.accept) });
    hosts.push(host);
    await host.startAgent();
  }
  const customers: Customer[] = [];
  for (let i = 0; i < size.customers; i += 1) customers.push(await plane.world().customer(CENTS));
  const instances = new Map<string, Customer>();
  return {
    seed,
    rng,
    clock,
    plane,
    hosts,
    customers,
    instances,
    busy: new Set(),
    backup: undefined,
    launch: async (who, wish) => {
      const id = await orRefused(plane.world().launch(who, wish));
      if (id !== undefined) instances.set(id, who);
      return id;
    },
    remove: async (id) => {
      const { orgId, apiKeyId } = instances.get(id) as Customer;
      await orRefused(plane.world().rooms.instances.remove({ orgId, apiKeyId }, id, async () => undefined));
    },
  };
}

/** A refusal is an answer; anything else is a fault. */
async function orRefused<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ServiceError) return undefined;
    throw error;
  }
}

/** From the public port over the link to the holder, as far as it gets. */
async function look(
  instanceId: string,
  { plane, life, hosts }: { plane: Plane; life: Life; hosts: readonly SimHost[] },
): Promise<ProbeResult> {
  const { rooms, core } = plane.world();
  const instance = await findInstance(core.db.read, instanceId);
  const host = hosts.find(({ machineId }) => machineId === instance?.machine_id);
  if (host === undefined || instance?.workload_id == null) return { ok: false, leg: 'door', detail: 'it has no host' };
  if (!rooms.link.isUp(host.machineId)) return { ok: false, leg: 'link', detail: 'the host is not connected' };
  await life.clock.sleep(2 * host.path.delayMs());
  if (host.answersFor(instance.workload_id)) return { ok: true };
  if (host.path.isOpen()) return { ok: false, leg: 'refused', detail: 'this workload has no door here' };
  await life.clock.sleep(STREAM_DIAL_MS_MAX);
  return { ok: false, leg: 'dial', detail: 'the host did not open the stream in time' };
}
