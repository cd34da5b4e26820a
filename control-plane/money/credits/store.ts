// The SQL of uncharged time, held amounts, and flagged organisations.
import { z } from 'zod';
import { countRow, int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql, type Tx } from '../../base/db/db.ts';
import { type Cursor, pageBy, type PageStart } from '../../base/http/cursors.ts';

const FreeTimeRow = z.object({
  id: text,
  subject_id: text,
  org_id: text,
  supplier_id: text,
  machine_id: text,
  cause: z.enum(['outage', 'gpu_fault', 'own_outage']),
  rate_ucents_per_hour: ucents,
  supplier_bps: int,
  from_ms: int,
  counted_ms: int,
  counted_at_ms: int,
  ended_ms: int.nullable(),
  free_ms: int.nullable(),
  granted_ucents: ucents,
  held_ucents: ucents,
  evidence: text,
  /** What operators see as one outage; see outages.ts. */
  outage_id: text,
});
export type FreeTime = z.infer<typeof FreeTimeRow>;

const HeldRow = z.object({
  id: text,
  kind: z.enum(['credit', 'payment']),
  why: z.enum(['flagged', 'org_bound', 'supplier_bound']),
  free_time_id: text.nullable(),
  cause: text,
  subject_id: text,
  org_id: text,
  supplier_id: text,
  amount_ucents: ucents,
  wallet_ucents: ucents,
  supplier_bps: int,
  from_ms: int,
  until_ms: int,
  evidence: text,
  state: z.enum(['held', 'released', 'refused']),
  note: text.nullable(),
  created_ms: int,
  decided_ms: int.nullable(),
});
export type HeldCredit = z.infer<typeof HeldRow>;

const FREE_TIME = sql`id, subject_id, org_id, supplier_id, machine_id, cause, rate_ucents_per_hour, supplier_bps, from_ms, counted_ms,
  counted_at_ms, ended_ms, free_ms, granted_ucents, held_ucents, evidence, outage_id`;
const HELD = sql`id, kind, why, free_time_id, cause, subject_id, org_id, supplier_id, amount_ucents, wallet_ucents, supplier_bps, from_ms,
  until_ms, evidence, state, note, created_ms, decided_ms`;

/** If the rental is uncharged already, this extends that time: it adds the counted time and may move the start back. */
export async function beginFreeTime(tx: Tx, row: FreeTime): Promise<void> {
  await tx.run(
    sql`insert into free_times (${FREE_TIME})
        values (${row.id}, ${row.subject_id}, ${row.org_id}, ${row.supplier_id}, ${row.machine_id}, ${row.cause},
          ${row.rate_ucents_per_hour}, ${row.supplier_bps}, ${row.from_ms}, ${row.counted_ms}, ${row.counted_at_ms}, null, null, 0, 0,
          ${row.evidence}, ${row.outage_id})
        on conflict (subject_id) where ended_ms is null do update set counted_ms = free_times.counted_ms + excluded.counted_ms,
          from_ms = case when excluded.from_ms < free_times.from_ms then excluded.from_ms else free_times.from_ms end`,
  );
}

/** Shortens all uncharged times that have not ended. */
export async function shortenFreeTimes(tx: Tx, ms: number): Promise<void> {
  await tx.run(sql`update free_times set counted_ms = counted_ms - ${ms} where ended_ms is null`);
}

export function openFreeTime(query: Query, subjectId: string): Promise<FreeTime | undefined> {
  return query.one(
    FreeTimeRow,
    sql`select ${FREE_TIME} from free_times where subject_id = ${subjectId} and ended_ms is null`,
  );
}

export async function endFreeTime(
  tx: Tx,
  id: string,
  end: { endedMs: number; freeMs: number; grantedUcents: bigint; heldUcents: bigint },
): Promise<void> {
  await tx.run(
    sql`update free_times set ended_ms = ${end.endedMs}, free_ms = ${end.freeMs}, granted_ucents = ${end.grantedUcents},
          held_ucents = ${end.heldUcents}
        where id = ${id}`,
  );
}

/** The uncharged times of a rental, oldest first. */
export function freeTimesOf(query: Query, subjectId: string): Promise<FreeTime[]> {
  return freeTimesWhere(query, sql`subject_id = ${subjectId} order by from_ms, id`);
}

