// GET /v1/community/earnings (specification 2.17).
import { z } from 'zod';
import { CommunityEarnings, type EarningsEntry, EarningsQuery } from '../../../shared/api/community.ts';
import { isoTime } from '../../../shared/clock.ts';
import { uuidOf } from '../../../shared/ids.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Cursor, Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { isDisputed } from './disputes.ts';
import type { Earning, Walk } from './earnings.ts';
import type { Payouts } from './payouts.ts';

/** The fields of the last entry that a cursor stores. */
const LastEntry = z.strictObject({ id: z.string(), total: z.string(), least: z.string() });

export interface EarningsRouteDeps {
  db: Db;
  cursors: Cursors;
  payouts: Payouts;
  /** The supplier that the organisation is; undefined if it is not a supplier. */
  supplierOf(query: Query, orgId: string): Promise<string | undefined>;
  /** The machine on which each instance ran. */
  machinesOf(query: Query, instanceIds: readonly string[]): Promise<Map<string, string>>;
  /** Ids of everything that ran on these machines. */
  subjectsOf(query: Query, machineIds: readonly string[]): Promise<string[]>;
}

export function earningsRoute({ db, cursors, payouts, supplierOf, machinesOf, subjectsOf }: EarningsRouteDeps): Route {
  return route({
    method: 'GET',
    tag: 'Community supply',
    scope: 'supply:read',
    idempotency: 'none',
    path: '/v1/community/earnings',
    operationId: 'listEarnings',
    summary: 'What your machines earned, newest first',
    description:
      'Entries are made at the end of each hour, and when a rental ends. If a host turns out to have been dead, the earnings for that time are taken back by an entry with a negative amount and a `reason`. Earnings of a rental can be paid out from `payable_at` on. Until then the customer may dispute them.',
    query: EarningsQuery,
    responses: { 200: { description: 'The totals and a page of entries', schema: CommunityEarnings } },
    errors: [],
    handler: async ({ caller, query }) => {
      const { machine_id: machineId } = query;
      const list = `earnings/${caller.orgId}/${machineId ?? ''}`;
      const from = walkOf(cursors.read(list, query.cursor));
      const supplierId = await supplierOf(db.read, caller.orgId);
      const only = machineId === undefined ? undefined : { machineId, machinesOf, subjectsOf };
      const { earnings, cutAt, disputed, machineUcents, ...now } = await payouts.earnings(
        supplierId ?? '',
        { from, limit: query.limit + 1 },
        only,
      );
      const machines = await machinesOf(
        db.read,
        earnings.map(({ entry }) => entry.subject_id),
      );
      const facts = { machines, disputed, delayMs: payouts.delayMs };
      const rows: Row[] = earnings.map((earning) => ({ earning, at: placeOf(earning) }));
      // If the page was cut, two rows without an entry are added. The first gives the cursor of the place where the search stopped. The
      // second makes `pageOf` report that there is another page.
      if (cutAt !== undefined) rows.push({ at: cutAt }, { at: cutAt });
      const limit = cutAt === undefined ? query.limit : earnings.length + 1;
      const page = cursors.pageOf(list, rows, limit, {
        at: ({ at }) => cursorOf(at),
        show: ({ earning }) => (earning === undefined ? [] : [entryView(earning, facts)]),
      });
      const totals = {
        accrued_cents: Number(now.accruedCents),
        unpaid_cents: Number(now.unpaidCents),
        payable_cents: Number(now.payableCents),
      };
      const ofMachine =
        machineId === undefined ? null : { machine_id: machineId, accrued: dollarText(machineUcents ?? 0n) };
      const body = { ...totals, of_machine: ofMachine, entries: page.data.flat(), next_cursor: page.next_cursor };
      return { status: 200, body };
    },
  });
}

interface Row {
  /** Undefined in a row that only marks the place where a page was cut. */
  earning?: Earning;
  at: Walk;
}

function placeOf({ entry, next }: Earning): Walk {
  return { ...next, after: { postedMs: entry.posted_ms, id: entry.id } };
}

function cursorOf({ after, totalUcents, leastUcents }: Walk): Cursor {
  const { postedMs = 0, id = '' } = after ?? {};
  return {
    createdMs: postedMs,
    id: JSON.stringify({ id, total: String(totalUcents), least: String(leastUcents) }),
  };
}

function walkOf(cursor: Cursor | undefined): Walk | undefined {
  if (cursor === undefined) return undefined;
  const last = LastEntry.parse(JSON.parse(cursor.id));
  return {
    after: { postedMs: cursor.createdMs, id: last.id },
    totalUcents: BigInt(last.total),
    leastUcents: BigInt(last.least),
  };
}

function entryView(
  { entry, amountCents, isPaid }: Earning,
  facts: { machines: ReadonlyMap<string, string>; disputed: ReadonlyMap<string, number>; delayMs: number },
): EarningsEntry {
  const { machines, disputed, delayMs } = facts;
  const machineId = machines.get(entry.subject_id);
  if (machineId === undefined) throw new Error(`the rental ${entry.subject_id} earned money and has no machine`);
  return {
    ledger_id: uuidOf(entry.id, entry.posted_ms),
    machine_id: machineId,
    instance_id: entry.subject_id,
    amount_cents: Number(amountCents),
    amount: dollarText(entry.amount_ucents),
    reason: entry.evidence,
    accrued_at: isoTime(entry.posted_ms),
    payable_at: isDisputed(entry, disputed) ? null : isoTime(entry.posted_ms + delayMs),
    paid: isPaid,
  };
}
