// The disk of a machine that nobody has yet.
//
// A GPU that is set aside for a contract is of no use without disk. So the machine also keeps a share of its storage for each such GPU, until a
// launch holds the GPU and has a disk of its own. Example: a machine with 8 GPUs and 1,600 GB of storage keeps the included 100 GB for each GPU that
// is set aside; a machine with 400 GB keeps 50 GB.
import { z } from 'zod';
import { DISK_GB_INCLUDED } from '../../../shared/limits.ts';
import { int } from '../../base/db/columns.ts';
import { type Query, raw, type Sql, sql } from '../../base/db/db.ts';
import { keptGb } from './kept-disks.ts';
import { type GpuWant, isLendable } from './lending.ts';

const FreeRow = z.object({ gb: int });

/** The free disk of a machine in GB, for a launch that uses no GPU that is set aside. */
export async function freeGbOf(query: Query, machineId: string, storageGb: number): Promise<number> {
  const machine = { id: sql`${machineId}`, storageGb: sql`cast(${storageGb} as bigint)` };
  const row = await query.one(FreeRow, sql`select ${freeGb(machine, IS_SET_ASIDE)} as gb`);
  return row?.gb ?? 0;
}

/** The free disk of an offering's machine in GB, as an expression. It includes the shares of the GPUs that the launch may take. */
export function freeGbFor(launch: Pick<GpuWant, 'reservedBy' | 'endsMs'>): Sql {
  return freeGb(OF_OFFERING, isOfOthers(launch));
}

/**
 * Selects `counted`, an aggregate of the GPUs `d` of an offering's machine, and the free disk there for a launch that uses no GPU that is set aside.
 */
export function withFreeGb(counted: Sql): Sql {
  return sql`select counted, ${leftGb(OF_OFFERING)} from (select ${counted} as counted, ${usedGb(OF_OFFERING, IS_SET_ASIDE)} as used_gb ${gpusOf(OF_OFFERING)}) as used`;
}

/** The free disk of an offering for a launch on demand, as an expression. The column is right for a launch that cannot borrow GPUs. */
export function diskWithin(endsMs: number | null): Sql {
  return endsMs === null ? sql`disk_free_gb` : freeGbFor({ reservedBy: null, endsMs });
}

const IS_SET_ASIDE = sql`d.reserved_by is not null`;

/** The condition for a GPU that is set aside and that the launch may not take. */
function isOfOthers({ reservedBy, endsMs }: Pick<GpuWant, 'reservedBy' | 'endsMs'>): Sql {
  if (reservedBy !== null) return sql`d.reserved_by <> ${reservedBy}`;
  return endsMs === null ? IS_SET_ASIDE : sql`${IS_SET_ASIDE} and not (${isLendable(endsMs)})`;
}

interface Machine {
  id: Sql;
  storageGb: Sql;
}

const OF_OFFERING: Machine = { id: sql`offerings.machine_id`, storageGb: sql`offerings.storage_gb` };

function freeGb(machine: Machine, isOthers: Sql): Sql {
  return sql`(select ${leftGb(machine)} from (select ${usedGb(machine, isOthers)} as used_gb ${gpusOf(machine)}) as used)`;
}

function gpusOf({ id }: Machine): Sql {
  return sql`from machine_gpus d where d.machine_id = ${id}`;
}

function leftGb({ storageGb }: Machine): Sql {
  return sql`case when ${storageGb} > used_gb then ${storageGb} - used_gb else 0 end`;
}

/** An aggregate of the GPUs `d` of the machine. */
function usedGb({ id, storageGb }: Machine, isOthers: Sql): Sql {
  const included = raw(String(DISK_GB_INCLUDED));
  const share = sql`(case when ${storageGb} < ${included} * count(*) then ${storageGb} / count(*) else ${included} end)`;
  const kept = sql`count(case when d.held_by is null and ${isOthers} then 1 end) * ${share}`;
  return sql`cast(coalesce(sum(d.held_disk_gb), 0) + ${kept} + ${keptGb(id)} as bigint)`;
}