/** The uncharged times of these rentals that last or ended after `sinceMs`, oldest first. */
export function freeTimesSince(query: Query, subjectIds: readonly string[], sinceMs: number): Promise<FreeTime[]> {
  if (subjectIds.length === 0) return Promise.resolve([]);
  const isRecent = sql`(ended_ms is null or ended_ms > ${sinceMs})`;
  return freeTimesWhere(query, sql`subject_id in (${join([...subjectIds])}) and ${isRecent} order by from_ms, id`);
}

/** A page of all uncharged times, in the order of ids. */
export function freeTimesAfter(query: Query, afterId: string, limit: number): Promise<FreeTime[]> {
  return freeTimesWhere(query, sql`id > ${afterId} order by id limit ${limit}`);
}

/** `which`: the condition and the order. */
export function freeTimesWhere(query: Query, which: Sql): Promise<FreeTime[]> {
  return query.all(FreeTimeRow, sql`select ${FREE_TIME} from free_times where ${which}`);
}

const SumRow = z.object({ total_ucents: ucents });

/** The amount granted at once to the organisation, for times that ended after `sinceMs`. */
export function grantedToOrg(query: Query, orgId: string, sinceMs: number): Promise<bigint> {
  return granted(query, sql`org_id = ${orgId} and ended_ms > ${sinceMs}`);
}

/**
 * The amount that the supplier lost for uncharged times that ended after `sinceMs`. Our own outages do not count, because the supplier is
 * paid for them.
 */
export function grantedOnSupplier(query: Query, supplierId: string, sinceMs: number): Promise<bigint> {
  return granted(query, sql`supplier_id = ${supplierId} and ended_ms > ${sinceMs} and cause <> 'own_outage'`);
}

async function granted(query: Query, which: Sql): Promise<bigint> {
  const row = await query.one(
    SumRow,
    sql`select cast(coalesce(sum(granted_ucents), 0) as bigint) as total_ucents from free_times where ${which}`,
  );
  return row?.total_ucents ?? 0n;
}

const MachineRow = z.object({ machine_id: text });

/** The machine of each outage of the organisation that ended after `sinceMs`. */
export async function outagesOfOrg(query: Query, orgId: string, sinceMs: number): Promise<string[]> {
  const rows = await query.all(
    MachineRow,
    sql`select machine_id from free_times where org_id = ${orgId} and cause = 'outage' and ended_ms > ${sinceMs} order by id`,
  );
  return rows.map((row) => row.machine_id);
}

/** Machines on which a rental of another organisation had an outage that ended after `sinceMs` or still lasts. */
export async function machinesThatFailedOthers(query: Query, orgId: string, sinceMs: number): Promise<Set<string>> {
  const mine = sql`select machine_id from free_times where org_id = ${orgId} and cause = 'outage' and ended_ms > ${sinceMs}`;
  const rows = await query.all(
    MachineRow,
    sql`select distinct machine_id from free_times
        where machine_id in (${mine}) and org_id <> ${orgId} and cause = 'outage' and (ended_ms is null or ended_ms > ${sinceMs})`,
  );
  return new Set(rows.map((row) => row.machine_id));
}

export async function insertHeld(tx: Tx, row: HeldCredit): Promise<void> {
  await tx.run(
    sql`insert into held_credits (${HELD})
        values (${row.id}, ${row.kind}, ${row.why}, ${row.free_time_id}, ${row.cause}, ${row.subject_id}, ${row.org_id}, ${row.supplier_id},
          ${row.amount_ucents}, ${row.wallet_ucents}, ${row.supplier_bps}, ${row.from_ms}, ${row.until_ms}, ${row.evidence}, ${row.state},
          ${row.note}, ${row.created_ms}, ${row.decided_ms})`,
  );
}

export function findHeld(query: Query, id: string): Promise<HeldCredit | undefined> {
  return query.one(HeldRow, sql`select ${HELD} from held_credits where id = ${id}`);
}

export async function decideHeld(
  tx: Tx,
  id: string,
  decision: { state: 'released' | 'refused'; note: string; nowMs: number },
): Promise<void> {
  await tx.run(
    sql`update held_credits set state = ${decision.state}, note = ${decision.note}, decided_ms = ${decision.nowMs} where id = ${id}`,
  );
}

/** A page: waiting rows first, then decided ones, each newest first. */
export function pageOfHeld(query: Query, { from, count }: PageStart): Promise<HeldCredit[]> {
  const waits = sql`(case when state = 'held' then 1 else 0 end)`;
  const isAfter =
    from === undefined
      ? sql`1 = 1`
      : sql`(${waits}, created_ms, id) < (${from.id.startsWith(WAITS) ? 1 : 0}, ${from.createdMs}, ${from.id.slice(1)})`;
  return query.all(
    HeldRow,
    sql`select ${HELD} from held_credits where ${isAfter} order by ${waits} desc, created_ms desc, id desc limit ${count}`,
  );
}

