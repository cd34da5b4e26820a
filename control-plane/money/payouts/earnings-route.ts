// GET /v1/community/earnings (specification 2.17).
import { z } from 'zod';
import { CommunityEarnings, type EarningsEntry } from '../../../shared/api/community.ts';
import { PageQuery } from '../../../shared/api/page.ts';
import { isoTime } from '../../../shared/clock.ts';
import { uuidOf } from '../../../shared/ids.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Earning } from './earnings.ts';
import type { Payouts } from './payouts.ts';

/** The fields of the last entry that a cursor stores. */
const LastEntry = z.strictObject({ id: z.string(), total: z.string(), least: z.string() });

export interface EarningsRouteDeps {
  db: Db;
  cursors: Cursors;
  payouts: Payouts;
  /** The supplier of the organisation; undefined if it is none. */
  supplierOf(query: Query, orgId: string): Promise<string | undefined>;
  /** The machine on which each instance ran. */
  machinesOf(query: Query, instanceIds: readonly string[]): Promise<Map<string, string>>;
}

export function earningsRoute({ db, cursors, payouts, supplierOf, machinesOf }: EarningsRouteDeps): Route {
  return route({
    method: 'GET',
    tag: 'Community supply',
    scope: 'supply:read',
    idempotency: 'none',
    path: '/v1/community/earnings',
    operationId: 'listEarnings',
    summary: 'What your machines earned, newest first',
    description:
      'Entries are made at the end of each hour, and when a rental ends. Time of a host that turns out to have been dead is taken back by an entry with a negative amount, which says why. What a rental earned can be paid out some time after it was entered (`payable_at`), in which its customer may dispute it.',
    query: PageQuery,
    responses: { 200: { description: 'Totals, and a page of entries', schema: CommunityEarnings } },
    errors: [],
    handler: async ({ caller, query }) => {
      const list = `earnings/${caller.orgId}`;
      const position = cursors.read(list, query.cursor);
      const last = position === undefined ? undefined : LastEntry.parse(JSON.parse(position.id));
      const after =
        position === undefined || last === undefined
          ? undefined
          : {
              postedMs: position.createdMs,
              id: last.id,
              totalUcents: BigInt(last.total),
              leastUcents: BigInt(last.least),
            };
      const supplierId = await supplierOf(db.read, caller.orgId);
      const { earnings, disputed, ...now } = await payouts.earnings(supplierId ?? '', after, query.limit + 1);
      const machines = await machinesOf(
        db.read,
        earnings.map(({ entry }) => entry.subject_id),
      );
      const page = cursors.pageOf(list, earnings, query.limit, {
        at: ({ entry, next }) => ({
          createdMs: entry.posted_ms,
          id: JSON.stringify({ id: entry.id, total: String(next.totalUcents), least: String(next.leastUcents) }),
        }),
        show: (earning) => entryView(earning, { machines, disputed, delayMs: payouts.delayMs }),
      });
      const totals = {
        accrued_cents: Number(now.accruedCents),
        unpaid_cents: Number(now.unpaidCents),
        payable_cents: Number(now.payableCents),
      };
      return { status: 200, body: { ...totals, entries: page.data, next_cursor: page.next_cursor } };
    },
  });
}

function entryView(
  { entry, amountCents, isPaid }: Earning,
  facts: { machines: ReadonlyMap<string, string>; disputed: ReadonlySet<string>; delayMs: number },
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
    payable_at: disputed.has(entry.subject_id) ? null : isoTime(entry.posted_ms + delayMs),
    paid: isPaid,
  };
}
