// Whether a machine is on offer: the operator approves and suspends it, its supplier takes it out and brings it back (specification 3.4).
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { MachineState } from '../../../shared/states.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { move } from './states.ts';
import * as store from './store.ts';
import { verdictOf } from './verdict.ts';

/** What a supplier may say anew of a machine; null takes a declared field back, undefined leaves it. */
export type MachineChange = Partial<
  Pick<
    store.MachineRow,
    | 'declared_gpu_count'
    | 'declared_gpu_type'
    | 'declared_vram_per_gpu_gb'
    | 'region'
    | 'price_ucents_per_hour'
    | 'tier'
  >
>;

export interface Listing {
  /** The operator's word: offered to customers from now on, or once its supplier lists it again. @throws ServiceError `not_found`, `conflict` */
  approve(machineId: string): Promise<store.MachineRow>;
  /** Offered no longer, until the operator approves it again; what runs goes on. @throws ServiceError `not_found`, `conflict` */
  suspend(machineId: string): Promise<store.MachineRow>;
  /**
   * Its supplier takes it out of supply at once. `draining` while somebody holds a GPU of it: what runs is left alone, and it is
   * `delisted` when the last one is released. Repeating it says how far it is. @throws ServiceError `not_found`
   */
  delist(tx: Tx, orgId: string, machineId: string): Promise<'draining' | 'delisted'>;
  /** Its supplier brings it back; nothing happens to one that is not delisted. @throws ServiceError `not_found` */
  relist(tx: Tx, orgId: string, machineId: string): Promise<store.MachineRow>;
  /** Prices and tiers are for later rentals. @throws ServiceError `not_found`, `conflict` for the region of a machine that is in use */
  change(tx: Tx, orgId: string, machineId: string, change: MachineChange): Promise<store.MachineRow>;
  /** A GPU of it was released: the last one ends the draining. */
  noteReleased(tx: Tx, machineId: string): Promise<void>;
  /** Compares what the host shows now with what was declared. */
  judge(tx: Tx, machineId: string): Promise<void>;
  /** None of its machines is offered any longer; what runs goes on, and what was earned stays owed. @throws ServiceError `not_found`, `conflict` */
  suspendSupplier(supplierId: string): Promise<store.SupplierRow>;
  /** @throws ServiceError `not_found`, `conflict` */
  resumeSupplier(supplierId: string): Promise<store.SupplierRow>;
}

interface ListingDeps {
  db: Db;
  clock: Clock;
  events: Events;
  /** Brings the offerings in step. */
  refresh(tx: Tx, machineId: string): Promise<void>;
}

export function openListing(deps: ListingDeps): Listing {
  const { db } = deps;
  return {
    approve: (machineId) => db.tx('supply.approve', (tx) => approve(tx, machineId, deps)),
    suspend: (machineId) => db.tx('supply.suspend', (tx) => suspend(tx, machineId, deps)),
    delist: (tx, orgId, machineId) => delist(tx, orgId, machineId, deps),
    relist: async (tx, orgId, machineId) => {
      const machine = await ownMachine(tx, orgId, machineId);
      if (!isWithdrawn(machine)) return machine;
      return moveTo(tx, machine, machine.approved ? 'listed' : 'pending_verification', deps);
    },
    change: (tx, orgId, machineId, change) => changeMachine(tx, { orgId, machineId, change }, deps),
    noteReleased: async (tx, machineId) => {
      const machine = await store.findMachine(tx, machineId);
      if (machine?.status !== 'draining' || (await isHeld(tx, machineId))) return;
      await moveTo(tx, machine, 'delisted', deps);
    },
    judge: (tx, machineId) => judge(tx, machineId),
    suspendSupplier: (id) => setSupplier(id, 'suspended', deps),
    resumeSupplier: (id) => setSupplier(id, 'active', deps),
  };
}

/** @throws ServiceError `not_found` for a machine of somebody else too */
export async function ownMachine(query: Query, orgId: string, machineId: string): Promise<store.MachineRow> {
  return (await store.machineOfOrg(query, orgId, machineId)) ?? fail('not_found', `There is no machine ${machineId}.`);
}

async function approve(tx: Tx, machineId: string, deps: ListingDeps): Promise<store.MachineRow> {
  const machine = await anyMachine(tx, machineId);
  if (machine.public_key === null) {
    return fail('conflict', 'This machine has not enrolled yet, so nobody knows its GPUs. Approve it afterwards.');
  }
  return judgeListing(tx, machine, { approved: true, to: 'listed' }, deps);
}

