// The SQL of suppliers, machines, enrolment tokens and GPUs.
import { z } from 'zod';
import { Inventory } from '../../../shared/protocol/inventory.ts';
import type { MachineState } from '../../../shared/states.ts';
import { countRow, flag, idRow, int, json, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Tx, join, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import { ApprovedGpu } from './approval.ts';

const SupplierRow = z.object({
  id: text,
  org_id: text,
  status: z.enum(['active', 'suspended']),
  created_ms: int,
  updated_ms: int,
});
export type SupplierRow = z.infer<typeof SupplierRow>;

export const MachineRow = z.object({
  id: text,
  supplier_id: text,
  name: text.nullable(),
  status: z.enum(['pending_verification', 'listed', 'draining', 'delisted', 'suspended']),
  /** The operator has approved the machine. It is never listed without that. */
  approved: flag,
  /** True if the operator trusts the machine with the requests and training data of other customers. */
  trusted: flag,
  /** The GPUs that the approval covers; null without an approval. */
  approved_gpus: json(z.array(ApprovedGpu)).nullable(),
  /** A contradiction to the approval that the host has shown since; null if there is none. */
  inventory_fault: text.nullable(),
  verification_status: z.enum(['unverified', 'verified', 'failed']),
  verification_detail: text.nullable(),
  declared_gpu_count: int.nullable(),
  declared_gpu_type: text.nullable(),
  declared_vram_per_gpu_gb: int.nullable(),
  region: text,
  price_ucents_per_hour: ucents,
  tier: z.enum(['on_demand', 'spot']),
  public_key: text.nullable(),
  inventory: json(Inventory).nullable(),
  online: flag,
  last_heartbeat_ms: int.nullable(),
  /** Ids of containers that this database does not know; null until the host has reported. Only an empty list allows new work. */
  unknown_workloads: json(z.array(text)).nullable(),
  /** The time at which two hosts were found to share its identity; null while there is one host. */
  copied_ms: int.nullable(),
  /** The time from which its supplier does not offer it any more; null if none is set. */
  rentable_until_ms: int.nullable(),
  /** True once that time has come. */
  offer_ended: flag,
  created_ms: int,
  updated_ms: int,
  supplier_status: SupplierRow.shape.status,
});
export type MachineRow = z.infer<typeof MachineRow>;
export type Verification = Pick<MachineRow, 'verification_status' | 'verification_detail'>;

const TokenRow = z.object({ token_hash: text, machine_id: text, expires_ms: int, used_by_key: text.nullable() });

const GpuRow = z.object({
  machine_id: text,
  gpu_uuid: text,
  gpu_index: int,
  gpu_type: text,
  vram_gb: int,
  usable: flag,
  held_by: text.nullable(),
  held_disk_gb: int,
  /** The reservation contract for which this GPU is set aside. */
  reserved_by: text.nullable(),
});
export type GpuRow = z.infer<typeof GpuRow>;

const SUPPLIER = sql`id, org_id, status, created_ms, updated_ms`;
/** The columns of MachineRow. */
export const MACHINE = sql`id, supplier_id, name, status, approved, trusted, approved_gpus, inventory_fault, verification_status, verification_detail, declared_gpu_count, declared_gpu_type,
  declared_vram_per_gpu_gb, region, price_ucents_per_hour, tier, public_key, inventory, online, last_heartbeat_ms, unknown_workloads, copied_ms, rentable_until_ms, offer_ended,
  created_ms, updated_ms, (select s.status from suppliers s where s.id = supplier_id) as supplier_status`;

export function supplierOfOrg(query: Query, orgId: string): Promise<SupplierRow | undefined> {
  return query.one(SupplierRow, sql`select ${SUPPLIER} from suppliers where org_id = ${orgId}`);
}

export function findSupplier(query: Query, id: string): Promise<SupplierRow | undefined> {
  return query.one(SupplierRow, sql`select ${SUPPLIER} from suppliers where id = ${id}`);
}

/** A page, newest first. */
export function pageOfSuppliers(query: Query, start: PageStart): Promise<SupplierRow[]> {
  return query.all(SupplierRow, sql`select ${SUPPLIER} from suppliers where ${pageFrom(start)}`);
}

/** Compare-and-set; false if the supplier has that status already. */
export async function setSupplierStatus(
  tx: Tx,
  id: string,
  { to, nowMs }: { to: SupplierRow['status']; nowMs: number },
): Promise<boolean> {
  const changed = await tx.run(
    sql`update suppliers set status = ${to}, updated_ms = ${nowMs} where id = ${id} and status <> ${to}`,
  );
  return changed === 1;
}

export async function insertSupplier(tx: Tx, row: SupplierRow): Promise<void> {
  await tx.run(
    sql`insert into suppliers (${SUPPLIER}) values (${row.id}, ${row.org_id}, ${row.status}, ${row.created_ms}, ${row.updated_ms})
        on conflict (org_id) do nothing`,
  );
}

export function findMachine(query: Query, id: string): Promise<MachineRow | undefined> {
  return query.one(MachineRow, sql`select ${MACHINE} from machines where id = ${id}`);
}

/** Undefined also for a machine of another organisation. */
export function machineOfOrg(query: Query, orgId: string, id: string): Promise<MachineRow | undefined> {
  return query.one(
    MachineRow,
    sql`select ${MACHINE} from machines where id = ${id} and supplier_id in (select id from suppliers where org_id = ${orgId})`,
  );
}

export async function machineIdsOfSupplier(query: Query, supplierId: string): Promise<string[]> {
  const rows = await query.all(idRow, sql`select id from machines where supplier_id = ${supplierId}`);
  return rows.map((row) => row.id);
}

/** Counts one more machine of the supplier. False if it has `max` already. A machine is never deleted. */
export async function countMachine(tx: Tx, supplierId: string, max: number): Promise<boolean> {
  const changed = await tx.run(
    sql`update suppliers set machine_count = machine_count + 1 where id = ${supplierId} and machine_count < ${max}`,
  );
  return changed === 1;
}

/** Counts machines without an enrolled host. */
export async function countAwaited(query: Query, supplierId: string): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from machines where supplier_id = ${supplierId} and public_key is null`,
  );
  return row?.count ?? 0;
}

export async function insertMachine(tx: Tx, row: MachineRow): Promise<void> {
  await tx.run(
    sql`insert into machines (id, supplier_id, name, status, verification_status, declared_gpu_count, declared_gpu_type, declared_vram_per_gpu_gb,
          region, price_ucents_per_hour, tier, created_ms, updated_ms)
        values (${row.id}, ${row.supplier_id}, ${row.name}, ${row.status}, ${row.verification_status}, ${row.declared_gpu_count},
          ${row.declared_gpu_type}, ${row.declared_vram_per_gpu_gb}, ${row.region}, ${row.price_ucents_per_hour}, ${row.tier},
          ${row.created_ms}, ${row.updated_ms})`,
  );
}

/** Compare-and-set on the status; false if it has changed in the meantime. */
export async function setMachineState(
  tx: Tx,
  id: string,
  move: { from: MachineState; to: MachineState; nowMs: number },
): Promise<boolean> {
  const changed = await tx.run(
    sql`update machines set status = ${move.to}, updated_ms = ${move.nowMs} where id = ${id} and status = ${move.from}`,
  );
  return changed === 1;
}

/** Stores an approval; null removes it. */
export async function setApproved(tx: Tx, id: string, gpus: readonly ApprovedGpu[] | null): Promise<void> {
  const list = gpus === null ? null : JSON.stringify(gpus);
  await tx.run(
    sql`update machines set approved = ${gpus !== null}, approved_gpus = ${list}, inventory_fault = null where id = ${id}`,
  );
}

export async function setTrusted(tx: Tx, id: string, isTrusted: boolean): Promise<void> {
  await tx.run(sql`update machines set trusted = ${isTrusted} where id = ${id}`);
}

/** A machine that has contradicted its approval is not trusted any more. */
export async function setInventoryFault(tx: Tx, id: string, fault: string): Promise<void> {
  await tx.run(sql`update machines set inventory_fault = ${fault}, trusted = 0 where id = ${id}`);
}

/** Stores the fields that a supplier may change. */
export async function setDeclared(tx: Tx, row: MachineRow): Promise<void> {
  await tx.run(
    sql`update machines set name = ${row.name}, declared_gpu_count = ${row.declared_gpu_count}, declared_gpu_type = ${row.declared_gpu_type},
          declared_vram_per_gpu_gb = ${row.declared_vram_per_gpu_gb}, region = ${row.region},
          price_ucents_per_hour = ${row.price_ucents_per_hour}, tier = ${row.tier}, rentable_until_ms = ${row.rentable_until_ms},
          offer_ended = ${row.offer_ended}, updated_ms = ${row.updated_ms}
        where id = ${row.id}`,
  );
}

/** `awaitsMs`: the machine has to be approved again, and this is the time; null if it has not. The first time stays until then. */
export async function setVerification(
  tx: Tx,
  id: string,
  verdict: Verification,
  awaitsMs: number | null,
): Promise<void> {
  const awaits = awaitsMs === null ? sql`null` : sql`coalesce(awaits_approval_ms, ${awaitsMs})`;
  await tx.run(
    sql`update machines set verification_status = ${verdict.verification_status}, verification_detail = ${verdict.verification_detail},
          awaits_approval_ms = ${awaits}
        where id = ${id}`,
  );
}

export async function setMachineKey(tx: Tx, id: string, publicKey: string): Promise<void> {
  await tx.run(sql`update machines set public_key = ${publicKey} where id = ${id}`);
}

/** Another machine than `exceptId` that a host with this key has enrolled as. */
export async function machineOfKey(query: Query, publicKey: string, exceptId: string): Promise<string | undefined> {
  const row = await query.one(
    idRow,
    sql`select id from machines where public_key = ${publicKey} and id <> ${exceptId} limit 1`,
  );
  return row?.id;
}

export async function setInventory(tx: Tx, id: string, inventory: Inventory, nowMs: number): Promise<void> {
  const broken = inventory.gpu_faults.flatMap(({ severity, ...gpu }) => (severity === 'broken' ? [gpu] : []));
  await tx.run(
    sql`update machines set inventory = ${JSON.stringify(inventory)}, broken_gpus = ${JSON.stringify(broken)}, last_heartbeat_ms = ${nowMs}
        where id = ${id}`,
  );
}

export async function setOnline(tx: Tx, id: string, online: boolean, nowMs: number): Promise<void> {
  await tx.run(sql`update machines set online = ${online}, last_heartbeat_ms = ${nowMs} where id = ${id}`);
}

/** Sets the heartbeats of machines that have a link. A link ends soon after its host falls silent. */
export async function noteHeartbeats(tx: Tx, ids: readonly string[], nowMs: number): Promise<void> {
  if (ids.length === 0) return;
  await tx.run(sql`update machines set last_heartbeat_ms = ${nowMs} where id in (${join([...ids])}) and online = 1`);
}

/** False if the value is unchanged. */
export async function setUnknownWorkloads(tx: Tx, id: string, workloadIds: readonly string[] | null): Promise<boolean> {
  const list = workloadIds === null ? null : JSON.stringify(workloadIds);
  const changed = await tx.run(
    sql`update machines set unknown_workloads = ${list} where id = ${id} and coalesce(unknown_workloads, '') <> ${list ?? ''}`,
  );
  return changed === 1;
}

/** False if the value is unchanged. */
export async function setCopied(tx: Tx, id: string, copiedMs: number | null): Promise<boolean> {
  const isChange = copiedMs === null ? sql`copied_ms is not null` : sql`copied_ms is null`;
  return (await tx.run(sql`update machines set copied_ms = ${copiedMs} where id = ${id} and ${isChange}`)) === 1;
}

/** Marks every machine offline and forgets what it runs until its host reports again. */
export async function setAllOffline(tx: Tx): Promise<void> {
  await tx.run(
    sql`update machines set online = 0, unknown_workloads = null where online = 1 or unknown_workloads is not null`,
  );
  await tx.run(sql`update offerings set listed = 0 where listed = 1`);
}

/** A page, in the order of ids. */
export async function onlineMachineIds(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from machines where online = 1 and id > ${afterId} order by id limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

export async function insertToken(tx: Tx, row: z.infer<typeof TokenRow>): Promise<void> {
  await tx.run(
    sql`insert into enrollment_tokens (token_hash, machine_id, expires_ms) values (${row.token_hash}, ${row.machine_id}, ${row.expires_ms})`,
  );
}

export function findToken(query: Query, hash: string): Promise<z.infer<typeof TokenRow> | undefined> {
  return query.one(
    TokenRow,
    sql`select token_hash, machine_id, expires_ms, used_by_key from enrollment_tokens where token_hash = ${hash}`,
  );
}

/** False if another key has used the token first. */
export async function useToken(tx: Tx, hash: string, publicKey: string): Promise<boolean> {
  const changed = await tx.run(
    sql`update enrollment_tokens set used_by_key = ${publicKey} where token_hash = ${hash} and (used_by_key is null or used_by_key = ${publicKey})`,
  );
  return changed === 1;
}

/** A machine has one valid token. A new one ends the previous one, which stays in the table until the next is made. */
export async function endUnusedTokens(tx: Tx, machineId: string): Promise<void> {
  const unused = sql`machine_id = ${machineId} and used_by_key is null`;
  await tx.run(sql`delete from enrollment_tokens where ${unused} and expires_ms = 0`);
  await tx.run(sql`update enrollment_tokens set expires_ms = 0 where ${unused}`);
}

export function gpusOf(query: Query, machineId: string): Promise<GpuRow[]> {
  return query.all(
    GpuRow,
    sql`select machine_id, gpu_uuid, gpu_index, gpu_type, vram_gb, usable, held_by, held_disk_gb, reserved_by
        from machine_gpus where machine_id = ${machineId} order by gpu_index`,
  );
}

const GpuUseRow = z.object({
  machine_id: text,
  gpu_type: text,
  vram_gb: int,
  count: int,
  rented: int,
  reserved: int,
});
/** Equal GPUs of a machine, and how many of them are held. */
export type GpuUse = z.infer<typeof GpuUseRow>;

export async function gpuUseOf(query: Query, machineIds: readonly string[]): Promise<GpuUse[]> {
  if (machineIds.length === 0) return [];
  return query.all(
    GpuUseRow,
    sql`select machine_id, gpu_type, vram_gb, count(*) as count,
          cast(sum(case when held_by is not null then 1 else 0 end) as bigint) as rented,
          cast(sum(case when reserved_by is not null and held_by is null then 1 else 0 end) as bigint) as reserved
        from machine_gpus where machine_id in (${join([...machineIds])})
        group by machine_id, gpu_type, vram_gb order by machine_id, gpu_type, vram_gb`,
  );
}

export async function upsertGpu(tx: Tx, gpu: Omit<GpuRow, 'held_by' | 'held_disk_gb' | 'reserved_by'>): Promise<void> {
  await tx.run(
    sql`insert into machine_gpus (machine_id, gpu_uuid, gpu_index, gpu_type, vram_gb, usable)
        values (${gpu.machine_id}, ${gpu.gpu_uuid}, ${gpu.gpu_index}, ${gpu.gpu_type}, ${gpu.vram_gb}, ${gpu.usable})
        on conflict (machine_id, gpu_uuid) do update set gpu_index = excluded.gpu_index, gpu_type = excluded.gpu_type,
          vram_gb = excluded.vram_gb, usable = excluded.usable`,
  );
}

/**
 * Rows of GPUs that the host no longer shows are kept while they are held or set aside, but cannot be held again. Other rows are deleted,
 * because a host that keeps showing new GPUs would fill the table.
 */
export async function dropExcept(tx: Tx, machineId: string, uuids: string[]): Promise<void> {
  const shown = uuids.length === 0 ? sql`1 = 0` : sql`gpu_uuid in (${join(uuids)})`;
  const absent = sql`machine_id = ${machineId} and not (${shown})`;
  await tx.run(sql`delete from machine_gpus where ${absent} and held_by is null and reserved_by is null`);
  await tx.run(sql`update machine_gpus set usable = 0 where ${absent}`);
}

const MachineIdRow = z.object({ machine_id: text });

/** Releases the GPUs that `heldBy` holds and returns their machines. */
export async function freeGpus(tx: Tx, heldBy: string): Promise<string[]> {
  const rows = await tx.all(
    MachineIdRow,
    sql`update machine_gpus set held_by = null, held_disk_gb = 0 where held_by = ${heldBy} returning machine_id`,
  );
  return [...new Set(rows.map((row) => row.machine_id))];
}

const StateCountRow = z.object({ status: text, online: flag, count: int });

export function countMachinesByState(query: Query): Promise<z.infer<typeof StateCountRow>[]> {
  return query.all(
    StateCountRow,
    sql`select status, online, count(*) as count from machines group by status, online order by status, online`,
  );
}

/** Conditions of counted machines, each with an index. `withUnknown`: the host has unknown containers, or is online without a report. */
const COUNTED = {
  withUnknown: sql`(unknown_workloads <> '[]' or (unknown_workloads is null and online = 1))`,
  failed: sql`verification_status = 'failed' and status = 'listed'`,
};

export async function countMachines(query: Query, which: keyof typeof COUNTED): Promise<number> {
  const row = await query.one(countRow, sql`select count(*) as count from machines where ${COUNTED[which]}`);
  return row?.count ?? 0;
}
