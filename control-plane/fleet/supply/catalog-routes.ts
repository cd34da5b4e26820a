// GET /v1/gpu-types and GET /v1/pricing: the catalogue, public without an API key (specification 4.1).
import { GpuType, pricingFilters, PricingRow } from '../../../shared/api/pricing.ts';
import { pageParameters, PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { DISK_GB_INCLUDED } from '../../../shared/limits.ts';
import { dollarsFromUcents } from '../../../shared/money.ts';
import { z } from 'zod';
import type { Db } from '../../base/db/db.ts';
import { byCreation, type Cursor, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { type Route, sharedRoute } from '../../base/http/route.ts';
import { gpuTypes, type GpuTypeFacts, type ListedOffering, listedOfferings } from './catalog.ts';
import { cudaText } from './cuda.ts';
import { architectureOf } from './known-gpus.ts';

const PricingQuery = z.strictObject({
  ...pageParameters,
  ...pricingFilters,
  tier: z
    .enum(['on_demand', 'spot'])
    .default('on_demand')
    .describe('Tier of the offerings. For spot there is no capacity, so the page is empty'),
});

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  latestEnd: LatestEnd;
}

/** The latest time at which a launch that is placed at `placedMs`, and has this limit, has released its GPUs. */
export type LatestEnd = (placedMs: number, hours: number) => number;

export function catalogRoutes({ db, clock, cursors, latestEnd }: Deps): Route[] {
  return [
    sharedRoute({
      method: 'GET',
      path: '/v1/gpu-types',
      operationId: 'listGpuTypes',
      tag: 'Catalog',
      summary: 'List the GPU types on offer, by name',
      description: 'Values that hosts do not report are 0. The exact values of each offering are in GET /v1/pricing.',
      scope: 'none',
      idempotency: 'none',
      query: PageQuery,
      responses: { 200: { description: 'A page of GPU types', schema: pageSchema(GpuType) } },
      errors: [],
      handler: async ({ query }) => {
        const rows = ({ from, count }: PageStart) => gpuTypes(db.read, from?.id ?? '', count);
        const body = await cursors.page('gpu-types', query, rows, {
          at: (row) => ({ createdMs: 0, id: row.gpu_type }),
          show: gpuTypeView,
        });
        return { status: 200, body };
      },
    }),
    sharedRoute({
      method: 'GET',
      path: '/v1/pricing',
      operationId: 'listPricing',
      tag: 'Catalog',
      summary: 'List offerings with live prices and free GPUs, newest or cheapest first',
      description:
        'With filters, only offerings that meet all of them are listed. They mean the same as in `requirements` of POST /v1/instances, but here `gpu_type` may be several types, and `region` is a condition.',
      scope: 'none',
      idempotency: 'none',
      query: PricingQuery,
      responses: { 200: { description: 'A page of offerings', schema: pageSchema(PricingRow) } },
      errors: [],
      handler: async ({ query }) => {
        const { tier, cursor, limit, auto_terminate_hours: hours, ...filters } = query;
        const endsMs = hours === undefined ? undefined : latestEnd(clock.now(), hours);
        const wanted = { ...filters, endsMs };
        const rows = async (start: PageStart) => (tier === 'spot' ? [] : listedOfferings(db.read, start, wanted));
        const isByPrice = filters.sort === 'price';
        const view = { at: isByPrice ? byPrice : byCreation, show: pricingView };
        const page = { cursor, limit };
        return { status: 200, body: await cursors.page(isByPrice ? 'pricing-by-price' : 'pricing', page, rows, view) };
      },
    }),
  ];
}

/** Hundredths of a percent in a whole. */
const BPS = 10_000;

/** In a list that is sorted by price, the price takes the place of the time. */
function byPrice({ price_ucents_per_hour: price, id }: ListedOffering): Cursor {
  return { createdMs: Number(price), id };
}

function pricingView(row: ListedOffering): PricingRow {
  return {
    offering_id: row.id,
    gpu_type: row.gpu_type,
    region: row.region,
    tier: 'on_demand',
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    available: row.gpu_free,
    ...(row.rentable_until_ms === null ? {} : { rentable_until: isoTime(row.rentable_until_ms) }),
    vram_gb: row.vram_gb,
    cpu_cores: row.cpu_cores,
    ram_gb: row.ram_gb,
    storage_gb: row.storage_gb,
    host_gpu_count: row.host_gpu_count,
    ...(row.driver_version === '' ? {} : { driver_version: row.driver_version }),
    ...(row.cuda_version === 0 ? {} : { cuda_version: cudaText(row.cuda_version) }),
    disk_configurable: row.disk_configurable,
    disk_price_per_gb_hour: row.disk_configurable ? dollarsFromUcents(row.disk_price_ucents_per_gb_hour) : 0,
    ...(row.uptime_bps === null ? {} : { uptime: row.uptime_bps / BPS }),
    ...(row.failed_launch_share_bps === null ? {} : { failed_launch_share: row.failed_launch_share_bps / BPS }),
  };
}

function gpuTypeView(row: GpuTypeFacts): GpuType {
  const architecture = architectureOf(row.gpu_type);
  return {
    ...row,
    ...(architecture === undefined ? {} : { architecture }),
    // On other hosts, instances share the file system and have no disk size of their own.
    instance_disk_gb: row.disk_configurable ? DISK_GB_INCLUDED : 0,
  };
}
