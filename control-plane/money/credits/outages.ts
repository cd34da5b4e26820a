// Outages as operators see them: one row for the uncharged times of all rentals that one cause has stopped, and what these times gave.
import { z } from 'zod';
import { idRow, int, text, ucents } from '../../base/db/columns.ts';
import { join, type Query, type Sql, sql, type Tx } from '../../base/db/db.ts';
import { pageBy, type PageStart } from '../../base/http/cursors.ts';
import { type FreeTime, freeTimesWhere, type HeldCredit, heldWhere } from './store.ts';

const OutageRow = z.object({
  id: text,
  cause: z.enum(['outage', 'gpu_fault', 'own_outage']),
  /** Null for an outage of our own. */
  machine_id: text.nullable(),
  evidence: text,
  opened_ms: int,
});
export type OutageRow = z.infer<typeof OutageRow>;
const OUTAGE = sql`id, cause, machine_id, evidence, opened_ms`;

type Opening = Pick<FreeTime, 'subject_id' | 'cause' | 'machine_id' | 'evidence'>;

/**
 * Returns the id of the outage that a new uncharged time belongs to. If the rental is uncharged already, it is the outage of that time.
 * Otherwise it is our own outage with the same evidence, or the outage that has stopped other rentals on the machine. If there is none, a
 * new one is made. The transaction has locked the supplier of the machine. So two rentals of the machine that fail at the same moment get
 * the same outage. Only lists of outages depend on this id.
 */
export async function outageOf(
  tx: Tx,
  time: Opening,
  { newId, nowMs }: { newId: string; nowMs: number },
): Promise<string> {
  const { subject_id: subjectId, cause, machine_id: machineId, evidence } = time;
  const isOurs = cause === 'own_outage';
  const known = isOurs
    ? sql`select id from outages where cause = 'own_outage' and evidence = ${evidence}`
    : sql`select outage_id as id from free_times where machine_id = ${machineId} and ended_ms is null and cause = ${cause} order by id limit 1`;
  const mine = sql`select outage_id as id from free_times where subject_id = ${subjectId} and ended_ms is null`;
  const found = (await tx.one(idRow, mine)) ?? (await tx.one(idRow, known));
  if (found !== undefined) return found.id;
  await tx.run(
    sql`insert into outages (${OUTAGE}) values (${newId}, ${cause}, ${isOurs ? null : machineId}, ${evidence}, ${nowMs})
        on conflict do nothing`,
  );
  return isOurs ? ((await tx.one(idRow, known))?.id ?? newId) : newId;
}

export interface OutageFilter {
  machineId: string | undefined;
  /** True: only outages that have not ended. */
  isOpen: boolean;
}

/** A page, newest first. */
export function pageOfOutages(
  query: Query,
  { machineId, isOpen }: OutageFilter,
  start: PageStart,
): Promise<OutageRow[]> {
  const machine = machineId === undefined ? sql`1 = 1` : sql`machine_id = ${machineId}`;
  const open = isOpen
    ? sql`id in (select outage_id from free_times where ended_ms is null and subject_id > '')`
    : sql`1 = 1`;
  const page = pageBy(start, { time: sql`opened_ms`, id: sql`id` });
  return query.all(OutageRow, sql`select ${OUTAGE} from outages where ${machine} and ${open} and ${page}`);
}

export function findOutage(query: Query, id: string): Promise<OutageRow | undefined> {
  return query.one(OutageRow, sql`select ${OUTAGE} from outages where id = ${id}`);
}

const SumRow = z.object({
  outage_id: text,
  rentals: int,
  open: int,
  from_ms: int,
  until_ms: int.nullable(),
  granted_ucents: ucents,
  held_ucents: ucents,
});
export type OutageSum = z.infer<typeof SumRow>;

/** The number of rentals, the time span and the amounts of all uncharged times of each outage. */
export async function sumsOfOutages(query: Query, ids: readonly string[]): Promise<Map<string, OutageSum>> {
  if (ids.length === 0) return new Map();
  const rows = await query.all(
    SumRow,
    sql`select outage_id, count(distinct subject_id) as rentals, cast(sum(case when ended_ms is null then 1 else 0 end) as bigint) as open,
          min(from_ms) as from_ms, max(ended_ms) as until_ms, cast(sum(granted_ucents) as bigint) as granted_ucents,
          cast(sum(held_ucents) as bigint) as held_ucents
        from free_times where outage_id in (${join([...ids])}) group by outage_id`,
  );
  return new Map(rows.map((row) => [row.outage_id, row]));
}

/** Maximum number of outages in the overview of a day. */
const SPANS_MAX = 200;
const OPEN_TIMES_MAX = 10_000;

export interface OutageSpan extends Pick<OutageRow, 'id' | 'cause'> {
  fromMs: number;
  /** Null while the outage lasts. */
  untilMs: number | null;
  grantedUcents: bigint;
}

/** The outages that have not ended or that began after `sinceMs`, each with the time span of all its rentals. */
export async function outagesSince(query: Query, sinceMs: number): Promise<OutageSpan[]> {
  const open = sql`select distinct outage_id as id from (
    select outage_id from free_times where ended_ms is null and subject_id > '' limit ${OPEN_TIMES_MAX}) as open_times limit ${SPANS_MAX}`;
  const lasting = (await query.all(idRow, open)).map(({ id }) => id);
  const rows = [
    ...(lasting.length === 0
      ? []
      : await query.all(OutageRow, sql`select ${OUTAGE} from outages where id in (${join(lasting)})`)),
    ...(await query.all(
      OutageRow,
      sql`select ${OUTAGE} from outages where opened_ms > ${sinceMs} order by opened_ms desc, id desc limit ${SPANS_MAX}`,
    )),
  ];
  const unique = [...new Map(rows.map((row) => [row.id, row])).values()];
  const sums = await sumsOfOutages(
    query,
    unique.map(({ id }) => id),
  );
  return unique.flatMap(({ id, cause }) => {
    const sum = sums.get(id);
    if (sum === undefined) return [];
    const untilMs = sum.open > 0 ? null : sum.until_ms;
    return [{ id, cause, fromMs: sum.from_ms, untilMs, grantedUcents: sum.granted_ucents }];
  });
}

/** All uncharged times of these outages, oldest first. */
export function timesOfOutages(query: Query, ids: readonly string[]): Promise<FreeTime[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return freeTimesWhere(query, sql`outage_id in (${join([...ids])}) order by from_ms, id`);
}

/** Maximum number of uncharged times of one outage that a page shows. */
const TIMES_SHOWN_MAX = 200;

/** The uncharged times of an outage, oldest first, and the credits for them that are held for the operator. */
export async function timesOfOutage(query: Query, id: string): Promise<{ times: FreeTime[]; held: HeldCredit[] }> {
  const times = await freeTimesWhere(query, sql`outage_id = ${id} order by from_ms, id limit ${TIMES_SHOWN_MAX}`);
  return { times, held: await heldOfTimes(query, times) };
}

function heldOfTimes(query: Query, times: readonly FreeTime[]): Promise<HeldCredit[]> {
  const withHeld = times.filter((time) => time.held_ucents > 0n);
  if (withHeld.length === 0) return Promise.resolve([]);
  const of = (ids: readonly string[]): Sql => join([...ids]);
  const which = sql`subject_id in (${of([...new Set(withHeld.map((time) => time.subject_id))])})
    and free_time_id in (${of(withHeld.map(({ id }) => id))})`;
  return heldWhere(query, sql`${which} order by created_ms, id`);
}
