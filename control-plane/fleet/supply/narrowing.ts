// Why offerings do not fit a launch, counted on demand: the offerings that each condition leaves, and those that another request would get.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, raw, type Sql, sql } from '../../base/db/db.ts';
import { diskWithin } from './free-disk.ts';
import { gpusWithin, staysUntil } from './lending.ts';
import { type CapacityRequest, conditions, diskCondition, priceCondition, trustCondition } from './offerings.ts';
import { requirementsOf } from './requirements.ts';

/** The key is the name of a condition or the index of a requirement. */
const CountsRow = z.record(z.string(), int);

/** The number of offerings that are left after each condition. `priced`: within the price cap, including those that were tried before. */
export interface Narrowing {
  listed: number;
  ofType: number;
  bigEnough: number;
  withVram: number;
  /** After each of the requirements, in their order. */
  required: number[];
  /** On machines that stay on the market until the launch ends. */
  staying: number;
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
  const required: Sql[] = [];
  for (const { condition } of requirementsOf(request))
    required.push(sql`${required.at(-1) ?? withVram} and ${condition}`);
  const staying = sql`${required.at(-1) ?? withVram} and ${staysUntil(request.endsMs)}`;
  const free = sql`${staying} and ${isFree(request)}`;
  const withDisk = sql`${free} and ${diskCondition(request, diskFreeGb)}`;
  const trusted = sql`${withDisk} and ${trustCondition(request)}`;
  const priced = cap === null ? trusted : sql`${trusted} and ${priceCondition(request, cap)}`;
  const affordable = sql`${free} and ${conditions(request, diskFreeGb)}`;
  const steps = {
    listed: sql`1 = 1`,
    ofType,
    bigEnough,
    withVram,
    staying,
    free,
    withDisk,
    trusted,
    priced,
    affordable,
  };
  const counts = [...Object.entries(steps), ...required.entries()].map(
    ([name, step]) => sql`cast(coalesce(sum(case when ${step} then 1 else 0 end), 0) as bigint) as ${raw(`"${name}"`)}`,
  );
  const row = await query.one(
    CountsRow,
    sql`select ${join(counts)} from offerings where listed = 1 and tier = 'on_demand'`,
  );
  const left = (step: keyof typeof steps | number): number => row?.[step] ?? 0;
  return {
    listed: left('listed'),
    ofType: left('ofType'),
    bigEnough: left('bigEnough'),
    withVram: left('withVram'),
    required: required.map((_, index) => left(index)),
    staying: left('staying'),
    free: left('free'),
    withDisk: left('withDisk'),
    trusted: left('trusted'),
    priced: left('priced'),
    affordable: left('affordable'),
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