async function suspend(tx: Tx, machineId: string, deps: ListingDeps): Promise<store.MachineRow> {
  return judgeListing(tx, await anyMachine(tx, machineId), { approved: false, to: 'suspended' }, deps);
}

/** What its supplier has taken out stays out; the operator's word is then about the time when it comes back. */
async function judgeListing(
  tx: Tx,
  machine: store.MachineRow,
  { approved, to }: { approved: boolean; to: MachineState },
  deps: ListingDeps,
): Promise<store.MachineRow> {
  await store.setApproved(tx, machine.id, approved);
  if (!isWithdrawn(machine)) return { ...(await moveTo(tx, machine, to, deps)), approved };
  if (machine.approved === approved) {
    fail('conflict', `The machine is ${machine.status} and ${approved ? 'approved' : 'not approved'} already.`);
  }
  return { ...machine, approved };
}

async function delist(tx: Tx, orgId: string, machineId: string, deps: ListingDeps): Promise<'draining' | 'delisted'> {
  const machine = await ownMachine(tx, orgId, machineId);
  if (machine.status === 'draining' || machine.status === 'delisted') return machine.status;
  const to = (await isHeld(tx, machineId)) ? 'draining' : 'delisted';
  await moveTo(tx, machine, to, deps);
  return to;
}

async function changeMachine(
  tx: Tx,
  { orgId, machineId, change }: { orgId: string; machineId: string; change: MachineChange },
  deps: ListingDeps,
): Promise<store.MachineRow> {
  const machine = await ownMachine(tx, orgId, machineId);
  const moves = change.region !== undefined && change.region !== machine.region;
  if (moves && (await isHeldOrReserved(tx, machineId))) {
    fail('conflict', 'GPUs of this machine are rented or reserved in its region. Change the region when none is.');
  }
  await store.setDeclared(tx, { ...machine, ...change, updated_ms: deps.clock.now() });
  await judge(tx, machineId);
  await deps.refresh(tx, machineId);
  return ownMachine(tx, orgId, machineId);
}

async function judge(tx: Tx, machineId: string): Promise<void> {
  const machine = await anyMachine(tx, machineId);
  const uuids = machine.inventory?.gpus.map((gpu) => gpu.uuid) ?? [];
  const elsewhere = await store.offeredElsewhere(tx, machineId, uuids);
  await store.setVerdict(tx, machineId, verdictOf(machine, elsewhere.length));
}

function setSupplier(
  supplierId: string,
  to: store.SupplierRow['status'],
  { db, clock, refresh }: ListingDeps,
): Promise<store.SupplierRow> {
  return db.tx(`supply.supplier_${to}`, async (tx) => {
    if (!(await store.setSupplierStatus(tx, supplierId, { to, nowMs: clock.now() }))) {
      const known = (await store.findSupplier(tx, supplierId)) !== undefined;
      return known
        ? fail('conflict', `The supplier is ${to} already.`)
        : fail('not_found', `There is no supplier ${supplierId}.`);
    }
    for (const machineId of await store.machineIdsOfSupplier(tx, supplierId)) await refresh(tx, machineId);
    const supplier = await store.findSupplier(tx, supplierId);
    return supplier ?? fail('not_found', `There is no supplier ${supplierId}.`);
  });
}

async function anyMachine(tx: Tx, machineId: string): Promise<store.MachineRow> {
  return (await store.findMachine(tx, machineId)) ?? fail('not_found', `There is no machine ${machineId}.`);
}

async function moveTo(
  tx: Tx,
  machine: store.MachineRow,
  to: MachineState,
  { events, clock, refresh }: ListingDeps,
): Promise<store.MachineRow> {
  await move(tx, machine, to, { events, nowMs: clock.now() });
  await refresh(tx, machine.id);
  return { ...machine, status: to };
}

function isWithdrawn({ status }: store.MachineRow): boolean {
  return status === 'draining' || status === 'delisted';
}

async function isHeld(query: Query, machineId: string): Promise<boolean> {
  return (await store.gpusOf(query, machineId)).some((gpu) => gpu.held_by !== null);
}

async function isHeldOrReserved(query: Query, machineId: string): Promise<boolean> {
  return (await store.gpusOf(query, machineId)).some((gpu) => gpu.held_by !== null || gpu.reserved_by !== null);
}
