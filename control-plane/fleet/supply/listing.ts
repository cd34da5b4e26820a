// Whether a machine is on offer: the operator approves and suspends it, its supplier delists and relists it (specification 3.4).
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { MachineState } from '../../../shared/states.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { type ApprovedGpu, gpusToApprove, isApproved } from './approval.ts';
import { claimedElsewhere } from './appraisal.ts';
import { obstacleOf } from './checks.ts';
import { clearHost } from './lost-host.ts';
import { setListedAll } from './offerings.ts';
import { move } from './states.ts';
import { orgOfMachine } from './owners.ts';
import { machinesOfSupplier } from './machine-pages.ts';
import * as store from './store.ts';
import { declarationFaults } from './verdict.ts';

/** The fields of a machine that its supplier may change. Null removes a declared field, undefined leaves it unchanged. */
export type MachineChange = Partial<
  Pick<
    store.MachineRow,
    | 'name'
    | 'declared_gpu_count'
    | 'declared_gpu_type'
    | 'declared_vram_per_gpu_gb'
    | 'region'
    | 'price_ucents_per_hour'
    | 'tier'
    | 'rentable_until_ms'
  >
>;

export interface Listing {
  /**
   * The operator approves the GPUs that the host shows now. They are on offer from now on, or once the supplier lists the machine again.
   * @throws ServiceError `not_found`, `conflict`
   */
  approve(machineId: string): Promise<store.MachineRow>;
  /**
   * Takes the machine off the market until the operator approves it again. Running rentals go on. @throws ServiceError `not_found`,
   * `conflict`
   */
  suspend(machineId: string): Promise<store.MachineRow>;
  /**
   * The supplier takes the machine out of supply at once. It is `draining` while a GPU of it is held: running rentals go on. It is
   * `delisted` when the last GPU is released. A repeated call returns the current status. @throws ServiceError `not_found`
   */
  delist(tx: Tx, orgId: string, machineId: string): Promise<'draining' | 'delisted'>;
  /** The supplier lists the machine again. Does nothing if it is not delisted. @throws ServiceError `not_found` */
  relist(tx: Tx, orgId: string, machineId: string): Promise<store.MachineRow>;
  /**
   * New prices and tiers apply to later rentals. @throws ServiceError `not_found`, `conflict` for a new region of a machine in use, or for the
   * tier spot while a contract has reserved GPUs of the machine, `validation_failed` for a last time on offer that is over
   */
  change(tx: Tx, orgId: string, machineId: string, change: MachineChange): Promise<store.MachineRow>;
  /** Called when a GPU of the machine was released. The machine becomes `delisted` if it is draining and this was its last held GPU. */
  noteReleased(tx: Tx, machineId: string): Promise<void>;
  /**
   * The host of the machine is lost for good, with its key. Nothing is held on it any more, its GPUs belong to nobody, and the machine waits for
   * a new host and its approval.
   */
  forgetHost(tx: Tx, machineId: string): Promise<store.MachineRow>;
  /** Judges what the host shows now and updates its offerings. */
  appraise(tx: Tx, machineId: string): Promise<void>;
  /**
   * Takes all machines of the supplier off the market. Running rentals go on, and earnings stay owed. @throws ServiceError `not_found`,
   * `conflict`
   */
  suspendSupplier(supplierId: string): Promise<store.SupplierRow>;
  /** @throws ServiceError `not_found`, `conflict` */
  resumeSupplier(supplierId: string): Promise<store.SupplierRow>;
}

interface ListingDeps {
  db: Db;
  clock: Clock;
  events: Events;
  appraise(tx: Tx, machineId: string): Promise<void>;
}

