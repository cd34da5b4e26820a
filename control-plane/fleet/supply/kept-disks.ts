// Releases what a launch holds: its GPUs when its container has stopped, and its disk when the host has removed that too. A host keeps the disk of a
// removed container for a while (`quarantine_minutes` of the agent), so until then its space must not be sold again.
import { z } from 'zod';
import { text } from '../../base/db/columns.ts';
import { type Sql, type Tx, sql } from '../../base/db/db.ts';
import * as store from './store.ts';

const MachineIdRow = z.object({ machine_id: text });

/** Releases what `heldBy` holds, or all but its disk. Returns the machines on which that has changed something. */
export async function release(tx: Tx, heldBy: string, keepsDisk: boolean): Promise<Set<string>> {
  if (keepsDisk) await keep(tx, heldBy);
  const freed = new Set(await store.freeGpus(tx, heldBy));
  if (keepsDisk) return freed;
  const rows = await tx.all(MachineIdRow, sql`delete from kept_disks where held_by = ${heldBy} returning machine_id`);
  return new Set([...freed, ...rows.map((row) => row.machine_id)]);
}

async function keep(tx: Tx, heldBy: string): Promise<void> {
  await tx.run(
    sql`insert into kept_disks (held_by, machine_id, disk_gb)
        select held_by, machine_id, held_disk_gb from machine_gpus where held_by = ${heldBy} and held_disk_gb > 0
        on conflict (held_by) do nothing`,
  );
}

/** The sum of the kept disks of a machine, as an expression. */
export function keptGb(machineId: Sql): Sql {
  return sql`(select coalesce(sum(k.disk_gb), 0) from kept_disks k where k.machine_id = ${machineId})`;
}

/** The host of the machine is lost, with its disks. */
export async function dropKept(tx: Tx, machineId: string): Promise<void> {
  await tx.run(sql`delete from kept_disks where machine_id = ${machineId}`);
}
