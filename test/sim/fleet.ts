// A whole fleet in one process on virtual time: the control plane, its hosts, suppliers and customers, all from one seed.
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import type { CreateInstance } from '../../shared/api/instance.ts';
import { ServiceError } from '../../shared/errors.ts';
import { UCENTS_PER_CENT } from '../../shared/money.ts';
import { type Rng, seededRng } from '../../shared/rng.ts';
import type { VirtualClock } from '../kit/virtual-clock.ts';
import type { Backup } from './backup.ts';
import { identityFrom, openHost, type SimHost } from './host.ts';
import { probeFromOutside } from './probe.ts';
import { openPlane, type Plane } from './plane.ts';
import { dial } from './wire.ts';
import { openWitness, type Witness } from './witness.ts';

export interface Customer {
  orgId: string;
  principalId: string;
  /** The amount that customers have paid in. */
  fundedUcents: bigint;
}

export interface Fleet {
  seed: number;
  rng: Rng;
  clock: VirtualClock;
  plane: Plane;
  hosts: readonly SimHost[];
  customers: readonly Customer[];
  witness: Witness;
  /** All instances so far, each with its customer. */
  instances: Map<string, Customer>;
  /** The troubles that are not over. */
  busy: Set<string>;
  /** The newest copy of the database. */
  backup: Backup | undefined;
  launch(who: Customer, wish: Partial<CreateInstance>): Promise<string | undefined>;
  remove(instanceId: string): Promise<void>;
  /** The supplier asks for another price from now on. */
  reprice(host: SimHost): Promise<void>;
}

export interface FleetSize {
  /** The number of GPUs of each host. */
  hosts: readonly number[];
  /** The amount that each customer pays in, in cents. */
  customers: readonly number[];
}

const HOUR_MS = 3_600_000;

export async function openFleet(seed: number, size: FleetSize): Promise<Fleet> {
  const rng = seededRng(seed);
  const hosts: SimHost[] = [];
  const onChange = (): void => witness.watch();
  const plane = await openPlane(seed, {
    onChange,
    probe: (id, asking, life) => probeFromOutside(id, { plane: asking, life, hosts }),
  });
  const { clock } = plane.world();
  const witness = openWitness(clock, hosts, plane.isUp);
  for (const gpus of size.hosts) {
    const identity = identityFrom(rng);
    const cents = someCents(rng);
    const made = await plane.world().machine({ gpus, publicKey: identity.public_key, dollars: cents / 100 });
    witness.notePrice(made.machineId, BigInt(cents) * UCENTS_PER_CENT);
    const host = openHost({ ...made, identity, rng, clock, onChange, dial: (path) => dial(path, clock, plane.accept) });
    hosts.push(host);
    await host.startAgent();
  }
  const customers: Customer[] = [];
  for (const cents of size.customers) {
    const fundedUcents = BigInt(cents) * UCENTS_PER_CENT;
    customers.push({ ...(await plane.world().customer(cents)), fundedUcents });
  }
  witness.watch();
  const known = { seed, rng, clock, plane, hosts, customers, witness };
  const instances = new Map<string, Customer>();
  return { ...known, instances, busy: new Set(), backup: undefined, ...requests(known, instances) };
}

/** The requests of customers and suppliers. */
function requests(
  { plane, clock, rng, witness }: Pick<Fleet, 'plane' | 'clock' | 'rng' | 'witness'>,
  instances: Map<string, Customer>,
): Pick<Fleet, 'launch' | 'remove' | 'reprice'> {
  return {
    launch: async (who, wish) => {
      const id = await orRefused(plane.world().launch(who, wish));
      if (id === undefined) return undefined;
      instances.set(id, who);
      const placed = await findInstance(plane.world().db.read, id);
      witness.launches.set(id, {
        atMs: clock.now(),
        gpuCount: placed?.gpu_count ?? 0,
        limitMs: (wish.auto_terminate_hours ?? Infinity) * HOUR_MS,
        placedUcentsPerHour: placed?.machine_id === null ? undefined : placed?.price_ucents_per_hour,
      });
      return id;
    },
    remove: async (id) => {
      const { orgId, principalId } = instances.get(id) as Customer;
      const { rooms } = plane.world();
      const accepted = await orRefused(rooms.instances.remove({ orgId, principalId }, id, async () => undefined));
      if (accepted !== undefined && !witness.ends.has(id)) witness.ends.set(id, clock.now());
    },
    reprice: async ({ machineId, supplierOrgId }) => {
      const { rooms, db } = plane.world();
      const ucents = BigInt(someCents(rng)) * UCENTS_PER_CENT;
      await db.tx('sim.reprice', async (tx) => {
        await tx.lock('machine', machineId);
        await rooms.supply.change(tx, supplierOrgId, machineId, { price_ucents_per_hour: ucents });
      });
      witness.notePrice(machineId, ucents);
    },
  };
}

/** An amount between one dollar and four. */
function someCents(rng: Rng): number {
  return 100 + Math.floor(rng.float() * 300);
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
