// Slots: GPUs that are set aside for a reservation contract (`machine_gpus.reserved_by`), and where a launch under the contract can go.
import { z } from 'zod';
import { flag, int, text } from '../../base/db/columns.ts';
import { join, type Query, type Sql, type Tx, sql } from '../../base/db/db.ts';
import { freeGbFor } from './free-disk.ts';
import { firstFree, isFree, staysUntil } from './lending.ts';
import type { Candidate, CapacityRequest } from './offerings.ts';

const MachineIdRow = z.object({ machine_id: text });

const SlotsRow = z.object({
  machine_id: text,
  offering_id: text,
  gpu_type: text,
  region: text,
  /** True if the machine is listed and online. */
  listed: flag,
  disk_configurable: flag,
  storage_gb: int,
  vram_gb: int,
  /** What other contracts and launches on demand have left. */
  disk_free_gb: int,
  slots: int,
  in_use: int,
  /** The number of slots on which a launch can start now. */
  free: int,
});
/** The slots of a contract on one machine. */
export type Slots = z.infer<typeof SlotsRow>;

/** The slots of a contract, by machine. */
export function slotsOf(query: Query, reservedBy: string): Promise<Slots[]> {
  const count = (condition: Sql): Sql => sql`cast(sum(case when ${condition} then 1 else 0 end) as bigint)`;
  return query.all(
    SlotsRow,
    sql`select g.machine_id, offerings.id as offering_id, g.gpu_type, region, listed, disk_configurable, storage_gb, offerings.vram_gb,
          ${freeGbFor({ reservedBy, endsMs: null })} as disk_free_gb, count(*) as slots,
          ${count(sql`g.held_by is not null`)} as in_use,
          ${count(sql`${isFree} and listed = 1`)} as free
        from machine_gpus g join offerings on offerings.machine_id = g.machine_id and offerings.gpu_type = g.gpu_type
        where g.reserved_by = ${reservedBy}
        group by g.machine_id, offerings.machine_id, offerings.id, g.gpu_type, region, listed, disk_configurable, storage_gb, offerings.vram_gb
        order by g.machine_id, g.gpu_type`,
  );
}

export type SlotRequest = Omit<CapacityRequest, 'maxPriceUcentsPerHour' | 'endsMs' | 'trustedOnly'>;

/** The machines on which the launch fits under the contract. The contract has paid for the time, so the price is 0 and no cap applies. */
export async function slotCandidates(query: Query, reservedBy: string, request: SlotRequest): Promise<Candidate[]> {
  return (await slotsOf(query, reservedBy))
    .filter((row) => hasCapacity(row, request))
    .map((row) => ({
      id: row.offering_id,
      machine_id: row.machine_id,
      region: row.region,
      gpu_free: row.free,
      price_ucents_per_hour: 0n,
      disk_configurable: row.disk_configurable,
      disk_free_gb: row.disk_free_gb,
    }));
}

/** True if the launch can go there now, or could after other launches have ended. */
export function isFor(row: Slots, { gpuType, region, offeringId }: SlotRequest): boolean {
  const right = row.gpu_type === gpuType && (region === null || row.region === region);
  return right && (offeringId === null || row.offering_id === offeringId);
}

/** Whether the GPUs have enough memory. */
export function hasVram(row: Slots, { minVramGb }: SlotRequest): boolean {
  return row.vram_gb >= minVramGb;
}

/** Whether the host enforces the requested disk size. */
export function honoursDisk(row: Slots, { diskGb }: SlotRequest): boolean {
  return diskGb === null || (row.disk_configurable && row.storage_gb >= diskGb);
}

/** Whether the launch could go there now. */
export function hasCapacity(row: Slots, request: SlotRequest): boolean {
  if (!isFor(row, request) || !hasVram(row, request) || !honoursDisk(row, request)) return false;
  const { gpuCount, diskGb, roomGb = 0, exceptMachineIds } = request;
  const hasDisk = !row.disk_configurable || row.disk_free_gb >= (diskGb ?? roomGb);
  return row.free >= gpuCount && hasDisk && !exceptMachineIds.includes(row.machine_id);
}

const CapacityRow = z.object({ machine_id: text, gpu_free: int });
/** A machine and its number of GPUs that nobody holds or has set aside. */
export type Capacity = z.infer<typeof CapacityRow>;

/** The GPUs of one type in one region. */
export interface Kind {
  gpuType: string;
  region: string;
}

/** GPUs of one kind for a contract. */
export interface KindUntil extends Kind {
  /** The end of the contract; null: it is renewed. Machines that leave the market before are of no use to it. */
  endsMs: number | null;
}

