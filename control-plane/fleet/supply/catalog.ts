// What the catalogue reads: a page of offerings, filtered and sorted, and a page of GPU types.
import { z } from 'zod';
import type { PricingFilters } from '../../../shared/api/pricing.ts';
import { nearestUcents } from '../../../shared/money.ts';
import { flag, int, text } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql } from '../../base/db/db.ts';
import { pageBy, type PageStart } from '../../base/http/cursors.ts';
import { diskWithin } from './free-disk.ts';
import { staysUntil } from './lending.ts';
import { diskCondition, OfferingRow, priceCondition } from './offerings.ts';
import { requirementsOf } from './requirements.ts';

const ListedRow = OfferingRow.pick({
  id: true,
  gpu_type: true,
  region: true,
  gpu_free: true,
  price_ucents_per_hour: true,
  vram_gb: true,
  cpu_cores: true,
  ram_gb: true,
  storage_gb: true,
  host_gpu_count: true,
  driver_version: true,
  cuda_version: true,
  disk_configurable: true,
  disk_price_ucents_per_gb_hour: true,
  rentable_until_ms: true,
  created_ms: true,
}).extend({
  /** The share in hundredths of a percent; null while too little is known (`keepUptimes`). */
  uptime_bps: int.nullable(),
  failed_launch_share_bps: int.nullable(),
});
/** The fields of an offering that the catalogue shows. */
export type ListedOffering = z.infer<typeof ListedRow>;
const LISTED = sql`id, gpu_type, region, price_ucents_per_hour, vram_gb, cpu_cores, ram_gb, storage_gb, host_gpu_count, driver_version,
  cuda_version, disk_configurable, disk_price_ucents_per_gb_hour, rentable_until_ms, created_ms, uptime_bps, failed_launch_share_bps`;

/** What a launch must find. `endsMs` is the latest time at which the launch has ended; undefined if it has no limit. */
export type Wanted = Omit<PricingFilters, 'auto_terminate_hours'> & { endsMs?: number | undefined };

/**
 * A page of the listed on-demand offerings that match, newest or cheapest first. If the list is sorted by price, `createdMs` of the cursor holds the
 * price. The free GPUs of a host that leaves before the launch has ended count as none.
 */
export function listedOfferings(
  query: Query,
  start: PageStart,
  { sort, ...wanted }: Wanted = {},
): Promise<ListedOffering[]> {
  const order =
    sort === 'price'
      ? ({ time: sql`price_ucents_per_hour`, id: sql`id`, order: 'asc' } as const)
      : { time: sql`created_ms`, id: sql`id` };
  return query.all(
    ListedRow,
    sql`select ${LISTED}, ${availableTo(wanted)} as gpu_free from offerings
        where listed = 1 and tier = 'on_demand' and ${matching(wanted)} and ${pageBy(start, order)}`,
  );
}

function availableTo({ endsMs }: Wanted): Sql {
  return sql`case when ${staysUntil(endsMs ?? null)} then gpu_free else 0 end`;
}

function matching(wanted: Wanted): Sql {
  const { gpu_type: gpuType, region, gpu_count: count, max_price_per_hour: cap, disk_gb: diskGb = null } = wanted;
  const { min_vram_gb, min_cpu_cores, min_ram_gb, min_cuda_version, min_uptime, endsMs } = wanted;
  const gpuCount = count ?? 1;
  const requirements = { min_vram_gb, min_cpu_cores, min_ram_gb, min_cuda_version, min_uptime };
  const parts = [
    diskCondition({ diskGb }, diskWithin(null)),
    ...requirementsOf({ gpuCount, requirements }).map(({ condition }) => condition),
  ];
  if (gpuType !== undefined) parts.push(sql`gpu_type in (${join(gpuType.split(',').map((type) => type.trim()))})`);
  if (region !== undefined) parts.push(sql`region = ${region}`);
  if (count !== undefined) parts.push(sql`${availableTo(wanted)} >= ${count}`);
  if (endsMs !== undefined) parts.push(staysUntil(endsMs));
  if (cap !== undefined) parts.push(priceCondition({ gpuCount, diskGb }, nearestUcents(cap)));
  return join(parts, ' and ');
}

const GpuTypeRow = z.object({
  gpu_type: text,
  vram_gb: int,
  cpu_cores: int,
  ram_gb: int,
  storage_gb: int,
  disk_configurable: flag,
});
export type GpuTypeFacts = z.infer<typeof GpuTypeRow>;

/**
 * The GPU types on offer, ordered by name. The figures of a type are those of its smallest host, so that no customer gets less than the catalogue
 * shows. A host that does not report a figure is ignored for that figure.
 */
export function gpuTypes(query: Query, afterType: string, limit: number): Promise<GpuTypeFacts[]> {
  return query.all(
    GpuTypeRow,
    sql`select gpu_type, min(vram_gb) as vram_gb, coalesce(min(nullif(cpu_cores, 0)), 0) as cpu_cores,
          coalesce(min(nullif(ram_gb, 0)), 0) as ram_gb, coalesce(min(nullif(storage_gb, 0)), 0) as storage_gb,
          max(disk_configurable) as disk_configurable
        from offerings where listed = 1 and tier = 'on_demand' and gpu_type > ${afterType}
        group by gpu_type order by gpu_type limit ${limit}`,
  );
}