const WAITS = '+';

/** The cursor of a row in the list of `pageOfHeld`. The first character of its id says whether the row waits for a decision. */
export function placeOfHeld({ state, created_ms: createdMs, id }: HeldCredit): Cursor {
  return { createdMs, id: `${state === 'held' ? WAITS : '-'}${id}` };
}

/** The held credits and payments of one rental, oldest first. */
export function heldOf(query: Query, subjectId: string): Promise<HeldCredit[]> {
  return heldWhere(query, sql`subject_id = ${subjectId} order by created_ms, id`);
}

/** What the wallet gets back for this rental if the operator releases all its credits that wait for a decision. */
export async function waitingCreditOf(query: Query, subjectId: string): Promise<bigint> {
  const waiting = (await heldOf(query, subjectId)).filter(({ state }) => state === 'held');
  return waiting.reduce((sum, { wallet_ucents: ucents }) => sum + ucents, 0n);
}

/** The held credits and payments that wait for a decision, oldest first. */
export function oldestHeld(query: Query, limit: number): Promise<HeldCredit[]> {
  return heldWhere(query, sql`state = 'held' order by created_ms, id limit ${limit}`);
}

/** `which`: the condition and the order. */
export function heldWhere(query: Query, which: Sql): Promise<HeldCredit[]> {
  return query.all(HeldRow, sql`select ${HELD} from held_credits where ${which}`);
}

/** A page of all held amounts, decided ones too, in the order of ids. */
export function heldAfter(query: Query, afterId: string, limit: number): Promise<HeldCredit[]> {
  return heldWhere(query, sql`id > ${afterId} order by id limit ${limit}`);
}

export async function heldWithIds(query: Query, ids: readonly string[]): Promise<HeldCredit[]> {
  return ids.length === 0 ? [] : heldWhere(query, sql`id in (${join([...ids])})`);
}

/** The held amounts of these times. The subjects are there for the index. */
export async function heldForTimes(query: Query, times: readonly FreeTime[]): Promise<HeldCredit[]> {
  if (times.length === 0) return [];
  const of = (ids: string[]): Sql => join([...new Set(ids)]);
  return heldWhere(
    query,
    sql`subject_id in (${of(times.map((time) => time.subject_id))}) and free_time_id in (${of(times.map(({ id }) => id))})`,
  );
}

const WaitingRow = z.object({ kind: text, count: int, total_ucents: ucents });

export function countHeld(query: Query): Promise<z.infer<typeof WaitingRow>[]> {
  return query.all(
    WaitingRow,
    sql`select kind, count(*) as count, cast(sum(amount_ucents) as bigint) as total_ucents from held_credits
        where state = 'held' group by kind order by kind`,
  );
}

const FlagRow = z.object({
  org_id: text,
  flagged_ms: int.nullable(),
  trusted_ms: int.nullable(),
  detail: text,
});
export type CreditFlag = z.infer<typeof FlagRow>;
const FLAG = sql`org_id, flagged_ms, trusted_ms, detail`;

export function findFlag(query: Query, orgId: string): Promise<CreditFlag | undefined> {
  return query.one(FlagRow, sql`select ${FLAG} from credit_flags where org_id = ${orgId}`);
}

export async function writeFlag(tx: Tx, row: CreditFlag): Promise<void> {
  await tx.run(
    sql`insert into credit_flags (${FLAG}) values (${row.org_id}, ${row.flagged_ms}, ${row.trusted_ms}, ${row.detail})
        on conflict (org_id) do update set flagged_ms = excluded.flagged_ms, trusted_ms = excluded.trusted_ms, detail = excluded.detail`,
  );
}

/** A page of the organisations that are flagged now, newest flag first. */
export function pageOfFlags(query: Query, start: PageStart): Promise<CreditFlag[]> {
  const page = pageBy(start, { time: sql`flagged_ms`, id: sql`org_id` });
  return query.all(FlagRow, sql`select ${FLAG} from credit_flags where flagged_ms is not null and ${page}`);
}

export async function countFlags(query: Query): Promise<number> {
  const row = await query.one(countRow, sql`select count(*) as count from credit_flags where flagged_ms is not null`);
  return row?.count ?? 0;
}
