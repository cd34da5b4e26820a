// The SQL of workloads and of the revision of each machine.
import { z } from 'zod';
import { DesiredWorkload, ObservedWorkload } from '../../../shared/protocol/workload.ts';
import type { Revision } from '../../../shared/protocol/link.ts';
import { WORKLOADS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import { mayMove, WORKLOAD_STATES, type WorkloadState } from '../../../shared/states.ts';
import { countRow, int, json, text } from '../../base/db/columns.ts';
import { join, type Query, raw, type Sql, type Tx, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';

/**
 * A desired workload as it is stored. It has no `desired`, because the state of the row decides that. Its environment is sealed, because it may
 * hold secrets.
 */
export const WorkloadSpec = DesiredWorkload.omit({ desired: true, env: true }).extend({
  sealed_env: z.string().nullable(),
});
export type WorkloadSpec = z.infer<typeof WorkloadSpec>;

/** A document that no longer fits its schema is null. Otherwise one row would keep all others of its host from their turn. */
export function readable<T>(schema: z.ZodType<T>): z.ZodType<T | null> {
  const document = json(schema);
  return text.nullable().transform((stored) => {
    try {
      return stored === null ? null : document.parse(stored);
    } catch {
      return null;
    }
  }) as unknown as z.ZodType<T | null>;
}

const WorkloadRow = z.object({
  id: text,
  machine_id: text,
  instance_id: text,
  state: z.enum(['wanted', 'removing', 'gone']),
  /** Null if it cannot be read. Then the workload can only be removed. */
  spec: readable(WorkloadSpec),
  /** Null also if it cannot be read: the next report of the host replaces it. */
  observed: readable(ObservedWorkload),
  /** The first time that the host reported the phase `starting`. */
  starting_ms: int.nullable(),
  /** The first time that the host reported that the program of a job has ended. */
  ended_ms: int.nullable(),
  created_ms: int,
  changed_ms: int,
});
export type WorkloadRow = z.infer<typeof WorkloadRow>;

/** The program of a job has ended. The host may still send its files. */
const ENDED = new Set<ObservedWorkload['phase']>(['finishing', 'finished']);
const PositionRow = z.object({ epoch: int, revision: int });
/** The revision of a machine that never had a workload. */
const FIRST: Revision = { epoch: 1, revision: 0 };
const COLUMNS = sql`id, machine_id, instance_id, state, spec, observed, starting_ms, ended_ms, created_ms, changed_ms`;

export async function insertWorkload(tx: Tx, machineId: string, spec: WorkloadSpec, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into workloads (id, machine_id, instance_id, state, spec, created_ms, changed_ms)
        values (${spec.workload_id}, ${machineId}, ${spec.instance_id}, 'wanted', ${JSON.stringify(spec)}, ${nowMs}, ${nowMs})`,
  );
}

export function findWorkload(query: Query, id: string): Promise<WorkloadRow | undefined> {
  return query.one(WorkloadRow, sql`select ${COLUMNS} from workloads where id = ${id}`);
}

const IdRow = WorkloadRow.pick({ id: true });

/** Those of `ids` of which nothing was left on this machine. */
export async function goneAmong(tx: Tx, machineId: string, ids: readonly string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const rows = await tx.all(
    IdRow,
    sql`select id from workloads where machine_id = ${machineId} and state = 'gone' and id in (${join([...ids])}) order by id`,
  );
  return rows.map(({ id }) => id);
}

const InstanceOfRow = WorkloadRow.pick({ instance_id: true });

/** The instances of these workloads. */
export async function instancesOf(query: Query, workloadIds: readonly string[]): Promise<string[]> {
  if (workloadIds.length === 0) return [];
  const rows = await query.all(
    InstanceOfRow,
    sql`select instance_id from workloads where id in (${join([...workloadIds])})`,
  );
  return rows.map((row) => row.instance_id);
}

const PlacedRow = WorkloadRow.pick({ id: true, machine_id: true, instance_id: true });

/** The instances of the workloads of each machine, including workloads that have ended since `sinceMs`. */
export async function instancesOn(
  query: Query,
  machineIds: readonly string[],
  sinceMs: number,
): Promise<Map<string, Map<string, string>>> {
  if (machineIds.length === 0) return new Map();
  const ids = join([...machineIds]);
  const rows = await query.all(
    PlacedRow,
    sql`select id, machine_id, instance_id from workloads where machine_id in (${ids}) and state <> 'gone'
        union all
        select id, machine_id, instance_id from workloads where state = 'gone' and changed_ms > ${sinceMs} and machine_id in (${ids})`,
  );
  const found = new Map<string, Map<string, string>>();
  for (const { id, machine_id: machineId, instance_id: instanceId } of rows) {
    const own = found.get(machineId) ?? new Map<string, string>();
    found.set(machineId, own.set(id, instanceId));
  }
  return found;
}

const DesiredRow = PositionRow.extend({
  id: text.nullable(),
  state: WorkloadRow.shape.state.nullable(),
  spec: WorkloadRow.shape.spec,
});
/** A workload in the desired list. */
export type ListedRow = Pick<WorkloadRow, 'id' | 'state' | 'spec'>;

/** The live workloads of a machine and its revision, in one statement, so that the two always belong together. */
export async function desiredOf(query: Query, machineId: string): Promise<Revision & { rows: ListedRow[] }> {
  const found = await query.all(
    DesiredRow,
    sql`select m.epoch, m.revision, w.id, w.state, w.spec
        from workload_machines m left join workloads w on w.machine_id = m.machine_id and w.state <> 'gone'
        where m.machine_id = ${machineId} order by w.created_ms, w.id`,
  );
  const { epoch, revision } = found[0] ?? FIRST;
  const rows = found.flatMap(({ id, state, spec }) => (id === null || state === null ? [] : [{ id, state, spec }]));
  return { epoch, revision, rows };
}

const RanRow = WorkloadRow.pick({
  id: true,
  instance_id: true,
  state: true,
  spec: true,
  created_ms: true,
  changed_ms: true,
});
export type RanRow = z.infer<typeof RanRow>;

/** The workloads that were placed on the machine, newest first, as far back as rows are kept. */
export function ranOn(query: Query, machineId: string, start: PageStart): Promise<RanRow[]> {
  return query.all(
    RanRow,
    sql`select id, instance_id, state, spec, created_ms, changed_ms from workloads
        where machine_id = ${machineId} and ${pageFrom(start)}`,
  );
}

const LiveRow = WorkloadRow.pick({ id: true, instance_id: true, state: true });

export function liveOn(query: Query, machineId: string): Promise<z.infer<typeof LiveRow>[]> {
  return query.all(
    LiveRow,
    sql`select id, instance_id, state from workloads where machine_id = ${machineId} and state <> 'gone' order by created_ms, id`,
  );
}

/** The condition for a machine that may get one more container, on its row of `machines`. */
export const hasCapacity: Sql = sql`(
  select count(*) from workloads where workloads.machine_id = machines.id and state <> 'gone') < ${raw(String(WORKLOADS_PER_MACHINE_MAX))}`;

export async function countLive(query: Query, machineId: string): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from workloads where machine_id = ${machineId} and state <> 'gone'`,
  );
  return row?.count ?? 0;
}

export async function setSpec(tx: Tx, id: string, spec: WorkloadSpec): Promise<void> {
  await tx.run(sql`update workloads set spec = ${JSON.stringify(spec)} where id = ${id}`);
}

/** The only writer of `state`. Stores the `spec` too, if one is given. False if the row is in another state now. */
export async function move(
  tx: Tx,
  id: string,
  step: { from: WorkloadState; to: WorkloadState; nowMs: number; spec?: WorkloadSpec },
): Promise<boolean> {
  if (!mayMove(WORKLOAD_STATES, step.from, step.to))
    throw new Error(`a workload cannot go from ${step.from} to ${step.to}`);
  const spec = step.spec === undefined ? sql`` : sql`, spec = ${JSON.stringify(step.spec)}`;
  const changed = await tx.run(
    sql`update workloads set state = ${step.to}, changed_ms = ${step.nowMs}${spec} where id = ${id} and state = ${step.from}`,
  );
  return changed === 1;
}

export async function setObserved(tx: Tx, id: string, observed: ObservedWorkload, nowMs: number): Promise<void> {
  await tx.run(
    sql`update workloads set observed = ${JSON.stringify(observed)}, changed_ms = ${nowMs},
        starting_ms = coalesce(starting_ms, ${observed.phase === 'starting' ? nowMs : null}),
        ended_ms = coalesce(ended_ms, ${ENDED.has(observed.phase) ? nowMs : null}) where id = ${id}`,
  );
}

/**
 * Raises the machine's revision to the current time in ms, but at least by one. So after a restore, revisions start above every revision
 * that the host has seen. Otherwise the host would mistake a new decision for an old one.
 */
export async function bumpRevision(tx: Tx, machineId: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into workload_machines (machine_id, epoch, revision) values (${machineId}, 1, ${nowMs})
        on conflict (machine_id) do update set revision =
          case when workload_machines.revision < excluded.revision then excluded.revision else workload_machines.revision + 1 end`,
  );
}

export async function position(query: Query, machineId: string): Promise<Revision> {
  const row = await query.one(
    PositionRow,
    sql`select epoch, revision from workload_machines where machine_id = ${machineId}`,
  );
  return row ?? FIRST;
}

export async function setPosition(tx: Tx, machineId: string, to: Revision): Promise<void> {
  await tx.run(
    sql`insert into workload_machines (machine_id, epoch, revision) values (${machineId}, ${to.epoch}, ${to.revision})
        on conflict (machine_id) do update set epoch = excluded.epoch, revision = excluded.revision`,
  );
}
