// The SQL of probes: one row for each instance that is probed. The series of a row says since when the instance is out of reach, and with which
// evidence.
import { z } from 'zod';
import { flag, int, text } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import type { Down } from '../instances/states.ts';
import { isDown, type Series } from './verdict.ts';
import { NEXT_MS_MAX, TIMED_IN_MEMORY } from './wells.ts';

const ProbeRow = z.object({
  instance_id: text,
  machine_id: text,
  /** When the next probe is due; TIMED_IN_MEMORY while probes are good. */
  next_ms: int,
  first_failure_ms: int.nullable(),
  failures: int,
  successes: int,
  last_leg: text.nullable(),
  last_detail: text.nullable(),
  /** The next three columns belong to the current series of probes, as in verdict.ts. */
  life_ms: int.nullable(),
  first_success_ms: int.nullable(),
  repair_ms: int.nullable(),
  /** When the host itself reported that the holder does not answer, and its last report. Null after a good probe. */
  host_failed_ms: int.nullable(),
  host_detail: text.nullable(),
  /** The outage is certain, but its verdict is held. */
  held: flag,
});
export type ProbeRow = z.infer<typeof ProbeRow>;

const COLUMNS = sql`instance_id, machine_id, next_ms, first_failure_ms, failures, successes, last_leg, last_detail,
  life_ms, first_success_ms, repair_ms, host_failed_ms, host_detail, held`;

/** Rows whose probes are due, those that wait longest first. A row that is due much later was written before the clock was set back. */
export function dueProbes(query: Query, nowMs: number, limit: number): Promise<ProbeRow[]> {
  return query.all(
    ProbeRow,
    sql`select ${COLUMNS} from probes
        where next_ms > ${TIMED_IN_MEMORY} and (next_ms <= ${nowMs} or next_ms > ${nowMs + NEXT_MS_MAX}) order by next_ms limit ${limit}`,
  );
}

const TimedRow = ProbeRow.pick({ instance_id: true, machine_id: true });
export type TimedRow = z.infer<typeof TimedRow>;

/** Instances after `afterId` whose next probe is timed in the memory of a process, in id order. */
export function timedInMemory(query: Query, afterId: string, limit: number): Promise<TimedRow[]> {
  return query.all(
    TimedRow,
    sql`select instance_id, machine_id from probes where next_ms = ${TIMED_IN_MEMORY} and instance_id > ${afterId}
        order by instance_id limit ${limit}`,
  );
}

export function findProbe(query: Query, instanceId: string): Promise<ProbeRow | undefined> {
  return query.one(ProbeRow, sql`select ${COLUMNS} from probes where instance_id = ${instanceId}`);
}

/** The evidence of each instance on the machine whose probes fail now. */
export async function failingProbesOf(query: Query, machineId: string): Promise<string[]> {
  const rows = await query.all(
    ProbeRow,
    sql`select ${COLUMNS} from probes where machine_id = ${machineId} and failures > 0 order by instance_id`,
  );
  return rows.map(evidenceOf);
}

const MachinesRow = z.object({ machines: int, failing: int });

const FailingRow = z.object({ failing: int });

/** Counts machines with an instance whose probes fail. */
export async function countFailing(query: Query): Promise<number> {
  const row = await query.one(
    FailingRow,
    sql`select count(distinct machine_id) as failing from probes where failures > 0`,
  );
  return row?.failing ?? 0;
}

/** Reads all rows. Counts machines with instances, and those of them with an instance whose probes fail. */
export async function countMachines(query: Query): Promise<z.infer<typeof MachinesRow>> {
  const row = await query.one(
    MachinesRow,
    sql`select count(distinct machine_id) as machines, count(distinct case when failures > 0 then machine_id end) as failing
        from probes`,
  );
  return row ?? { machines: 0, failing: 0 };
}