/** Machines with free GPUs that a contract can use. Unused slots of `endedContracts` count as free. */
export function freeCapacity(
  query: Query,
  { gpuType, region, endsMs }: KindUntil,
  endedContracts: readonly string[] = [],
): Promise<Capacity[]> {
  const isEnded = endedContracts.length === 0 ? sql`1 = 0` : sql`g.reserved_by in (${join([...endedContracts])})`;
  return query.all(
    CapacityRow,
    sql`select g.machine_id, count(*) as gpu_free
        from machine_gpus g join offerings o on o.machine_id = g.machine_id and o.gpu_type = g.gpu_type
        where o.listed = 1 and o.tier = 'on_demand' and o.gpu_type = ${gpuType} and o.region = ${region}
          and ${staysUntil(endsMs)} and ${isFree} and (g.reserved_by is null or ${isEnded})
        group by g.machine_id order by g.machine_id`,
  );
}

/** The machines with such GPUs, whoever holds them now, online or not. */
export async function machinesOfKind(query: Query, { gpuType, region }: Kind): Promise<string[]> {
  const rows = await query.all(
    MachineIdRow,
    sql`select machine_id from offerings where tier = 'on_demand' and gpu_type = ${gpuType} and region = ${region}`,
  );
  return rows.map((row) => row.machine_id);
}

const CountRow = z.object({ n: int });

/** The number of GPUs that contracts can use, whoever holds them now. GPUs that are set aside count, even if their host is offline. */
export async function supplyOf(query: Query, { gpuType, region, endsMs }: KindUntil): Promise<number> {
  const row = await query.one(
    CountRow,
    sql`select count(*) as n
        from machine_gpus g join offerings o on o.machine_id = g.machine_id and o.gpu_type = g.gpu_type
        where o.tier = 'on_demand' and o.gpu_type = ${gpuType} and o.region = ${region}
          and (g.reserved_by is not null or (o.listed = 1 and g.usable = 1 and ${staysUntil(endsMs)}))`,
  );
  return row?.n ?? 0;
}

export interface SlotReservation {
  machineId: string;
  gpuType: string;
  count: number;
  /** The id of the reservation contract. Its GPUs may be lent until `startsMs`. */
  reservedBy: string;
  startsMs: number;
  /** The end of the contract; null: it is renewed. */
  endsMs: number | null;
}

/** Sets up to `count` free GPUs aside and returns their number. It sets none aside on a machine that leaves the market before the contract ends. */
export function setAside(tx: Tx, want: SlotReservation): Promise<number> {
  const stays = sql`exists (select 1 from machines where machines.id = ${want.machineId} and ${staysUntil(want.endsMs)})`;
  return tx.run(
    sql`update machine_gpus set reserved_by = ${want.reservedBy}, reserved_from_ms = ${want.startsMs}
        where ${firstFree(want, sql`reserved_by is null and ${stays}`, sql`gpu_index`)}`,
  );
}

const WantRow = z.object({ reserved_by: text, gpu_type: text, region: text, gpus_missing: int });
/** A number of GPUs that a contract needs but does not have yet. */
export type SlotWant = z.infer<typeof WantRow>;
const DatedWantRow = WantRow.extend({ starts_ms: int, ends_ms: int.nullable() });
/** The same with the term of the contract. `ends_ms` is null if it is renewed. */
export type DatedWant = z.infer<typeof DatedWantRow>;

export async function insertWant(tx: Tx, want: DatedWant): Promise<void> {
  await tx.run(
    sql`insert into slot_wants (reserved_by, gpu_type, region, gpus_missing, starts_ms, ends_ms)
        values (${want.reserved_by}, ${want.gpu_type}, ${want.region}, ${want.gpus_missing}, ${want.starts_ms}, ${want.ends_ms})`,
  );
}

export function wantsOf(query: Query, reservedBy: string): Promise<SlotWant[]> {
  return query.all(
    WantRow,
    sql`select reserved_by, gpu_type, region, gpus_missing from slot_wants
        where reserved_by = ${reservedBy} order by gpu_type, region`,
  );
}

/** The contract ends later now. */
export async function extendWants(tx: Tx, reservedBy: string, endsMs: number | null): Promise<void> {
  await tx.run(sql`update slot_wants set ends_ms = ${endsMs} where reserved_by = ${reservedBy}`);
}

export async function dropWants(tx: Tx, reservedBy: string): Promise<void> {
  await tx.run(sql`delete from slot_wants where reserved_by = ${reservedBy}`);
}

