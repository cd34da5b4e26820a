// Allocates the GPUs of a contract, in the caller's transaction.
import type { Commitment } from '../../../shared/api/reservation.ts';
import { fail } from '../../../shared/errors.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { fewestMachines } from '../../fleet/placement/placement.ts';
import { freeCapacity, type Kind, type Capacity, slotsOf, wantsOf } from '../../fleet/supply/slots.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import type { ReservationRow } from './store.ts';
import { lastEnd } from './term.ts';

/** Sets aside the free GPUs for a contract. The missing ones become its slots when they come free. */
export async function claim(tx: Tx, contract: ReservationRow, supply: Supply): Promise<void> {
  for (const entry of contract.commitment) {
    const capacities = await freeCapacity(tx, { ...kindOf(entry), endsMs: lastEnd(contract) });
    const count = Math.min(entry.gpu_count, gpusIn(capacities));
    await take(tx, contract, { kind: kindOf(entry), capacities, count }, supply);
    const { gpu_type, region, gpu_count: committed } = entry;
    if (count === committed) continue;
    const want = { reserved_by: contract.id, gpu_type, region, gpus_missing: committed - count };
    await supply.awaitSlots(tx, { ...want, starts_ms: contract.starts_ms, ends_ms: lastEnd(contract) });
  }
}

/**
 * Replaces lost GPUs of a contract by free ones, all of them or none. GPUs that it still waits for do not count as lost.
 * @throws ServiceError `conflict` with the number of free GPUs
 */
export async function replaceLost(tx: Tx, contract: ReservationRow, supply: Supply): Promise<void> {
  const [slots, wants] = [await slotsOf(tx, contract.id), await wantsOf(tx, contract.id)];
  for (const entry of contract.commitment) {
    const { gpu_type: gpuType, gpu_count: committed, region } = entry;
    const isOfEntry = (row: { gpu_type: string; region: string }): boolean =>
      row.gpu_type === gpuType && row.region === region;
    const has = slots.filter(isOfEntry).reduce((sum, slot) => sum + slot.slots, 0);
    const awaited = wants.find(isOfEntry)?.gpus_missing ?? 0;
    const capacities = await freeCapacity(tx, { ...kindOf(entry), endsMs: lastEnd(contract) });
    await take(tx, contract, { kind: kindOf(entry), capacities, count: committed - has - awaited }, supply);
  }
}

/** How many GPUs the contract waits for. */
export async function awaitedGpus(query: Query, id: string): Promise<number> {
  return (await wantsOf(query, id)).reduce((sum, want) => sum + want.gpus_missing, 0);
}

export function kindOf({ gpu_type: gpuType, region }: Commitment[number]): Kind {
  return { gpuType, region };
}

export function gpusIn(capacities: readonly Capacity[]): number {
  return capacities.reduce((sum, machine) => sum + machine.gpu_free, 0);
}

/** Takes free GPUs on as few machines as possible. */
async function take(
  tx: Tx,
  contract: ReservationRow,
  { kind, capacities, count }: { kind: Kind; capacities: Capacity[]; count: number },
  supply: Supply,
): Promise<void> {
  const { id: reservedBy, starts_ms: startsMs } = contract;
  const { gpuType, region } = kind;
  const parts = fewestMachines(capacities, count);
  if (parts === undefined) {
    fail(
      'conflict',
      `${count} ${gpuType} in ${region} are needed and ${gpusIn(capacities)} are free. Nothing was changed.`,
    );
  }
  for (const part of parts) {
    const reserved = await supply.reserve(tx, { ...part, gpuType, reservedBy, startsMs, endsMs: lastEnd(contract) });
    if (!reserved) fail('conflict', `A GPU of machine ${part.machineId} was taken meanwhile. Try again.`);
  }
}
