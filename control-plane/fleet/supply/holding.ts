// Holds GPUs of a machine for a launch. All statements are sent together, so that a launch waits for one answer.
import { z } from 'zod';
import { flag, int, text, ucents } from '../../base/db/columns.ts';
import { type Sql, type Tx, sql } from '../../base/db/db.ts';
import { freeGbFor, withFreeGb } from './free-disk.ts';
import { firstFree, type GpuWant, isFree, isLendable, staysUntil } from './lending.ts';
import * as store from './store.ts';

export interface Want extends GpuWant {
  /** One machine, which is waited for, or several, of which any will do. */
  machineIds: readonly string[];
  /** The disk that goes with the GPUs; 0 if the host does not limit disks. */
  diskGb: number;
  /** What a room above requires of the machine, as a condition on its row of `machines`. */
  onlyIf?: Sql;
}

export interface Held {
  machineId: string;
  gpuUuids: string[];
  /**
   * What the launch gets there. Undefined if the offering is not on the market any more, or not until the launch ends, or if the machine is not as
   * required.
   */
  offer: Offer | undefined;
}

/**
 * Holds GPUs of one of these machines, and reads its offering. It waits until no other transaction holds a single machine, and takes the first of
 * several that none holds. Undefined if there are too few GPUs, or if others hold all machines; then it holds nothing.
 */
export async function holdOffer(tx: Tx, want: Want): Promise<Held | undefined> {
  const [first, ...others] = want.machineIds;
  if (first === undefined) return undefined;
  const isSingle = others.length === 0;
  const chosen = machineOf(want.heldBy);
  if (isSingle) await tx.lock('machine', first);
  const [taken, offer] = await Promise.all([
    isSingle ? takeGpus(tx, first, want) : takeGpusOfAny(tx, want),
    // The offering is read before the disk of this launch is subtracted.
    countAndRead(tx, chosen, want),
    want.diskGb === 0 ? undefined : Promise.all([setHeldDisk(tx, want), countFree(tx, chosen)]),
  ]);
  const machineId = taken[0]?.machine_id;
  if (machineId === undefined) return undefined;
  if (taken.length === want.count) return { machineId, gpuUuids: taken.map((gpu) => gpu.gpu_uuid), offer };
  await Promise.all([store.freeGpus(tx, want.heldBy), countFree(tx, sql`${machineId}`)]);
  return undefined;
}

/** The id of the machine with the GPUs that `heldBy` holds, as an expression. So statements about it can be sent before it is known. */
function machineOf(heldBy: string): Sql {
  return sql`(select machine_id from machine_gpus where held_by = ${heldBy} limit 1)`;
}

const OfferRow = z.object({
  id: text,
  machine_id: text,
  supplier_id: text,
  region: text,
  price_ucents_per_hour: ucents,
  vram_gb: int,
  cpu_cores: int,
  ram_gb: int,
  host_gpu_count: int,
  disk_configurable: flag,
  disk_free_gb: int,
  disk_price_ucents_per_gb_hour: ucents,
  /** The time at which the machine leaves the market; null if its supplier has set none. */
  rentable_until_ms: int.nullable(),
});
/** The fields of an offering that decide what a launch gets there. */
export type Offer = z.infer<typeof OfferRow>;

const CountedRow = OfferRow.extend({ supplier_id: text.nullable() });

/**
 * Updates the free GPUs and the free disk of a machine whose GPUs the launch holds, and returns what the launch gets there. It may use GPUs that are
 * set aside for `reservedBy`, or borrow some until `endsMs`.
 *
 * The update returns all offerings of the machine. The one that the launch may have is known by its supplier: SQLite returns no column of another
 * table, but the result of a select.
 */
