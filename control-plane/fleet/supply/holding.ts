// Holds GPUs of a machine for a launch. All statements are sent together, so that a launch waits for one answer.
import { z } from 'zod';
import { flag, int, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import { freeGbAmongGpus, freeGbFor } from './free-disk.ts';
import type { GpuWant } from './lending.ts';
import * as store from './store.ts';

export interface Want extends GpuWant {
  /** The disk that goes with the GPUs; 0 if the host does not limit disks. */
  diskGb: number;
}

/** Holds GPUs and returns their UUIDs. If there are too few GPUs, it holds nothing and returns undefined. */
export async function holdGpus(tx: Tx, want: Want): Promise<string[] | undefined> {
  await tx.lock('machine', want.machineId);
  const [uuids] = await Promise.all([
    store.takeGpus(tx, want),
    want.diskGb === 0 ? undefined : setHeldDisk(tx, want),
    countFree(tx, want.machineId),
  ]);
  if (uuids.length === want.count) return uuids;
  if (uuids.length > 0) await Promise.all([store.freeGpus(tx, want.heldBy), countFree(tx, want.machineId)]);
  return undefined;
}

const OfferRow = z.object({
  id: text,
  machine_id: text,
  supplier_id: text,
  region: text,
  price_ucents_per_hour: ucents,
  disk_configurable: flag,
  disk_free_gb: int,
  disk_price_ucents_per_gb_hour: ucents,
});
/** The fields of an offering that decide what a launch gets there. */
export type Offer = z.infer<typeof OfferRow>;

/**
 * What the launch would get. Its GPUs are set aside for the contract `reservedBy`, or it ends at `endsMs` and may borrow such GPUs. Undefined if
 * the offering is not on the market any more.
 */
export function findOffer(
  query: Query,
  offeringId: string,
  launch: Pick<GpuWant, 'reservedBy' | 'endsMs'>,
): Promise<Offer | undefined> {
  const isOrdinary = launch.reservedBy === null && launch.endsMs === null;
  const diskFreeGb = isOrdinary ? sql`offerings.disk_free_gb` : freeGbFor(launch);
  return query.one(
    OfferRow,
    sql`select offerings.id, machine_id, supplier_id, offerings.region, offerings.price_ucents_per_hour, disk_configurable,
          ${diskFreeGb} as disk_free_gb, disk_price_ucents_per_gb_hour
        from offerings join machines on machines.id = offerings.machine_id
        where offerings.id = ${offeringId} and listed = 1 and offerings.tier = 'on_demand'`,
  );
}

/** The disk of a launch is stored with one of its GPUs. */
async function setHeldDisk(tx: Tx, { machineId, heldBy, diskGb }: Want): Promise<void> {
  await tx.run(
    sql`update machine_gpus set held_disk_gb = ${diskGb} where machine_id = ${machineId} and gpu_uuid = (
          select min(gpu_uuid) from machine_gpus where machine_id = ${machineId} and held_by = ${heldBy})`,
  );
}

/**
 * Updates the free GPUs and the free disk of the machine's offerings. Their other columns do not depend on who holds the GPUs
 * (`refreshOfferings`). Both are counted in one select, because each launch does this.
 */
async function countFree(tx: Tx, machineId: string): Promise<void> {
  const isFree = sql`d.gpu_type = offerings.gpu_type and d.usable = 1 and d.held_by is null and d.reserved_by is null`;
  await tx.run(
    sql`update offerings set (gpu_free, disk_free_gb) = (
          select count(case when ${isFree} then 1 end), ${freeGbAmongGpus()} from machine_gpus d where d.machine_id = offerings.machine_id)
        where machine_id = ${machineId}`,
  );
}