/** Starts the probes of an instance that has begun to run. The first probe is due at once. */
export function startSeries(tx: Tx, rental: { instanceId: string; machineId: string; nowMs: number }): Promise<void> {
  return writeProbe(tx, {
    instance_id: rental.instanceId,
    machine_id: rental.machineId,
    next_ms: rental.nowMs,
    first_failure_ms: null,
    failures: 0,
    successes: 0,
    last_leg: null,
    last_detail: null,
    life_ms: null,
    first_success_ms: null,
    repair_ms: null,
    host_failed_ms: null,
    host_detail: null,
    held: false,
  });
}

export async function writeProbe(tx: Tx, row: ProbeRow): Promise<void> {
  await tx.run(
    sql`insert into probes (${COLUMNS})
        values (${row.instance_id}, ${row.machine_id}, ${row.next_ms}, ${row.first_failure_ms}, ${row.failures}, ${row.successes}, ${row.last_leg}, ${row.last_detail},
          ${row.life_ms}, ${row.first_success_ms}, ${row.repair_ms}, ${row.host_failed_ms}, ${row.host_detail}, ${row.held})
        on conflict (instance_id) do update set next_ms = excluded.next_ms, first_failure_ms = excluded.first_failure_ms,
          failures = excluded.failures, successes = excluded.successes, last_leg = excluded.last_leg, last_detail = excluded.last_detail,
          life_ms = excluded.life_ms, first_success_ms = excluded.first_success_ms, repair_ms = excluded.repair_ms,
          host_failed_ms = excluded.host_failed_ms, host_detail = excluded.host_detail, held = excluded.held`,
  );
}

/** Notes what a host reported about an instance that runs on it, and makes its probe due now. */
export async function noteHost(
  tx: Tx,
  seen: { instanceId: string; machineId: string; failedMs: number | null; detail: string; nowMs: number },
): Promise<void> {
  await tx.run(
    sql`update probes set host_failed_ms = coalesce(host_failed_ms, ${seen.failedMs}), host_detail = ${seen.detail}, next_ms = ${seen.nowMs}
        where instance_id = ${seen.instanceId} and machine_id = ${seen.machineId}`,
  );
}

export async function forgetProbe(tx: Tx, instanceId: string): Promise<void> {
  await tx.run(sql`delete from probes where instance_id = ${instanceId}`);
}

/**
 * Since when an instance is down, also while its verdict is held; undefined if it is not down for long enough. `isAnswering`: the link of
 * its machine is up and answers.
 */
export async function downSince(
  query: Query,
  instanceId: string,
  { isAnswering, nowMs }: { isAnswering(machineId: string): boolean; nowMs: number },
): Promise<Down | undefined> {
  const row = await findProbe(query, instanceId);
  if (row === undefined || !isDown(seriesOf(row), { isAnswering: isAnswering(row.machine_id), nowMs }))
    return undefined;
  return { sinceMs: row.life_ms ?? row.first_failure_ms ?? nowMs, evidence: evidenceOf(row) };
}

export function seriesOf(row: ProbeRow): Series {
  return {
    firstFailureMs: row.first_failure_ms,
    failures: row.failures,
    lifeMs: row.life_ms,
    repairMs: row.repair_ms,
    firstSuccessMs: row.first_success_ms,
    successes: row.successes,
    isHeld: row.held,
  };
}

/** The evidence for an outage: our own probes, and what the host has reported. */
export function evidenceOf(row: ProbeRow): string {
  const at = (ms: number): string => new Date(ms).toISOString();
  const since = row.first_failure_ms === null ? '' : ` since ${at(row.first_failure_ms)}`;
  const life = row.life_ms === null ? '' : `; last proof of life ${at(row.life_ms)}`;
  const repair = row.repair_ms === null ? '' : `; the host was asked to replace its holder at ${at(row.repair_ms)}`;
  const host = row.host_detail === null ? '' : `; the host reported: ${row.host_detail}`;
  return `${row.failures} failed SSH probes${since}; last: ${row.last_detail}${life}${repair}${host}`;
}