export function openListing(deps: ListingDeps): Listing {
  const { db } = deps;
  return {
    approve: (machineId) =>
      db.tx('supply.approve', async (tx) => {
        await tx.lock('machine', machineId);
        return approve(tx, machineId, deps);
      }),
    suspend: (machineId) =>
      db.tx('supply.suspend', async (tx) => {
        await tx.lock('machine', machineId);
        return judgeListing(tx, await anyMachine(tx, machineId), { gpus: null, to: 'suspended' }, deps);
      }),
    delist: (tx, orgId, machineId) => delist(tx, orgId, machineId, deps),
    relist: async (tx, orgId, machineId) => {
      const machine = await ownMachine(tx, orgId, machineId);
      if (!isWithdrawn(machine)) return machine;
      return moveTo(tx, machine, machine.approved ? 'listed' : 'pending_verification', deps);
    },
    change: (tx, orgId, machineId, change) => changeMachine(tx, { orgId, machineId, change }, deps),
    noteReleased: async (tx, machineId) => {
      const machine = await store.findMachine(tx, machineId);
      const isDrained = machine?.status === 'draining' && !(await isHeld(tx, machineId));
      await (isDrained ? moveTo(tx, machine, 'delisted', deps) : deps.appraise(tx, machineId));
    },
    forgetHost: (tx, machineId) => forgetHost(tx, machineId, deps),
    appraise: deps.appraise,
    suspendSupplier: (id) => setSupplier(id, 'suspended', deps),
    resumeSupplier: (id) => setSupplier(id, 'active', deps),
  };
}

/** @throws ServiceError `not_found`, also for a machine of another organisation */
export async function ownMachine(query: Query, orgId: string, machineId: string): Promise<store.MachineRow> {
  return (await store.machineOfOrg(query, orgId, machineId)) ?? fail('not_found', `There is no machine ${machineId}.`);
}

async function approve(tx: Tx, machineId: string, deps: ListingDeps): Promise<store.MachineRow> {
  const machine = await anyMachine(tx, machineId);
  if (machine.public_key === null) {
    return fail('conflict', 'This machine has not enrolled yet, so nobody knows its GPUs. Approve it afterwards.');
  }
  const gpus = await approvableGpus(tx, machine);
  const isSame =
    machine.inventory_fault === null &&
    machine.inventory !== null &&
    isApproved(machine.approved_gpus ?? [], machine.inventory);
  if (isSame || machine.status !== 'listed') return judgeListing(tx, machine, { gpus, to: 'listed' }, deps);
  await store.setApproved(tx, machineId, gpus);
  await deps.events.append(tx, {
    type: 'machine.inventory_approved',
    subjectId: machineId,
    orgId: await orgOfMachine(tx, machineId),
    data: { machine_id: machineId, gpus: gpus.length },
  });
  await deps.appraise(tx, machineId);
  return anyMachine(tx, machineId);
}

/** @throws ServiceError `conflict` if the GPUs cannot be sold, whatever the operator decides */
async function approvableGpus(tx: Tx, machine: store.MachineRow): Promise<ApprovedGpu[]> {
  const { inventory } = machine;
  const gpus = inventory === null ? [] : gpusToApprove(inventory);
  if (inventory === null || gpus.length === 0) {
    const why = inventory?.gpu_error ? ` nvidia-smi says: ${inventory.gpu_error}` : '';
    return fail('conflict', `The host shows no GPU, so there is nothing to approve.${why}`);
  }
  const faults = declarationFaults(machine, inventory);
  if (faults.length > 0) {
    return fail('conflict', `${faults.join('; ')}. Its supplier must correct that first: PATCH the machine.`);
  }
  const uuids = gpus.map(({ uuid }) => uuid);
  const claims = await claimedElsewhere(tx, machine.id, uuids);
  const others = [...new Set(claims.map((claim) => claim.machine_id))];
  if (others.length === 0) return gpus;
  return fail(
    'conflict',
    `${claims.length} of its GPUs belong to machine ${others.join(', ')}. Its approval is older and stands. If it does not own them, suspend it, then approve this one.`,
  );
}