async function countAndRead(tx: Tx, machineId: Sql, want: Want): Promise<Offer | undefined> {
  // An ordinary launch takes no GPU that is set aside, so the free disk is as it was.
  const isOrdinary = want.reservedBy === null && want.endsMs === null;
  const [counted, diskFreeGb] = isOrdinary
    ? [countingGpus(machineId), sql`disk_free_gb`]
    : [counting(machineId), sql`${freeGbFor(want)} as disk_free_gb`];
  // A contract has checked that when it took its slots.
  const stays = want.reservedBy === null ? staysUntil(want.endsMs) : sql`1 = 1`;
  const rows = await tx.all(
    CountedRow,
    sql`${counted} returning id, machine_id, offerings.region, offerings.price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, host_gpu_count,
          disk_configurable, ${diskFreeGb},
          disk_price_ucents_per_gb_hour, offerings.rentable_until_ms, (
            select supplier_id from machines where machines.id = offerings.machine_id and offerings.gpu_type = ${want.gpuType}
              and offerings.listed = 1 and offerings.tier = 'on_demand' and ${stays} and ${want.onlyIf ?? sql`1 = 1`}) as supplier_id`,
  );
  return rows.find((row): row is Offer => row.supplier_id !== null);
}

const TakenRow = z.object({ machine_id: text, gpu_uuid: text });
type Taken = z.infer<typeof TakenRow>;

/**
 * Holds up to `count` free GPUs of a type for the launch and returns those that it got. It takes lent GPUs first, so that freely available
 * ones stay on offer, beginning with those whose contract begins first.
 */
function takeGpus(tx: Tx, machineId: string, want: GpuWant): Promise<Taken[]> {
  return tx.all(TakenRow, taking(want, sql`${machineId}`));
}

/** The same on the first of these machines that has enough free GPUs and that no other transaction holds. It also locks that machine. */
function takeGpusOfAny(tx: Tx, want: Want): Promise<Taken[]> {
  const fits = sql`gpu_type = ${want.gpuType} and ${isFree} and ${isFor(want)}`;
  const hasEnough = sql`(select count(*) from machine_gpus where machine_id = machines.id and ${fits}) >= ${want.count}`;
  const chosen = tx.firstUnlocked('machine', want.machineIds, hasEnough);
  return tx.all(TakenRow, sql`with chosen as materialized (${chosen}) ${taking(want, sql`(select id from chosen)`)}`);
}

function taking(want: GpuWant, machineId: Sql): Sql {
  const lentFirst = sql`case when reserved_by is null then 1 else 0 end, reserved_from_ms, gpu_index`;
  const first = firstFree({ ...want, machineId }, isFor(want), lentFirst);
  return sql`update machine_gpus set held_by = ${want.heldBy} where ${first} returning machine_id, gpu_uuid`;
}

/** The condition for a free GPU that the launch may take. */
function isFor({ reservedBy, endsMs }: GpuWant): Sql {
  return reservedBy === null ? sql`(reserved_by is null or ${isLendable(endsMs)})` : sql`reserved_by = ${reservedBy}`;
}

/** The disk of a launch is stored with one of its GPUs. */
async function setHeldDisk(tx: Tx, { heldBy, diskGb }: Want): Promise<void> {
  await tx.run(
    sql`update machine_gpus set held_disk_gb = ${diskGb} where held_by = ${heldBy} and gpu_uuid = (
          select min(gpu_uuid) from machine_gpus where held_by = ${heldBy})`,
  );
}

async function countFree(tx: Tx, machineId: Sql): Promise<void> {
  await tx.run(counting(machineId));
}

/**
 * Updates the free GPUs and the free disk of the machine's offerings. Their other columns do not depend on who holds the GPUs
 * (`refreshOfferings`).
 */
function counting(machineId: Sql): Sql {
  const free = sql`count(case when ${IS_ON_OFFER} then 1 end)`;
  return sql`update offerings set (gpu_free, disk_free_gb) = (${withFreeGb(free)}) where machine_id = ${machineId}`;
}

/** Updates only the free GPUs, which costs less. */
function countingGpus(machineId: Sql): Sql {
  return sql`update offerings set gpu_free = (
      select count(*) from machine_gpus d where d.machine_id = offerings.machine_id and ${IS_ON_OFFER}) where machine_id = ${machineId}`;
}

const IS_ON_OFFER = sql`d.gpu_type = offerings.gpu_type and d.usable = 1 and d.held_by is null and d.reserved_by is null`;
