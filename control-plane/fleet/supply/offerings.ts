// Offerings: kept up to date with their machine, and filtered for placement.
import { z } from 'zod';
import type { Requirements } from '../../../shared/api/requirements.ts';
import { CANDIDATES_MAX, DISK_GB_INCLUDED, DISK_GB_MIN, GPUS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import { countCards } from '../../../shared/protocol/inventory.ts';
import { flag, int, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Sql, type Tx, join, raw, sql } from '../../base/db/db.ts';
import { cudaOfDriver } from './cuda.ts';
import { diskWithin, freeGbOf } from './free-disk.ts';
import { gpusWithin, lenders, staysUntil } from './lending.ts';
import { requirementsOf } from './requirements.ts';
import * as store from './store.ts';
import { obstacleOf } from './checks.ts';

export const OfferingRow = z.object({
  id: text,
  machine_id: text,
  gpu_type: text,
  region: text,
  tier: z.enum(['on_demand', 'spot']),
  /** The price of one GPU. */
  price_ucents_per_hour: ucents,
  vram_gb: int,
  cpu_cores: int,
  ram_gb: int,
  storage_gb: int,
  /** All GPUs of the host, of each type: they share its processors and memory. */
  host_gpu_count: int,
  /** Empty if it is unknown. */
  driver_version: text,
  /** See `cudaOfDriver`. */
  cuda_version: int,
  /** True if a launch can choose its disk size, and the host enforces it. */
  disk_configurable: flag,
  disk_free_gb: int,
  /** The price of disk space beyond the included one. */
  disk_price_ucents_per_gb_hour: ucents,
  gpu_total: int,
  gpu_free: int,
  /** The time at which the machine leaves the market; null if its supplier has set none. */
  rentable_until_ms: int.nullable(),
  created_ms: int,
});
export type Offering = z.infer<typeof OfferingRow>;

const COLUMNS = sql`id, machine_id, gpu_type, region, tier, price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, storage_gb,
  host_gpu_count, driver_version, cuda_version, disk_configurable, disk_free_gb, disk_price_ucents_per_gb_hour, gpu_total, gpu_free, rentable_until_ms, created_ms`;
const GIB = 1024 ** 3;

const CandidateRow = OfferingRow.pick({
  id: true,
  machine_id: true,
  region: true,
  gpu_free: true,
  price_ucents_per_hour: true,
  disk_configurable: true,
  disk_free_gb: true,
});
/** The fields of an offering that placement needs. */
export type Candidate = z.infer<typeof CandidateRow>;
/** An index contains all of them, so no row is read. */
const CANDIDATE = sql`id, machine_id, region, gpu_free, price_ucents_per_hour, disk_configurable, disk_free_gb`;
const CANDIDATES = raw(String(CANDIDATES_MAX));

/** What a launch needs from an offering. */
export interface CapacityRequest {
  gpuType: string;
  gpuCount: number;
  offeringId: string | null;
  /** Only this region; null: any. */
  region: string | null;
  /** Limit for the whole instance, including its disk. */
  maxPriceUcentsPerHour: bigint | null;
  /** Only hosts that enforce a disk of this size; null: any host. */
  diskGb: number | null;
  /** Hosts that limit disks must have this much free; left out: any. Unlike `diskGb`, it excludes no host that does not limit them. */
  roomGb?: number;
  /** The minimum of each GPU; 0: any. */
  minVramGb: number;
  /** The latest end of the launch; null: it does not end by itself. */
  endsMs: number | null;
  /** Machines on which this launch has failed before. */
  exceptMachineIds: string[];
  /** Only machines that the operator trusts. */
  trustedOnly: boolean;
  /** Conditions of the request on the host; left out: none. */
  requirements?: Requirements;
}

/**
 * At most CANDIDATES_MAX matching offerings: the cheapest first, and among equals those with the fewest free GPUs. It reads one index range per
 * number of free GPUs (`rangesOf`), so machines with too few free GPUs cost nothing, however large the fleet is. A launch that ends in time may
 * borrow GPUs of contracts; then `gpu_free` includes them.
 *
 * Our own numbers are written into the text of the statement. With a limit as a parameter, PostgreSQL would plan the many ranges again for each
 * launch, which takes longer than reading them.
 */
export async function candidates(query: Query, request: CapacityRequest): Promise<Candidate[]> {
  const fits = conditions(request, diskWithin(null));
  const ranges = rangesOf(request).map((range, i) => {
    const name = raw(`range_${i}`);
    return sql`select * from (select ${CANDIDATE} from offerings where listed = 1 and gpu_type = ${request.gpuType} and tier = 'on_demand'
      and ${raw(range)} and ${fits} order by price_ucents_per_hour, gpu_free, id limit ${CANDIDATES}) as ${name}`;
  });
  const free = await query.all(
    CandidateRow,
    sql`${join(ranges, ' union all ')} order by price_ucents_per_hour, gpu_free, id limit ${CANDIDATES}`,
  );
  if (request.endsMs === null) return free;
  const lent = await lentCandidates(query, request, request.endsMs);
  return [...lent, ...free.filter(({ id }) => !lent.some((offering) => offering.id === id))];
}

/** Few machines have more GPUs than this. All with more of them free are one range, because each range costs the same, also if it is empty. */
const GPUS_MOSTLY_MAX = 8;

/**
 * Conditions on the number of free GPUs. Together they are the machines with enough of them. All machines that have a free GPU are in the index
 * `offerings_with_free` in the order of a launch, so they are one range.
 */
function rangesOf({ gpuCount, region }: CapacityRequest): string[] {
  if (gpuCount === 1 && region === null) return ['gpu_free > 0'];
  const last = gpuCount > GPUS_MOSTLY_MAX ? GPUS_PER_MACHINE_MAX : GPUS_MOSTLY_MAX;
  const exact = Array.from({ length: last - gpuCount + 1 }, (_, i) => `gpu_free = ${gpuCount + i}`);
  return last < GPUS_PER_MACHINE_MAX ? [...exact, `gpu_free > ${last}`] : exact;
}

function lentCandidates(query: Query, request: CapacityRequest, endsMs: number): Promise<Candidate[]> {
  const within = gpusWithin(endsMs);
  const diskFreeGb = diskWithin(endsMs);
  return query.all(
    CandidateRow,
    sql`select id, machine_id, region, ${within} as gpu_free, price_ucents_per_hour, disk_configurable, ${diskFreeGb} as disk_free_gb from offerings
        where listed = 1 and gpu_type = ${request.gpuType} and tier = 'on_demand'
          and machine_id in (${lenders(request.gpuType, endsMs)}) and ${within} >= ${request.gpuCount} and ${conditions(request, diskFreeGb)}
        order by price_ucents_per_hour, id limit ${CANDIDATES_MAX}`,
  );
}

export function findListed(query: Query, id: string): Promise<Offering | undefined> {
  return query.one(
    OfferingRow,
    sql`select ${COLUMNS} from offerings where id = ${id} and listed = 1 and tier = 'on_demand'`,
  );
}

const CountRow = z.object({ n: int });

interface Offered {
  gpuType: string;
  diskGb: number | null;
  gpuCount?: number;
  trustedOnly?: boolean;
}

/** Whether any listed offering of the type could ever take a launch, with this disk if one is given. Busy offerings count. */
export async function isOffered(
  query: Query,
  { gpuType, diskGb, gpuCount = 1, trustedOnly = false }: Offered,
): Promise<boolean> {
  const row = await query.one(
    CountRow,
    sql`select count(*) as n from (
          select id from offerings where listed = 1 and tier = 'on_demand' and gpu_type = ${gpuType} and gpu_total >= ${gpuCount} and ${couldHold(diskGb)}
            and ${trustCondition({ trustedOnly })} limit 1) as found`,
  );
  return (row?.n ?? 0) > 0;
}

const RegionRow = OfferingRow.pick({ region: true });

/** The region of the cheapest offering of the type, or of the given offering. Busy offerings count. */
export async function offeredRegion(
  query: Query,
  { gpuType, offeringId }: { gpuType: string; offeringId: string | null },
): Promise<string | undefined> {
  const which = offeringId === null ? sql`gpu_type = ${gpuType}` : sql`id = ${offeringId}`;
  const row = await query.one(
    RegionRow,
    sql`select region from offerings where listed = 1 and tier = 'on_demand' and ${which}
        order by price_ucents_per_hour, id limit 1`,
  );
  return row?.region;
}

const VramRow = z.object({ vram_gb: int.nullable() });

/** The VRAM of the largest GPU of the type on offer, or of the given offering; 0 if there is none. Busy offerings count. */
export async function largestVramGb(
  query: Query,
  { gpuType, offeringId }: { gpuType: string; offeringId: string | null },
): Promise<number> {
  const which = offeringId === null ? sql`gpu_type = ${gpuType}` : sql`id = ${offeringId}`;
  const row = await query.one(
    VramRow,
    sql`select max(vram_gb) as vram_gb from offerings where listed = 1 and tier = 'on_demand' and ${which}`,
  );
  return row?.vram_gb ?? 0;
}

const TypeRow = z.object({ gpu_type: text });

/**
 * The type of the cheapest offering that could take the launch, of the types that the request allows. Offerings that are free now and meet its
 * requirements come first, then those in the preferred region. Undefined if no listed host is large enough. Reads every listed offering.
 */
export async function cheapestType(
  query: Query,
  request: Omit<CapacityRequest, 'gpuType'>,
): Promise<string | undefined> {
  const { gpuCount, minVramGb, offeringId, region, endsMs, requirements: { gpu_types: types } = {} } = request;
  const pinned = offeringId === null ? sql`1 = 1` : sql`id = ${offeringId}`;
  const chosen = types === undefined ? sql`1 = 1` : sql`gpu_type in (${join(types)})`;
  const diskFreeGb = diskWithin(endsMs);
  const isFree = sql`${gpusWithin(endsMs)} >= ${gpuCount} and ${conditions({ ...request, region: null }, diskFreeGb)}`;
  const isNear = region === null ? sql`1 = 1` : sql`region = ${region}`;
  // A type that is busy now is better than one that can never take the launch: the refusal then names what the launch may wait for.
  const couldBe = couldTake(request);
  const first = (condition: Sql): Sql => sql`case when ${condition} then 0 else 1 end`;
  const row = await query.one(
    TypeRow,
    sql`select gpu_type from offerings
        where listed = 1 and tier = 'on_demand' and gpu_total >= ${gpuCount} and vram_gb >= ${minVramGb} and ${pinned} and ${chosen}
        order by ${first(isFree)}, ${first(couldBe)}, ${first(isNear)}, ${first(diskCondition(request, diskFreeGb))}, price_ucents_per_hour, id limit 1`,
  );
  return row?.gpu_type;
}

/** Whether an offering could take the launch if nobody else had its GPUs and its disk. */
function couldTake(request: Pick<CapacityRequest, 'gpuCount' | 'diskGb' | 'requirements'>): Sql {
  return join([couldHold(request.diskGb), ...requirementsOf(request).map(({ condition }) => condition)], ' and ');
}

/** Whether the host could enforce a disk of this size if nobody else had some of its storage. */
function couldHold(diskGb: number | null): Sql {
  return diskGb === null ? sql`1 = 1` : sql`disk_configurable = 1 and storage_gb >= ${diskGb}`;
}

/** The hourly price of the disk space beyond the included one. */
export function extraDiskUcentsPerHour(
  offering: Pick<Offering, 'disk_price_ucents_per_gb_hour'>,
  diskGb: number | null,
): bigint {
  return BigInt(extraGb(diskGb)) * offering.disk_price_ucents_per_gb_hour;
}

/** Updates the offerings of a machine. Called in every transaction that changes the machine or its GPUs. */
export async function refreshOfferings(
  tx: Tx,
  machineId: string,
  now: { newId: () => string; nowMs: number; diskPriceUcentsPerGbHour: bigint },
): Promise<void> {
  const machine = await store.findMachine(tx, machineId);
  if (machine === undefined) return;
  const { inventory } = machine;
  const listed = obstacleOf(machine) === undefined;
  const storageGb = Math.floor((inventory?.storage_bytes ?? 0) / GIB);
  const diskConfigurable = inventory?.disk_enforced === true && storageGb >= DISK_GB_MIN;
  const [gpus, diskFreeGb] = await Promise.all([store.gpusOf(tx, machineId), freeGbOf(tx, machineId, storageGb)]);
  await tx.run(sql`update offerings set listed = 0, gpu_free = 0, gpu_total = 0 where machine_id = ${machineId}`);
  for (const [gpuType, ofType] of Map.groupBy(gpus, (gpu) => gpu.gpu_type)) {
    const usable = ofType.filter((gpu) => gpu.usable);
    const free = usable.filter((gpu) => gpu.held_by === null && gpu.reserved_by === null).length;
    const vramGb = Math.min(...(usable.length > 0 ? usable : ofType).map((gpu) => gpu.vram_gb));
    const driver = inventory?.gpus[0]?.driver_version ?? '';
    await tx.run(
      sql`insert into offerings (${COLUMNS}, listed)
          values (${now.newId()}, ${machineId}, ${gpuType}, ${machine.region}, ${machine.tier}, ${machine.price_ucents_per_hour}, ${vramGb},
            ${inventory?.cpu_cores ?? 0}, ${Math.floor((inventory?.ram_bytes ?? 0) / GIB)}, ${storageGb},
            ${inventory === null ? 0 : countCards(inventory)}, ${driver}, ${cudaOfDriver(driver)}, ${diskConfigurable}, ${diskFreeGb}, ${now.diskPriceUcentsPerGbHour}, ${usable.length}, ${free}, ${machine.rentable_until_ms}, ${now.nowMs}, ${listed && usable.length > 0})
          on conflict (machine_id, gpu_type) do update set region = excluded.region, tier = excluded.tier,
            price_ucents_per_hour = excluded.price_ucents_per_hour, vram_gb = excluded.vram_gb, cpu_cores = excluded.cpu_cores,
            ram_gb = excluded.ram_gb, storage_gb = excluded.storage_gb, host_gpu_count = excluded.host_gpu_count, driver_version = excluded.driver_version,
            cuda_version = excluded.cuda_version, disk_configurable = excluded.disk_configurable,
            disk_free_gb = excluded.disk_free_gb, disk_price_ucents_per_gb_hour = excluded.disk_price_ucents_per_gb_hour, gpu_total = excluded.gpu_total, gpu_free = excluded.gpu_free,
            rentable_until_ms = excluded.rentable_until_ms, listed = excluded.listed`,
    );
  }
  await forgetOldTypes(tx, machineId);
}

/** Puts the offerings of a machine on the market or takes them off. Everything else about them is unchanged. */
export async function setListed(tx: Tx, machineId: string, listed: boolean): Promise<void> {
  await tx.run(
    sql`update offerings set listed = ${listed} where machine_id = ${machineId} and gpu_total > 0 and listed <> ${listed}`,
  );
}

/** Number of machines in one statement, because statements have a limit of parameters. */
const MACHINES = 500;

/** The same for many machines. */
export async function setListedAll(tx: Tx, machineIds: readonly string[], listed: boolean): Promise<void> {
  for (let from = 0; from < machineIds.length; from += MACHINES) {
    const piece = machineIds.slice(from, from + MACHINES);
    await tx.run(
      sql`update offerings set listed = ${listed} where machine_id in (${join(piece)}) and gpu_total > 0 and listed <> ${listed}`,
    );
  }
}

/** An offering keeps its id while its GPUs are absent. But old types are deleted, because a host could claim many types over time. */
async function forgetOldTypes(tx: Tx, machineId: string): Promise<void> {
  const away = sql`machine_id = ${machineId} and gpu_type not in (select gpu_type from machine_gpus where machine_id = ${machineId})`;
  await tx.run(
    sql`delete from offerings where ${away} and id not in (
          select id from offerings where ${away} order by created_ms desc, id limit ${GPUS_PER_MACHINE_MAX})`,
  );
}

/** `diskFreeGb`: the expression for the free disk of an offering (`diskWithin`). */
export function conditions(request: Omit<CapacityRequest, 'gpuType'>, diskFreeGb: Sql): Sql {
  const parts = [staysUntil(request.endsMs), diskCondition(request, diskFreeGb), trustCondition(request)];
  if (request.minVramGb > 0) parts.push(sql`vram_gb >= ${request.minVramGb}`);
  if (request.offeringId !== null) parts.push(sql`id = ${request.offeringId}`);
  if (request.region !== null) parts.push(sql`region = ${request.region}`);
  if (request.maxPriceUcentsPerHour !== null) parts.push(priceCondition(request, request.maxPriceUcentsPerHour));
  if (request.exceptMachineIds.length > 0) parts.push(sql`machine_id not in (${join(request.exceptMachineIds)})`);
  parts.push(...requirementsOf(request).map(({ condition }) => condition));
  return join(parts, ' and ');
}

export function diskCondition({ diskGb, roomGb }: Pick<CapacityRequest, 'diskGb' | 'roomGb'>, diskFreeGb: Sql): Sql {
  const size = diskGb === null ? sql`1 = 1` : sql`disk_configurable = 1 and ${diskFreeGb} >= ${diskGb}`;
  return roomGb === undefined ? size : sql`${size} and (disk_configurable = 0 or ${diskFreeGb} >= ${roomGb})`;
}

export function trustCondition({ trustedOnly }: Pick<CapacityRequest, 'trustedOnly'>): Sql {
  return trustedOnly ? sql`machine_id in (select id from machines where trusted = 1)` : sql`1 = 1`;
}

/** The condition that the whole instance costs at most `cap`. Without extra disk, it compares the price of one GPU, which an index contains. */
export function priceCondition({ gpuCount, diskGb }: Pick<CapacityRequest, 'gpuCount' | 'diskGb'>, cap: bigint): Sql {
  const extra = extraGb(diskGb);
  if (extra === 0) return sql`price_ucents_per_hour <= ${cap / BigInt(gpuCount)}`;
  return sql`price_ucents_per_hour * ${gpuCount} + disk_price_ucents_per_gb_hour * ${extra} <= ${cap}`;
}

function extraGb(diskGb: number | null): number {
  return Math.max(0, (diskGb ?? DISK_GB_INCLUDED) - DISK_GB_INCLUDED);
}
