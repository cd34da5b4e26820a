// Finding the GPUs of a contract: all of them or none, in the caller's transaction.
import { fail } from '../../../shared/errors.ts';
import type { Tx } from '../../base/db/db.ts';
import { fewestMachines } from '../../fleet/placement/placement.ts';
import { freeRoom, slotsOf } from '../../fleet/supply/slots.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import type { ReservationRow } from './store.ts';

/**
 * Sets aside what the contract commits and does not have yet. Each entry goes to as few machines as possible.
 * @throws ServiceError `conflict` with how many there are
 */
export async function allocate(tx: Tx, contract: ReservationRow, supply: Supply): Promise<void> {
  const slots = await slotsOf(tx, contract.id);
  for (const { gpu_type: gpuType, gpu_count: committed, region } of contract.commitment) {
    const has = slots
      .filter((slot) => slot.gpu_type === gpuType && slot.region === region)
      .reduce((sum, slot) => sum + slot.slots, 0);
    const missing = committed - has;
    const rooms = await freeRoom(tx, { gpuType, region });
    const parts = fewestMachines(rooms, missing);
    if (parts === undefined) {
      const free = rooms.reduce((sum, room) => sum + room.gpu_free, 0);
      fail('conflict', `${missing} ${gpuType} in ${region} are needed and ${free} are free. Nothing was changed.`);
    }
    for (const part of parts) {
      const reserved = await supply.reserve(tx, { ...part, gpuType, reservedBy: contract.id });
      if (!reserved) fail('conflict', `A GPU of machine ${part.machineId} was taken meanwhile. Try again.`);
    }
  }
}