/** The needs of contracts that this machine could fill now, in the order in which the contracts start. */
export function wantsFor(query: Query, machineId: string): Promise<DatedWant[]> {
  return query.all(
    DatedWantRow,
    sql`select w.reserved_by, w.gpu_type, w.region, w.gpus_missing, w.starts_ms, w.ends_ms
        from offerings o join slot_wants w on w.gpu_type = o.gpu_type and w.region = o.region
        where o.machine_id = ${machineId} and o.listed = 1 and o.tier = 'on_demand' and o.gpu_free > 0 and ${staysUntil(sql`w.ends_ms`)}
        order by w.starts_ms, w.reserved_by, w.gpu_type`,
  );
}

/** `ends_ms` is the first end of the contracts that need the kind; null if all are renewed. */
const KindRow = DatedWantRow.pick({ gpu_type: true, region: true, ends_ms: true });

/** A page of the machines that could fill a need of a contract now, in the order of ids. The offerings are not read if no contract needs a GPU. */
export async function machinesWanted(query: Query, limit: number): Promise<string[]> {
  const kinds = await query.all(
    KindRow,
    sql`select gpu_type, region, min(ends_ms) as ends_ms from slot_wants group by gpu_type, region`,
  );
  if (kinds.length === 0) return [];
  const isWanted = kinds.map(
    (kind) => sql`(gpu_type = ${kind.gpu_type} and region = ${kind.region} and ${staysUntil(kind.ends_ms)})`,
  );
  const rows = await query.all(
    MachineIdRow,
    sql`select distinct machine_id from offerings
        where listed = 1 and tier = 'on_demand' and gpu_free > 0 and (${join(isWanted, ' or ')}) order by machine_id limit ${limit}`,
  );
  return rows.map((row) => row.machine_id);
}

const MissingRow = WantRow.pick({ gpus_missing: true });

/**
 * Sets free GPUs of a machine aside for contracts that need some; true if a contract got any. Runs in every transaction that can free a
 * GPU, so that no launch takes the GPU first.
 */
export async function serveWants(tx: Tx, machineId: string): Promise<boolean> {
  const wants = await wantsFor(tx, machineId);
  let served = 0;
  for (const { reserved_by: reservedBy, gpu_type: gpuType, region, starts_ms: startsMs, ends_ms: endsMs } of wants) {
    const its = sql`reserved_by = ${reservedBy} and gpu_type = ${gpuType} and region = ${region}`;
    // Other machines may serve the same need, and the contract may end. This locks the need and reads it again.
    const need = await tx.one(
      MissingRow,
      sql`update slot_wants set gpus_missing = gpus_missing where ${its} returning gpus_missing`,
    );
    if (need === undefined) continue;
    const missing = need.gpus_missing;
    const got = await setAside(tx, { machineId, gpuType, count: missing, reservedBy, startsMs, endsMs });
    if (got > 0) {
      if (got === missing) await tx.run(sql`delete from slot_wants where ${its}`);
      else await tx.run(sql`update slot_wants set gpus_missing = gpus_missing - ${got} where ${its}`);
    }
    served += got;
  }
  return served > 0;
}

/** The machines with slots of the contract. */
export async function machinesWithSlots(query: Query, reservedBy: string): Promise<string[]> {
  const rows = await query.all(
    MachineIdRow,
    sql`select distinct machine_id from machine_gpus where reserved_by = ${reservedBy}`,
  );
  return rows.map((row) => row.machine_id);
}

/** Turns every slot of the contract into an ordinary GPU and returns the affected machines. A holder of such a GPU keeps it. */
export function giveUpAll(tx: Tx, reservedBy: string): Promise<string[]> {
  return giveUp(tx, sql`reserved_by = ${reservedBy}`);
}

/** Turns the slots of the contract that nobody holds, and on which nothing can be launched, into ordinary GPUs. Returns the affected machines. */
export function giveUpStranded(tx: Tx, reservedBy: string): Promise<string[]> {
  const onOffer = sql`select 1 from offerings o
    where o.machine_id = machine_gpus.machine_id and o.gpu_type = machine_gpus.gpu_type and o.listed = 1`;
  return giveUp(tx, sql`reserved_by = ${reservedBy} and held_by is null and (usable = 0 or not exists (${onOffer}))`);
}

async function giveUp(tx: Tx, which: Sql): Promise<string[]> {
  const rows = await tx.all(
    MachineIdRow,
    sql`update machine_gpus set reserved_by = null, reserved_from_ms = null where ${which} returning machine_id`,
  );
  return [...new Set(rows.map((row) => row.machine_id))];
}
