// Why offerings do not fit a launch, counted on demand: the offerings that each condition leaves, and those that another request would get.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Sql, sql } from '../../base/db/db.ts';
import { diskWithin } from './free-disk.ts';
import { gpusWithin } from './lending.ts';
import { type CapacityRequest, conditions, diskCondition, priceCondition, trustCondition } from './offerings.ts';

const NarrowingRow = z.object({
  listed: int,
  of_type: int,
  big_enough: int,
  with_vram: int,
  free: int,
  with_disk: int,
  trusted: int,
  priced: int,
  affordable: int,
});

/** The number of offerings that are left after each condition. `priced`: within the price cap, including those that were tried before. */
export interface Narrowing {
  listed: number;
  ofType: number;
  bigEnough: number;
  withVram: number;
  free: number;
  withDisk: number;
  trusted: number;
  priced: number;
  affordable: number;
}

export async function narrowing(query: Query, request: CapacityRequest): Promise<Narrowing> {
  const { maxPriceUcentsPerHour: cap } = request;
  const diskFreeGb = diskWithin(request.endsMs);
  const ofType = sql`gpu_type = ${request.gpuType}`;
  const bigEnough = sql`${ofType} and gpu_total >= ${request.gpuCount}`;
  const withVram = sql`${bigEnough} and vram_gb >= ${request.minVramGb}`;
  const free = sql`${withVram} and ${isFree(request)}`;
  const withDisk = sql`${free} and ${diskCondition(request, diskFreeGb)}`;
  const trusted = sql`${withDisk} and ${trustCondition(request)}`;
  const priced = cap === null ? trusted : sql`${trusted} and ${priceCondition(request, cap)}`;
  const affordable = sql`${free} and ${conditions(request, diskFreeGb)}`;
  const count = (condition: Sql): Sql =>
    sql`cast(coalesce(sum(case when ${condition} then 1 else 0 end), 0) as bigint)`;
  const row = await query.one(
    NarrowingRow,
    sql`select count(*) as listed, ${count(ofType)} as of_type, ${count(bigEnough)} as big_enough, ${count(withVram)} as with_vram,
          ${count(free)} as free, ${count(withDisk)} as with_disk, ${count(trusted)} as trusted, ${count(priced)} as priced,
          ${count(affordable)} as affordable
        from offerings where listed = 1 and tier = 'on_demand'`,
  );
  return {
    listed: row?.listed ?? 0,
    ofType: row?.of_type ?? 0,
    bigEnough: row?.big_enough ?? 0,
    withVram: row?.with_vram ?? 0,
    free: row?.free ?? 0,
    withDisk: row?.with_disk ?? 0,
    trusted: row?.trusted ?? 0,
    priced: row?.priced ?? 0,
    affordable: row?.affordable ?? 0,
  };
}

const TypeRow = z.object({ gpu_type: text, offerings: int, ucents_per_hour: ucents });
const TYPES_MAX = 20;

/** The offerings that could take the launch now if it took any GPU type, by type, and the lowest price of one GPU. Most offerings first. */
export function fittingByType(
  query: Query,
  request: Omit<CapacityRequest, 'gpuType'>,
): Promise<z.infer<typeof TypeRow>[]> {
  return query.all(
    TypeRow,
    sql`select gpu_type, count(*) as offerings, min(price_ucents_per_hour) as ucents_per_hour from offerings
        where listed = 1 and tier = 'on_demand' and ${isFree(request)} and ${conditions(request, diskWithin(request.endsMs))}
        group by gpu_type order by offerings desc, gpu_type limit ${TYPES_MAX}`,
  );
}

function isFree({ endsMs, gpuCount }: Pick<CapacityRequest, 'endsMs' | 'gpuCount'>): Sql {
  return sql`${gpusWithin(endsMs)} >= ${gpuCount}`;
}
