// The SQL of instances.
import { z } from 'zod';
import { CreateInstance } from '../../../shared/api/instance.ts';
import { fail } from '../../../shared/errors.ts';
import { MainExit } from '../../../shared/protocol/workload.ts';
import type { InstanceState } from '../../../shared/states.ts';
import { idRow, int, json, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Sql, type Tx, join, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';
import { readable } from '../../fleet/workloads/store.ts';
import { Launch, Placed, Shown } from './launch.ts';

export const InstanceRow = z.object({
  id: text,
  org_id: text,
  api_key_id: text,
  name: text.nullable(),
  status: z.enum(['allocating', 'starting', 'running', 'stopping', 'stopped', 'terminated', 'unreachable', 'error']),
  status_reason: text.nullable(),
  request: json(CreateInstance),
  env_names: json(z.array(text)),
  launch: json(Launch),
  shown: json(Shown),
  gpu_type: text,
  gpu_count: int,
  tier: z.enum(['on_demand', 'spot', 'reserved']),
  region: text,
  /** The contract of a reserved instance. */
  reservation_id: text.nullable(),
  /** The price of the whole instance; 0 before the first placement. */
  price_ucents_per_hour: ucents,
  machine_id: text.nullable(),
  supplier_id: text.nullable(),
  workload_id: text.nullable(),
  tried_machine_ids: json(z.array(z.string())),
  /** Null before the first placement, and if that was before an upgrade of the control plane. */
  placed: json(Placed).nullable(),
  /** Null if the host cannot limit the disk. */
  disk_gb: int.nullable(),
  create_operation_id: text,
  created_ms: int,
  /** When the current status began. */
  entered_ms: int,
  due_ms: int.nullable(),
  /** Grows with every change of a fact, so that a decision from old facts cannot postpone the next run of the engine. */
  facts_version: int,
  ready_ms: int.nullable(),
  /** When its runtime limit ends; null without a limit, and before it runs. */
  auto_terminate_ms: int.nullable(),
  terminated_ms: int.nullable(),
  last_reachable_ms: int.nullable(),
  unreachable_since_ms: int.nullable(),
  /** The fault that the host has reported about its GPUs, and since when we know it; null while they are whole. */
  gpu_fault: text.nullable(),
  gpu_fault_since_ms: int.nullable(),
  /** When the host has reported them whole, if that does not count yet, or if it did so while the instance was unreachable. */
  gpu_whole_ms: int.nullable(),
  /** The lowest threshold that the customer was warned about, in hours until the balance ends; null if the balance is enough. */
  balance_below_hours: int.nullable(),
  /** Null while the main process runs, and if it has ended only because the instance was ended. */
  main_exit: json(MainExit).nullable(),
  /** When the host reported that. */
  main_exit_ms: int.nullable(),
});
export type InstanceRow = z.infer<typeof InstanceRow>;

/** The part of a request that says which keys may log in. */
const Keys = z.object({ ssh_key_ids: CreateInstance.shape.ssh_key_ids });

/**
 * An instance whose request and launch are null if they cannot be read. Only a launch needs all of them, so an instance without them is probed,
 * charged and ended like the others.
 */
export const RentalRow = InstanceRow.extend({ request: readable(Keys), launch: readable(Launch) });
export type RentalRow = z.infer<typeof RentalRow>;

const PlaceableRow = InstanceRow.extend({ request: readable(CreateInstance), launch: readable(Launch) }).transform(
  ({ request, launch, ...row }) => ({
    facts_version: row.facts_version,
    whole: request === null || launch === null ? null : { ...row, request, launch },
  }),
);

/** What says which keys may log in. */
export interface KeyedRow extends Pick<InstanceRow, 'id' | 'org_id'> {
  request: z.infer<typeof Keys>;
}

/** What the API shows of an instance. A page has up to two hundred rows, and `request` and `launch` of each may have hundreds of KiB. */
export const ShownRow = InstanceRow.pick({
  id: true,
  org_id: true,
  name: true,
  status: true,
  status_reason: true,
  gpu_type: true,
  gpu_count: true,
  tier: true,
  region: true,
  reservation_id: true,
  price_ucents_per_hour: true,
  placed: true,
  disk_gb: true,
  created_ms: true,
  ready_ms: true,
  auto_terminate_ms: true,
  terminated_ms: true,
  last_reachable_ms: true,
  unreachable_since_ms: true,
  balance_below_hours: true,
  main_exit: true,
  shown: true,
});
export type ShownInstance = z.infer<typeof ShownRow>;
/** The columns of ShownRow. */
export const SHOWN = sql`id, org_id, name, status, status_reason, gpu_type, gpu_count, tier, region, reservation_id, price_ucents_per_hour, placed, disk_gb,
  created_ms, ready_ms, auto_terminate_ms, terminated_ms, last_reachable_ms, unreachable_since_ms, balance_below_hours, main_exit, shown`;

/** Statuses in which a customer can connect. `unreachable` is one: probes fail, but a connection that works is accepted. */
export const CONNECTABLE: ReadonlySet<InstanceState> = new Set<InstanceState>(['running', 'unreachable']);

/** Statuses in which an instance has GPUs and is not ending. */
export const LIVE: ReadonlySet<InstanceState> = new Set<InstanceState>([...CONNECTABLE, 'allocating', 'starting']);

/** Statuses in which an instance has GPUs and has never run. */
const LAUNCHING: ReadonlySet<InstanceState> = new Set<InstanceState>(['allocating', 'starting']);

export const COLUMNS = sql`id, org_id, api_key_id, name, status, status_reason, request, env_names, launch, shown, gpu_type, gpu_count, tier, region,
  reservation_id, price_ucents_per_hour, machine_id, supplier_id, workload_id, tried_machine_ids, placed, disk_gb, create_operation_id,
  created_ms, entered_ms, due_ms, facts_version, ready_ms, auto_terminate_ms, terminated_ms, last_reachable_ms, unreachable_since_ms,
  gpu_fault, gpu_fault_since_ms, gpu_whole_ms, balance_below_hours, main_exit, main_exit_ms`;

const MachineOfRow = z.object({ id: text, machine_id: text });

/** The machine of the last placement of each instance. */
export async function machinesOf(query: Query, instanceIds: readonly string[]): Promise<Map<string, string>> {
  if (instanceIds.length === 0) return new Map();
  const rows = await query.all(
    MachineOfRow,
    sql`select id, machine_id from instances where id in (${join([...instanceIds])}) and machine_id is not null`,
  );
  return new Map(rows.map((row) => [row.id, row.machine_id]));
}

/** Ids of the instances whose last machine was one of these. */
export async function subjectsOf(query: Query, machineIds: readonly string[]): Promise<string[]> {
  const which = sql`select id from instances where machine_id in (${join([...machineIds])}) order by id`;
  const rows = await query.all(idRow, which);
  return rows.map(({ id }) => id);
}

/** The last machine of an instance. @throws ServiceError `not_found`, also for an instance of another organisation */
export async function measuredInstance(
  query: Query,
  orgId: string,
  id: string,
): Promise<{ id: string; machineId: string | null; isLive: boolean }> {
  const row = await findRental(query, id);
  if (row?.org_id !== orgId) return fail('not_found', `There is no instance ${id}.`);
  return { id, machineId: row.machine_id, isLive: LIVE.has(row.status) };
}

const RunningRow = z.object({ id: text, machine_id: text, gpu_type: text, name: text.nullable() });
/** The statuses of CONNECTABLE. The text must equal the condition of the index `instances_connectable`. */
export const IS_CONNECTABLE = sql`status in ('running', 'unreachable')`;

/** The instances of an organisation that a customer can connect to, with their machines, the first `limit` ids. */
export async function runningInstances(
  query: Query,
  orgId: string,
  limit: number,
): Promise<{ id: string; machineId: string; modelName: string; hostname: string }[]> {
  const rows = await query.all(
    RunningRow,
    sql`select id, machine_id, gpu_type, name from instances
        where org_id = ${orgId} and ${IS_CONNECTABLE} and machine_id is not null order by id limit ${limit}`,
  );
  return rows.map((row) => ({
    id: row.id,
    machineId: row.machine_id,
    modelName: row.gpu_type,
    hostname: row.name ?? row.id,
  }));
}

export async function insertInstance(tx: Tx, row: InstanceRow): Promise<void> {
  await tx.run(
    sql`insert into instances (id, org_id, api_key_id, name, status, request, env_names, launch, shown, gpu_type, gpu_count, tier, region,
          reservation_id, price_ucents_per_hour, machine_id, supplier_id, workload_id, tried_machine_ids, placed, disk_gb, create_operation_id,
          created_ms, entered_ms, due_ms)
        values (${row.id}, ${row.org_id}, ${row.api_key_id}, ${row.name}, ${row.status}, ${JSON.stringify(row.request)}, ${JSON.stringify(row.env_names)},
          ${JSON.stringify(row.launch)}, ${JSON.stringify(row.shown)}, ${row.gpu_type}, ${row.gpu_count}, ${row.tier}, ${row.region},
          ${row.reservation_id}, ${row.price_ucents_per_hour}, ${row.machine_id}, ${row.supplier_id}, ${row.workload_id},
          ${JSON.stringify(row.tried_machine_ids)}, ${row.placed === null ? null : JSON.stringify(row.placed)}, ${row.disk_gb}, ${row.create_operation_id}, ${row.created_ms}, ${row.entered_ms}, ${row.due_ms})`,
  );
}

/** Throws if a document of the row cannot be read. Only a launch needs all of them. */
export function findInstance(query: Query, id: string): Promise<InstanceRow | undefined> {
  return query.one(InstanceRow, sql`select ${COLUMNS} from instances where id = ${id}`);
}

/** What the engine needs to place an instance: the whole row, and null if its request or its launch cannot be read. */
export function findPlaceable(
  query: Query,
  id: string,
): Promise<{ facts_version: number; whole: InstanceRow | null } | undefined> {
  return query.one(PlaceableRow, sql`select ${COLUMNS} from instances where id = ${id}`);
}

/** The same row with null for a document that cannot be read. */
export function findRental(query: Query, id: string): Promise<RentalRow | undefined> {
  return query.one(RentalRow, sql`select ${COLUMNS} from instances where id = ${id}`);
}

/** Ids after `afterId`, in order. */
export async function instancesAfter(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(idRow, sql`select id from instances where id > ${afterId} order by id limit ${limit}`);
  return rows.map(({ id }) => id);
}

/** Undefined also for an instance of another organisation. */
export async function findShown(query: Query, orgId: string, id: string): Promise<ShownInstance | undefined> {
  const row = await query.one(ShownRow, sql`select ${SHOWN} from instances where id = ${id}`);
  return row?.org_id === orgId ? row : undefined;
}

const TimesRow = z.object({ id: text, created_ms: int, started_ms: int.nullable() });

/** Ids and times of instances of an organisation, newest first, for a page of costs. `ids`: only these instances; undefined: all. */
export async function rentalsOf(
  query: Query,
  orgId: string,
  { ids, ...start }: PageStart & { ids: readonly string[] | undefined },
): Promise<{ id: string; createdMs: number; startedMs: number | null }[]> {
  const isOneOf = ids === undefined ? sql`1 = 1` : sql`id in (${join([...ids])})`;
  const rows = await query.all(
    TimesRow,
    sql`select id, created_ms, coalesce(ready_ms, launch_ended_ms, terminated_ms) as started_ms from instances
        where org_id = ${orgId} and ${isOneOf} and ${pageFrom(start)}`,
  );
  return rows.map((row) => ({ id: row.id, createdMs: row.created_ms, startedMs: row.started_ms }));
}

/** The instances among `ids` that belong to the organisation. */
export function instancesByIds(query: Query, orgId: string, ids: readonly string[]): Promise<ShownInstance[]> {
  return query.all(ShownRow, sql`select ${SHOWN} from instances where id in (${join([...ids])}) and org_id = ${orgId}`);
}

const ReservedRow = InstanceRow.pick({ id: true, reservation_id: true, status: true, gpu_count: true });
export type ReservedRow = z.infer<typeof ReservedRow>;

/** Instances of these contracts that are not terminated, oldest first. Failed ones are included. */
export function liveOfReservations(query: Query, reservationIds: readonly string[]): Promise<ReservedRow[]> {
  if (reservationIds.length === 0) return Promise.resolve([]);
  return query.all(
    ReservedRow,
    sql`select id, reservation_id, status, gpu_count from instances
        where reservation_id in (${join([...reservationIds])}) and status not in ('stopped', 'terminated')
        order by created_ms, id`,
  );
}

export async function dueInstances(query: Query, nowMs: number, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from instances where due_ms <= ${nowMs} order by due_ms limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

export type InstancePatch = Partial<
  Pick<
    InstanceRow,
    | 'status_reason'
    | 'due_ms'
    | 'ready_ms'
    | 'auto_terminate_ms'
    | 'terminated_ms'
    | 'last_reachable_ms'
    | 'unreachable_since_ms'
  >
>;

/** The only writer of `status` (through states.ts). False if the status has changed meanwhile. */
export async function setStatus(
  tx: Tx,
  id: string,
  step: { from: InstanceState; to: InstanceState; nowMs: number; patch: InstancePatch },
): Promise<boolean> {
  const isGivenUp = LAUNCHING.has(step.from) && !LIVE.has(step.to);
  const ended = isGivenUp ? sql`, launch_ended_ms = ${step.nowMs}` : sql``;
  const changed = await tx.run(
    sql`update instances set status = ${step.to}, entered_ms = ${step.nowMs}, facts_version = facts_version + 1${ended}${assignments(step.patch)}
        where id = ${id} and status = ${step.from}`,
  );
  return changed === 1;
}

/** Changes fields within a status. False if status or facts have changed since `seen` was read. */
export async function patchInstance(tx: Tx, seen: RentalRow, patch: InstancePatch): Promise<boolean> {
  const changed = await tx.run(
    sql`update instances set facts_version = facts_version + 1${assignments(patch)}
        where id = ${seen.id} and status = ${seen.status} and facts_version = ${seen.facts_version}`,
  );
  return changed === 1;
}

export async function setName(tx: Tx, id: string, name: string | null): Promise<void> {
  await tx.run(sql`update instances set name = ${name} where id = ${id}`);
}

export interface Placement {
  machineId: string;
  supplierId: string;
  workloadId: string;
  region: string;
  priceUcentsPerHour: bigint;
  placed: Placed;
  diskGb: number | null;
  triedMachineIds: string[];
}

export async function setPlacement(tx: Tx, id: string, placement: Placement): Promise<void> {
  await tx.run(
    sql`update instances set machine_id = ${placement.machineId}, supplier_id = ${placement.supplierId},
          workload_id = ${placement.workloadId}, region = ${placement.region}, price_ucents_per_hour = ${placement.priceUcentsPerHour},
          placed = ${JSON.stringify(placement.placed)}, disk_gb = ${placement.diskGb}, tried_machine_ids = ${JSON.stringify(placement.triedMachineIds)},
          gpu_fault = null, gpu_fault_since_ms = null, gpu_whole_ms = null, main_exit = null, main_exit_ms = null
        where id = ${id}`,
  );
}

/** A fact has changed: makes the instance due for the engine. */
export async function makeDue(tx: Tx, id: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`update instances set due_ms = ${nowMs}, facts_version = facts_version + 1
        where id = ${id} and status not in ('stopped', 'terminated', 'error')`,
  );
}

function assignments(patch: InstancePatch): Sql {
  const columns = {
    status_reason: sql`status_reason`,
    due_ms: sql`due_ms`,
    ready_ms: sql`ready_ms`,
    auto_terminate_ms: sql`auto_terminate_ms`,
    terminated_ms: sql`terminated_ms`,
    last_reachable_ms: sql`last_reachable_ms`,
    unreachable_since_ms: sql`unreachable_since_ms`,
  } satisfies Record<keyof InstancePatch, Sql>;
  const given = (Object.keys(columns) as (keyof InstancePatch)[]).filter((key) => patch[key] !== undefined);
  if (given.length === 0) return sql``;
  return sql`, ${join(given.map((key) => sql`${columns[key]} = ${patch[key]}`))}`;
}

/** Stores the reason of an instance that starts or runs. In every other status the reason explains that status. */
export async function noteReason(tx: Tx, id: string, reason: string | null): Promise<void> {
  await tx.run(
    sql`update instances set status_reason = ${reason} where id = ${id} and status in ('allocating', 'starting', 'running')`,
  );
}

/** Stores how the main process has ended; null if it runs. Once the instance ends, that ends the process too, which says nothing about it. */
export async function noteExit(tx: Tx, id: string, exit: MainExit | null, nowMs: number): Promise<void> {
  const known = exit === null ? null : JSON.stringify(exit);
  await tx.run(
    sql`update instances set main_exit = ${known}, main_exit_ms = ${exit === null ? null : nowMs}
        where id = ${id} and status in ('allocating', 'starting', 'running', 'unreachable') and main_exit is distinct from ${known}`,
  );
}

/** Stores when the last good probe of each of these instances ended. */
export async function setReachable(tx: Tx, rows: readonly { id: string; goodMs: number }[]): Promise<void> {
  const values = rows.map(({ id, goodMs }) => sql`(${id}, ${goodMs})`);
  await tx.run(
    sql`update instances set last_reachable_ms = cast(given.column2 as bigint) from (values ${join(values)}) as given
        where id = given.column1 and status in ('starting', 'running', 'unreachable')`,
  );
}