/** A machine that its supplier has delisted stays delisted. The operator's decision then applies when the supplier lists it again. */
async function judgeListing(
  tx: Tx,
  machine: store.MachineRow,
  { gpus, to }: { gpus: ApprovedGpu[] | null; to: MachineState },
  deps: ListingDeps,
): Promise<store.MachineRow> {
  const isSame = JSON.stringify(machine.approved_gpus) === JSON.stringify(gpus) && machine.inventory_fault === null;
  await store.setApproved(tx, machine.id, gpus);
  if (!isWithdrawn(machine)) return moveTo(tx, machine, to, deps);
  if (isSame) {
    fail('conflict', `The machine is ${machine.status} and ${gpus === null ? 'not approved' : 'approved'} already.`);
  }
  await deps.appraise(tx, machine.id);
  return anyMachine(tx, machine.id);
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
  const leavesContracts = change.tier === 'spot' && machine.tier !== 'spot';
  if (leavesContracts && (await isReserved(tx, machineId))) {
    fail(
      'conflict',
      'GPUs of this machine are reserved by a contract, which needs on_demand. Change the tier when none is.',
    );
  }
  const nowMs = deps.clock.now();
  const { rentable_until_ms: untilMs } = change;
  if (untilMs !== undefined && untilMs !== null && untilMs <= nowMs)
    failField('rentable_until', 'must be later than now; null withdraws it');
  const ended = untilMs === undefined ? machine.offer_ended : false;
  await store.setDeclared(tx, { ...machine, ...change, offer_ended: ended, updated_ms: nowMs });
  if (untilMs !== undefined && untilMs !== machine.rentable_until_ms) {
    const data = { machine_id: machineId, rentable_until_ms: untilMs };
    await deps.events.append(tx, { type: 'machine.rentable_until', subjectId: machineId, orgId, data });
  }
  await deps.appraise(tx, machineId);
  return ownMachine(tx, orgId, machineId);
}

async function forgetHost(tx: Tx, machineId: string, deps: ListingDeps): Promise<store.MachineRow> {
  await clearHost(tx, machineId);
  const machine = await anyMachine(tx, machineId);
  if (machine.status === 'draining') return moveTo(tx, machine, 'delisted', deps);
  if (machine.status === 'listed') return moveTo(tx, machine, 'pending_verification', deps);
  await deps.appraise(tx, machineId);
  return anyMachine(tx, machineId);
}

function setSupplier(
  supplierId: string,
  to: store.SupplierRow['status'],
  { db, clock }: ListingDeps,
): Promise<store.SupplierRow> {
  // One transaction, so that no machine is left on the market. It may have thousands of machines, so it does not refresh one after another.
  return db.tx(`supply.supplier_${to}`, async (tx) => {
    await tx.lock('supplier', supplierId);
    if (!(await store.setSupplierStatus(tx, supplierId, { to, nowMs: clock.now() }))) {
      const known = (await store.findSupplier(tx, supplierId)) !== undefined;
      return known
        ? fail('conflict', `The supplier is ${to} already.`)
        : fail('not_found', `There is no supplier ${supplierId}.`);
    }
    const machineIds = await store.machineIdsOfSupplier(tx, supplierId);
    await tx.lock('machine', ...machineIds);
    const all = to === 'suspended' ? [] : await machinesOfSupplier(tx, supplierId, { count: machineIds.length });
    const listed = all.filter((machine) => obstacleOf(machine) === undefined).map(({ id }) => id);
    await setListedAll(tx, to === 'suspended' ? machineIds : listed, to === 'active');
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
  { events, clock, appraise }: ListingDeps,
): Promise<store.MachineRow> {
  await move(tx, machine, to, { events, nowMs: clock.now() });
  await appraise(tx, machine.id);
  return anyMachine(tx, machine.id);
}

function isWithdrawn({ status }: store.MachineRow): boolean {
  return status === 'draining' || status === 'delisted';
}

async function isHeld(query: Query, machineId: string): Promise<boolean> {
  return (await store.gpusOf(query, machineId)).some((gpu) => gpu.held_by !== null);
}

async function isReserved(query: Query, machineId: string): Promise<boolean> {
  return (await store.gpusOf(query, machineId)).some((gpu) => gpu.reserved_by !== null);
}

async function isHeldOrReserved(query: Query, machineId: string): Promise<boolean> {
  return (await isHeld(query, machineId)) || isReserved(query, machineId);
}
