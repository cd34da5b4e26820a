// How reliable a machine was in the last 30 UTC days, today included: counters by day, written when something happens.
//
//   uptime                link time / time since the first link or since the window began, whichever is later
//   failed launches       launches that their host failed / all launches that it failed or brought to run
//   rented                charged GPU time / GPU time of all its GPUs since the same begin
//
// A link writes once when it comes and once when it goes. The present link of a machine is added when the numbers are read. If the control plane
// itself was away, a link that a machine had before counts as if it had lasted.
import { z } from 'zod';
import type { MachineReliability } from '../../../shared/api/community.ts';
import { isoTime } from '../../../shared/clock.ts';
import { int, text } from '../../base/db/columns.ts';
import { join, type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';
import { chargedOnMachines } from '../../money/metering/store.ts';

const DAY_MS = 86_400_000;
/** Length of the window in days, today included. */
const DAYS = 30;
const DECIMALS = 10_000;
/** What customers see has thousandths, so that it rarely changes. */
const SHOWN_DECIMALS = 1_000;
/** A host that came a minute ago has had a link all the time. That says nothing, and would put each new host above those that are proven. */
const KNOWN_AFTER_MS = DAY_MS;
/** A single failed launch would be a large share of fewer launches. */
const LAUNCHES_MIN = 5;

const dayOf = (ms: number): number => Math.floor(ms / DAY_MS) * DAY_MS;
const windowStart = (nowMs: number): number => dayOf(nowMs) - (DAYS - 1) * DAY_MS;

const LinkRow = z.object({ machine_id: text, first_ms: int, since_ms: int.nullable() });
type LinkRow = z.infer<typeof LinkRow>;
const LINK = sql`machine_id, first_ms, since_ms`;

/** Notes that the machine has a link. A second call while it has one changes nothing. */
export async function noteLinkUp(tx: Tx, machineId: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into machine_links (${LINK}) values (${machineId}, ${nowMs}, ${nowMs})
        on conflict (machine_id) do update set since_ms = excluded.since_ms where machine_links.since_ms is null`,
  );
}

/** Notes that the machine has no link any more. A second call changes nothing. */
export async function noteLinkDown(tx: Tx, machineId: string, nowMs: number): Promise<void> {
  const links = await tx.all(LinkRow, sql`select ${LINK} from machine_links where machine_id = ${machineId}`);
  await endLinks(tx, links, nowMs);
}

/** Notes that no machine has a link any more. While the control plane was away, the links that it had before count until now. */
export async function noteAllLinksDown(tx: Tx, nowMs: number): Promise<void> {
  await endLinks(tx, await tx.all(LinkRow, sql`select ${LINK} from machine_links where since_ms is not null`), nowMs);
}

async function endLinks(tx: Tx, links: readonly LinkRow[], nowMs: number): Promise<void> {
  for (const { machine_id: machineId, since_ms: sinceMs } of links) {
    if (sinceMs === null) continue;
    const days = linkedByDay(Math.max(sinceMs, windowStart(nowMs)), nowMs);
    const rows = days.map(({ dayMs, linkedMs }) => sql`(${machineId}, ${dayMs}, ${linkedMs})`);
    if (rows.length > 0) {
      await tx.run(
        sql`insert into machine_days (machine_id, day_ms, linked_ms) values ${join(rows)}
            on conflict (machine_id, day_ms) do update set linked_ms = machine_days.linked_ms + excluded.linked_ms`,
      );
    }
    await tx.run(sql`update machine_links set since_ms = null where machine_id = ${machineId}`);
  }
}

/** Divides a time into its parts on each UTC day. Pure. */
export function linkedByDay(fromMs: number, untilMs: number): { dayMs: number; linkedMs: number }[] {
  const days: { dayMs: number; linkedMs: number }[] = [];
  for (let atMs = fromMs; atMs < untilMs;) {
    const endMs = Math.min(dayOf(atMs) + DAY_MS, untilMs);
    days.push({ dayMs: dayOf(atMs), linkedMs: endMs - atMs });
    atMs = endMs;
  }
  return days;
}

/**
 * Counts a launch on the machine that has come to run, or that its host has failed. Launches that the customer cancelled, or whose image is
 * wrong, are not counted.
 */
export async function countLaunch(
  tx: Tx,
  machineId: string,
  { failed, nowMs }: { failed: boolean; nowMs: number },
): Promise<void> {
  await tx.run(
    sql`insert into machine_days (machine_id, day_ms, launches, failed_launches) values (${machineId}, ${dayOf(nowMs)}, 1, ${failed ? 1 : 0})
        on conflict (machine_id, day_ms) do update set launches = machine_days.launches + 1,
          failed_launches = machine_days.failed_launches + excluded.failed_launches`,
  );
}

const DaysRow = z.object({ machine_id: text, linked_ms: int, launches: int, failed_launches: int });

/** The reliability of each machine by id. `gpus` is the number of GPUs of the machine. */
export async function reliabilityOf(
  query: Query,
  machines: readonly { id: string; gpus: number }[],
  nowMs: number,
): Promise<Map<string, MachineReliability>> {
  if (machines.length === 0) return new Map();
  const ids = machines.map(({ id }) => id);
  const countedOf = await counters(query, ids, nowMs);
  const charged = await chargedOnMachines(query, ids, { sinceMs: windowStart(nowMs), nowMs });
  return new Map(
    machines.map(({ id, gpus }) => {
      const { link, launches, failed, uptime } = countedOf(id);
      const fromMs = link === undefined ? undefined : startOf(link, nowMs);
      const numbers = {
        since: fromMs === undefined ? null : isoTime(fromMs),
        uptime,
        launches,
        failed_launches: failed,
        failed_launch_share: shareOf(failed, launches),
        rented: fromMs === undefined ? null : shareOf(charged.get(id) ?? 0, (nowMs - fromMs) * gpus),
      };
      return [id, numbers];
    }),
  );
}

/** What customers see of a machine, in hundredths of a percent. Null: too little is known. */
export interface ShownReliability {
  /** It is rounded down to thousandths, so that a machine with 0.9989 does not meet 0.999. */
  uptimeBps: number | null;
  failedLaunchShareBps: number | null;
}

/** What customers see of each machine, by its id. `machineIds`: at least one. */
export async function shownReliabilityOf(
  query: Query,
  machineIds: readonly string[],
  nowMs: number,
): Promise<Map<string, ShownReliability>> {
  const countedOf = await counters(query, machineIds, nowMs);
  const bps = (thousandths: number): number => (thousandths * DECIMALS) / SHOWN_DECIMALS;
  return new Map(
    machineIds.map((id) => {
      const { link, uptime, launches, failed } = countedOf(id);
      const isKnown = link !== undefined && nowMs - link.first_ms >= KNOWN_AFTER_MS;
      const share = launches < LAUNCHES_MIN ? null : failed / launches;
      const shown = {
        uptimeBps: isKnown && uptime !== null ? bps(Math.floor(uptime * SHOWN_DECIMALS)) : null,
        failedLaunchShareBps: share === null ? null : bps(Math.round(share * SHOWN_DECIMALS)),
      };
      return [id, shown];
    }),
  );
}

interface Counted {
  link: LinkRow | undefined;
  /** A share from 0 to 1; null before the first link. */
  uptime: number | null;
  launches: number;
  failed: number;
}

/** Reads the counters of these machines in the window. The result has them by id. */
async function counters(query: Query, ids: readonly string[], nowMs: number): Promise<(id: string) => Counted> {
  const which = join([...ids]);
  const links = await query.all(LinkRow, sql`select ${LINK} from machine_links where machine_id in (${which})`);
  const days = await query.all(
    DaysRow,
    sql`select machine_id, cast(sum(linked_ms) as bigint) as linked_ms, cast(sum(launches) as bigint) as launches,
          cast(sum(failed_launches) as bigint) as failed_launches
        from machine_days where machine_id in (${which}) and day_ms >= ${windowStart(nowMs)} group by machine_id`,
  );
  return (id) => {
    const link = links.find((row) => row.machine_id === id);
    const {
      linked_ms: linkedMs = 0,
      launches = 0,
      failed_launches: failed = 0,
    } = days.find((row) => row.machine_id === id) ?? {};
    return { link, uptime: link === undefined ? null : uptimeOf(link, linkedMs, nowMs), launches, failed };
  };
}

/** Uptime of a machine whose ended links lasted `linkedMs` in the window. Pure. */
function uptimeOf(link: LinkRow, linkedMs: number, nowMs: number): number | null {
  const fromMs = startOf(link, nowMs);
  const openMs = link.since_ms === null ? 0 : nowMs - Math.max(link.since_ms, fromMs);
  return shareOf(linkedMs + openMs, nowMs - fromMs);
}

/** Time from which a machine is counted. */
function startOf({ first_ms: firstMs }: LinkRow, nowMs: number): number {
  return Math.max(firstMs, windowStart(nowMs));
}

/** The share of `part` in `whole`: from 0 to 1, with four decimals; null if `whole` is 0. */
function shareOf(part: number, whole: number): number | null {
  return whole <= 0 ? null : Math.min(1, Math.max(0, Math.round((part / whole) * DECIMALS) / DECIMALS));
}

/** Deletes days that count no longer. Returns their number. */
export function forgetDays(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from machine_days where (machine_id, day_ms) in (
          select machine_id, day_ms from machine_days where day_ms <= ${untilMs} order by day_ms limit ${limit})`,
  );
}
