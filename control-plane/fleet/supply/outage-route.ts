// GET /v1/community/machines/{id}/outages: when rentals on a machine were not charged, and why. It names no customer and no rental.
import { MachineOutage } from '../../../shared/api/community.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { accruedUcents, dollarText, supplierPartUcents } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Cursors, PageStart } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { type OutageRow, pageOfOutages, timesOfOutages } from '../../money/credits/outages.ts';
import type { FreeTime } from '../../money/credits/store.ts';
import { ownMachine } from './listing.ts';
import { MachineId, tag } from './machine-view.ts';

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
}

export function machineOutagesRoute({ db, clock, cursors }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/community/machines/{id}/outages',
    operationId: 'listMachineOutages',
    tag,
    summary: 'List the outages of a machine, newest first',
    description:
      'In an outage, rentals on the machine are not charged. The list has each outage that the probes from outside or the host itself have reported, with its time, its reason, and what you did not earn because of it. Outages of this service are not in the list: you are paid for those.',
    scope: 'supply:read',
    idempotency: 'none',
    params: MachineId,
    query: PageQuery,
    responses: { 200: { description: 'A page of outages', schema: pageSchema(MachineOutage) } },
    errors: ['not_found'],
    handler: async ({ caller, params, query }) => {
      const machine = await ownMachine(db.read, caller.orgId, params.id);
      const rows = (start: PageStart) =>
        db.snapshot('supply.outages', (snapshot) => outagesOf(snapshot, machine.id, start, clock.now()));
      const body = await cursors.page(`machine-outages/${machine.id}`, query, rows, {
        at: ({ row }) => ({ createdMs: row.opened_ms, id: row.id }),
        show: ({ view }) => view,
      });
      return { status: 200, body };
    },
  });
}

async function outagesOf(
  query: Query,
  machineId: string,
  start: PageStart,
  nowMs: number,
): Promise<{ row: OutageRow; view: MachineOutage }[]> {
  const rows = await pageOfOutages(query, { machineId, isOpen: false }, start);
  const ids = rows.map(({ id }) => id);
  const times = Map.groupBy(await timesOfOutages(query, ids), (time) => time.outage_id);
  return rows.map((row) => ({ row, view: outageView(row, times.get(row.id) ?? [], nowMs) }));
}

function outageView(row: OutageRow, times: readonly FreeTime[], nowMs: number): MachineOutage {
  // An outage of our own concerns all machines, so its row names no machine and is not read here.
  if (row.cause === 'own_outage') throw new Error(`the outage ${row.id} is our own and has a machine`);
  const lasts = times.some(({ ended_ms: endedMs }) => endedMs === null);
  const sum = times.reduce((total, time) => total + notEarnedUcents(time, nowMs), 0n);
  return {
    outage_id: row.id,
    cause: row.cause,
    confirmed_at: isoTime(row.opened_ms),
    from: isoTime(Math.min(row.opened_ms, ...times.map(({ from_ms: fromMs }) => fromMs))),
    until: lasts ? null : isoTime(Math.max(row.opened_ms, ...times.map(({ ended_ms: endedMs }) => endedMs ?? 0))),
    rentals: new Set(times.map(({ subject_id: subjectId }) => subjectId)).size,
    not_earned: dollarText(sum),
    reason: row.evidence,
  };
}

function notEarnedUcents(time: FreeTime, nowMs: number): bigint {
  const freeMs = time.free_ms ?? Math.max(0, time.counted_ms + nowMs - time.counted_at_ms);
  return supplierPartUcents(accruedUcents(time.rate_ucents_per_hour, freeMs), time.supplier_bps);
}
