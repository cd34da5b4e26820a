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
  const fromMs = windowStart(nowMs);
  const links = await query.all(LinkRow, sql`select ${LINK} from machine_links where machine_id in (${join(ids)})`);
  const days = await query.all(
    DaysRow,
    sql`select machine_id, cast(sum(linked_ms) as bigint) as linked_ms, cast(sum(launches) as bigint) as launches,
          cast(sum(failed_launches) as bigint) as failed_launches
        from machine_days where machine_id in (${join(ids)}) and day_ms >= ${fromMs} group by machine_id`,
  );
  const charged = await chargedOnMachines(query, ids, { sinceMs: fromMs, nowMs });
  return new Map(
    machines.map(({ id, gpus }) => {
      const link = links.find((row) => row.machine_id === id);
      const day = days.find((row) => row.machine_id === id);
      return [id, numbersOf({ link, day, gpus, chargedMs: charged.get(id) ?? 0 }, nowMs)];
    }),
  );
}

interface Facts {
  link: LinkRow | undefined;
  day: z.infer<typeof DaysRow> | undefined;
  gpus: number;
  chargedMs: number;
}

/** Computes the shown numbers from the facts. Pure. */
function numbersOf({ link, day, gpus, chargedMs }: Facts, nowMs: number): MachineReliability {
  const launches = day?.launches ?? 0;
  const failed = day?.failed_launches ?? 0;
  const launched = { launches, failed_launches: failed, failed_launch_share: shareOf(failed, launches) };
  if (link === undefined) return { since: null, uptime: null, ...launched, rented: null };
  const fromMs = Math.max(link.first_ms, windowStart(nowMs));
  const lengthMs = nowMs - fromMs;
  const openMs = link.since_ms === null ? 0 : nowMs - Math.max(link.since_ms, fromMs);
  return {
    since: isoTime(fromMs),
    uptime: shareOf((day?.linked_ms ?? 0) + openMs, lengthMs),
    ...launched,
    rented: shareOf(chargedMs, lengthMs * gpus),
  };
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
