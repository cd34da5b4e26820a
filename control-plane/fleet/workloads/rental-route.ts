// GET /v1/community/machines/{id}/rentals: which GPUs of a machine were rented when, and which of that time was charged. It names no customer.
import { MachineRental } from '../../../shared/api/community.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { isoTime } from '../../../shared/clock.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import { segmentsOf } from '../../money/metering/store.ts';
import { ownMachine } from '../supply/listing.ts';
import { MachineId, tag } from '../supply/machine-view.ts';
import { type RanRow, ranOn } from './store.ts';

/** A part of a workload's time that was charged. `untilMs` is null while the part lasts. */
interface Charged {
  fromMs: number;
  untilMs: number | null;
}

export interface RentalDeps {
  db: Db;
  cursors: Cursors;
  /** The time for which each of these workloads of fine-tuning jobs was charged so far, by workload id. */
  chargedJobs(query: Query, workloadIds: readonly string[]): Promise<Map<string, { fromMs: number; untilMs: number }>>;
}

export function machineRentalsRoute({ db, cursors, chargedJobs }: RentalDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/community/machines/{id}/rentals',
    operationId: 'listMachineRentals',
    tag,
    summary: 'List the rentals of a machine with their GPUs, newest first',
    description:
      'The list has each instance and each fine-tuning job that was placed on the machine. A rental has its GPUs, the time from its placement until the host had removed it, and the parts of that time that were charged. The time until an instance has started is free. Outages have their own list.',
    scope: 'supply:read',
    idempotency: 'none',
    params: MachineId,
    query: PageQuery,
    responses: { 200: { description: 'A page of rentals', schema: pageSchema(MachineRental) } },
    errors: ['not_found'],
    handler: async ({ caller, params, query }) => {
      const machine = await ownMachine(db.read, caller.orgId, params.id);
      const body = await cursors.page(
        `machine-rentals/${machine.id}`,
        query,
        (start) =>
          db.snapshot('workloads.rentals', async (snapshot) => {
            const rows = await ranOn(snapshot, machine.id, start);
            const charged = await chargedOf(snapshot, machine.id, rows, chargedJobs);
            return rows.map((row) => ({ row, charged: charged(row) }));
          }),
        { at: ({ row }) => ({ createdMs: row.created_ms, id: row.id }), show: rentalView },
      );
      return { status: 200, body };
    },
  });
}

/**
 * The charged parts of each workload's time. An instance may come back to a machine, so a segment belongs to the workload in whose time it lies.
 */
async function chargedOf(
  query: Query,
  machineId: string,
  rows: readonly RanRow[],
  chargedJobs: RentalDeps['chargedJobs'],
): Promise<(row: RanRow) => Charged[]> {
  const jobs = rows.filter(({ spec }) => spec?.job);
  const instances = rows.filter(({ spec }) => !spec?.job);
  const ofJobs = await chargedJobs(
    query,
    jobs.map(({ id }) => id),
  );
  const subjects = [...new Set(instances.map((row) => row.instance_id))];
  const bySubject = Map.groupBy(await segmentsOf(query, subjects), (segment) => segment.subject_id);
  return (row) => {
    const job = ofJobs.get(row.id);
    // A job is charged at its checkpoints. The time since the last one counts as charged while the job goes on.
    if (job !== undefined && row.state === 'wanted') return [{ ...job, untilMs: null }];
    if (job !== undefined) return job.untilMs > job.fromMs ? [job] : [];
    const untilMs = row.state === 'gone' ? row.changed_ms : Infinity;
    return (bySubject.get(row.instance_id) ?? [])
      .filter((segment) => segment.machine_id === machineId)
      .filter(({ started_ms: fromMs }) => fromMs >= row.created_ms && fromMs < untilMs)
      .map((segment) => ({ fromMs: segment.started_ms, untilMs: segment.ended_ms }));
  };
}

function rentalView({ row, charged }: { row: RanRow; charged: readonly Charged[] }): MachineRental {
  return {
    rental_id: row.id,
    instance_id: row.instance_id,
    gpu_uuids: row.spec?.gpu_uuids ?? [],
    from: isoTime(row.created_ms),
    until: row.state === 'gone' ? isoTime(row.changed_ms) : null,
    charged: charged.map(({ fromMs, untilMs }) => ({
      from: isoTime(fromMs),
      until: untilMs === null ? null : isoTime(untilMs),
    })),
  };
}
