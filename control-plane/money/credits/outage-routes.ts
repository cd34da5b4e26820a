// The operator's routes for outages: what stopped which rentals, and what that gave or holds.
import { z } from 'zod';
import { Outage, OutageDetail, type OutageRental } from '../../../shared/api/outage.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Cursors, PageStart } from '../../base/http/cursors.ts';
import { Id, listParameters, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import * as outages from './outages.ts';
import type { FreeTime, HeldCredit } from './store.ts';

const BASE = '/admin/outages';

export function outageRoutes({ db, cursors }: { db: Db; cursors: Cursors }): Route[] {
  return [
    route({
      ...operator,
      method: 'GET',
      path: BASE,
      operationId: 'adminListOutages',
      summary:
        'List outages of hosts and of this service, newest first. With `open=true`, only outages that still last',
      query: z.strictObject({
        ...listParameters,
        machine_id: z.string().optional(),
        open: z.enum(['true']).optional(),
      }),
      responses: { 200: { description: 'A page', schema: pageSchema(Outage) } },
      errors: [],
      handler: async ({ query }) => {
        const filter = { machineId: query.machine_id, isOpen: query.open === 'true' };
        const rows = async (start: PageStart) => summed(db.read, await outages.pageOfOutages(db.read, filter, start));
        const body = await cursors.page(`admin/outages/${JSON.stringify(filter)}`, query, rows, {
          at: ({ row }) => ({ createdMs: row.opened_ms, id: row.id }),
          show: ({ view }) => view,
        });
        return { status: 200, body };
      },
    }),
    route({
      ...operator,
      method: 'GET',
      path: `${BASE}/{id}`,
      operationId: 'adminShowOutage',
      summary: 'Show an outage with the rentals that it affected',
      params: Id,
      responses: { 200: { description: 'The outage', schema: OutageDetail } },
      errors: ['not_found'],
      handler: async ({ params: { id } }) => ({ status: 200, body: await detailOf(db.read, id) }),
    }),
  ];
}

/** The latest outages of one machine. */
export async function outagesOnMachine(query: Query, machineId: string, count: number): Promise<Outage[]> {
  const rows = await outages.pageOfOutages(query, { machineId, isOpen: false }, { count });
  return (await summed(query, rows)).map(({ view }) => view);
}

async function detailOf(query: Query, id: string): Promise<OutageDetail> {
  const row = (await outages.findOutage(query, id)) ?? fail('not_found', `There is no outage ${id}.`);
  const [summary] = await summed(query, [row]);
  if (summary === undefined) throw new Error(`the outage ${id} has no times`);
  const { times, held } = await outages.timesOfOutage(query, id);
  const heldOf = new Map(held.map((credit) => [credit.free_time_id, credit]));
  return { outage: summary.view, affected: times.map((time) => rentalView(time, heldOf.get(time.id))) };
}

async function summed(
  query: Query,
  rows: readonly outages.OutageRow[],
): Promise<{ row: outages.OutageRow; view: Outage }[]> {
  const ids = rows.map(({ id }) => id);
  const sums = await outages.sumsOfOutages(query, ids);
  return rows.map((row) => ({ row, view: outageView(row, sums.get(row.id)) }));
}

function outageView(row: outages.OutageRow, sum: outages.OutageSum | undefined): Outage {
  const lasts = (sum?.open ?? 0) > 0;
  return {
    outage_id: row.id,
    cause: row.cause,
    machine_id: row.machine_id,
    opened_at: isoTime(row.opened_ms),
    from: isoTime(sum?.from_ms ?? row.opened_ms),
    until: lasts ? null : isoTime(sum?.until_ms ?? row.opened_ms),
    rentals: sum?.rentals ?? 0,
    open_rentals: sum?.open ?? 0,
    credited: dollarText(sum?.granted_ucents ?? 0n),
    held: dollarText(sum?.held_ucents ?? 0n),
    evidence: row.evidence,
  };
}

function rentalView(time: FreeTime, credit: HeldCredit | undefined): OutageRental {
  return {
    instance_id: time.subject_id,
    org_id: time.org_id,
    machine_id: time.machine_id,
    from: isoTime(time.from_ms),
    until: time.ended_ms === null ? null : isoTime(time.ended_ms),
    credited: dollarText(time.granted_ucents),
    credit_id: credit?.id ?? null,
    credit_dollars: credit === undefined ? null : dollarText(credit.amount_ucents),
    credit_state: credit?.state ?? null,
    evidence: time.evidence,
  };
}
