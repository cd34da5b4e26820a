// Decides which machine may offer a GPU: the first one that was approved with it. Other machines that show the same GPU are judged
// `failed`.
import { z } from 'zod';
import { text } from '../../base/db/columns.ts';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';
import type { MachineRow } from './store.ts';

const ClaimRow = z.object({ gpu_uuid: text, machine_id: text });
const UuidRow = z.object({ gpu_uuid: text });
const MachineIdRow = z.object({ machine_id: text });

/** The GPUs among these that another machine claims, with that machine. */
export function claimedElsewhere(
  query: Query,
  machineId: string,
  uuids: readonly string[],
): Promise<z.infer<typeof ClaimRow>[]> {
  if (uuids.length === 0) return Promise.resolve([]);
  return query.all(
    ClaimRow,
    sql`select gpu_uuid, machine_id from gpu_claims
        where gpu_uuid in (${join([...uuids])}) and machine_id <> ${machineId} order by gpu_uuid`,
  );
}

/**
 * Updates the claims of a machine. It claims approved GPUs until it is delisted, and rented GPUs until the rental ends. Returns the other
 * machines that show a GPU whose claim came or went: they must be judged again.
 */
export async function syncClaims(tx: Tx, machine: MachineRow, nowMs: number): Promise<string[]> {
  const isClaiming = machine.approved && machine.status !== 'delisted';
  const wanted = isClaiming ? (machine.approved_gpus ?? []).map(({ uuid }) => uuid) : [];
  const changed = [...(await release(tx, machine.id, wanted)), ...(await claim(tx, machine.id, { wanted, nowMs }))];
  if (changed.length === 0) return [];
  const rows = await tx.all(
    MachineIdRow,
    sql`select machine_id from (
          select g.machine_id, min(m.created_ms) as created_ms from machine_gpus g join machines m on m.id = g.machine_id
          where g.gpu_uuid in (${join(changed)}) and g.machine_id <> ${machine.id} group by g.machine_id) as claimants
        order by created_ms, machine_id`,
  );
  return rows.map((row) => row.machine_id);
}

async function release(tx: Tx, machineId: string, wanted: readonly string[]): Promise<string[]> {
  const isWanted = wanted.length === 0 ? sql`1 = 0` : sql`gpu_uuid in (${join([...wanted])})`;
  const rented = sql`select gpu_uuid from machine_gpus where machine_id = ${machineId} and held_by is not null`;
  const rows = await tx.all(
    UuidRow,
    sql`delete from gpu_claims where machine_id = ${machineId} and not (${isWanted}) and gpu_uuid not in (${rented})
        returning gpu_uuid`,
  );
  return rows.map((row) => row.gpu_uuid);
}

async function claim(
  tx: Tx,
  machineId: string,
  { wanted, nowMs }: { wanted: readonly string[]; nowMs: number },
): Promise<string[]> {
  const claimed: string[] = [];
  for (const uuid of wanted) {
    const isNew = await tx.run(
      sql`insert into gpu_claims (gpu_uuid, machine_id, claimed_ms) values (${uuid}, ${machineId}, ${nowMs})
          on conflict (gpu_uuid) do nothing`,
    );
    if (isNew === 1) claimed.push(uuid);
  }
  return claimed;
}
