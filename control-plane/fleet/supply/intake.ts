// Takes in what a host reports about itself, with its hello and afterwards.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import type { Log } from '../../../shared/log.ts';
import { type Db, DbError, type Query, type Tx } from '../../base/db/db.ts';
import { setListed } from './offerings.ts';
import { noteLinkUp } from './reliability.ts';
import * as slots from './slots.ts';
import * as store from './store.ts';
import { obstacleOf } from './checks.ts';
import { brokenWords } from './verdict.ts';

/** GPUs that a launch holds: why they are broken; null if they are healthy. */
export interface HeldGpus {
  heldBy: string;
  fault: string | null;
}

export interface MachineFacts {
  machine: store.MachineRow;
  gpus: store.GpuRow[];
}

export interface IntakeDeps {
  db: Db;
  clock: Clock;
  log: Log;
  /** The host reports about GPUs that launches hold. */
  onGpus(found: readonly HeldGpus[]): Promise<void>;
  /** Judges the machine and updates its offerings. */
  appraise(tx: Tx, machineId: string): Promise<void>;
  /** Updates the offerings of the machine. */
  refresh(tx: Tx, machineId: string): Promise<void>;
}

export async function factsOf(query: Query, machineId: string): Promise<MachineFacts | undefined> {
  const [machine, gpus] = await Promise.all([store.findMachine(query, machineId), store.gpusOf(query, machineId)]);
  return machine === undefined ? undefined : { machine, gpus };
}

/**
 * False if it is ignored, because two hosts share the identity of the machine, or if a launch that holds GPUs could not take it. Then the host
 * repeats it.
 */
export async function reportInventory(machineId: string, inventory: Inventory, deps: IntakeDeps): Promise<boolean> {
  const broken = await deps.db.tx('supply.inventory', async (tx) => {
    await tx.lock('machine', machineId);
    // Two hosts share the identity, and we cannot know which one has reported this.
    if ((await store.findMachine(tx, machineId))?.copied_ms != null) return undefined;
    await takeInventory(tx, machineId, inventory, deps);
    return brokenGpus(await store.gpusOf(tx, machineId), inventory);
  });
  // Called after the commit, because `onGpus` locks more than the machine. If the process dies before it, the next link repeats the report.
  return broken !== undefined && (await noteGpus(machineId, broken, deps));
}

/**
 * Passes on what a host reports about the GPUs that launches hold. False if one of them could not take it: the link of the host stays up, because
 * its other launches need it. @throws DbError
 */
export async function noteGpus(
  machineId: string,
  found: readonly HeldGpus[],
  { onGpus, log }: Pick<IntakeDeps, 'onGpus' | 'log'>,
): Promise<boolean> {
  try {
    await onGpus(found);
    return true;
  } catch (error) {
    if (error instanceof DbError) throw error;
    log.error(
      { machine_id: machineId, err: error },
      'the state of GPUs could not be noted for a rental; the next report of the host is noted again',
    );
    return false;
  }
}

/** See `Supply.arrive`. */
export async function arrive(
  tx: Tx,
  { machine, gpus }: MachineFacts,
  inventory: Inventory,
  deps: IntakeDeps,
): Promise<HeldGpus[]> {
  // The host has proven its key before this transaction began. Meanwhile the operator may have declared it lost.
  if (machine.public_key === null) fail('conflict', `The machine ${machine.id} has no host now.`);
  const nowMs = deps.clock.now();
  const isSame = JSON.stringify(machine.inventory) === JSON.stringify(inventory);
  if (isSame || machine.copied_ms !== null) {
    if (!machine.online) await putOnline(tx, machine, nowMs, deps);
    return machine.copied_ms === null ? brokenGpus(gpus, inventory) : [];
  }
  await store.setOnline(tx, machine.id, true, nowMs);
  await noteLinkUp(tx, machine.id, nowMs);
  await takeInventory(tx, machine.id, inventory, deps);
  return brokenGpus(await store.gpusOf(tx, machine.id), inventory);
}

/**
 * Marks the machine online. Its offerings are still right, because nothing but the link has changed. They return to the market, and contracts
 * that wait for GPUs get theirs first.
 */
async function putOnline(tx: Tx, machine: store.MachineRow, nowMs: number, deps: IntakeDeps): Promise<void> {
  const listed = obstacleOf({ ...machine, online: true }) === undefined;
  const [, , , wants] = await Promise.all([
    store.setOnline(tx, machine.id, true, nowMs),
    noteLinkUp(tx, machine.id, nowMs),
    setListed(tx, machine.id, listed),
    slots.wantsFor(tx, machine.id),
  ]);
  if (wants.length > 0) await deps.refresh(tx, machine.id);
}

/** Stores an inventory and judges the machine again. */
export async function takeInventory(tx: Tx, machineId: string, inventory: Inventory, deps: IntakeDeps): Promise<void> {
  await store.setInventory(tx, machineId, inventory, deps.clock.now());
  await store.dropExcept(
    tx,
    machineId,
    inventory.gpus.map((gpu) => gpu.uuid),
  );
  await deps.appraise(tx, machineId);
}

/** What the host reports about the GPUs that each launch holds. */
function brokenGpus(gpus: readonly store.GpuRow[], inventory: Inventory): HeldGpus[] {
  const held = gpus.filter((gpu) => gpu.held_by !== null);
  return [...Map.groupBy(held, (gpu) => gpu.held_by ?? '')].flatMap(([heldBy, its]) => {
    const fault = brokenWords(
      inventory,
      its.map((gpu) => gpu.gpu_uuid),
    );
    return fault === undefined ? [] : [{ heldBy, fault }];
  });
}
