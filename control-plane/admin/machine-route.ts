// The operator's route for one machine. Its answer combines what several rooms know about the machine.
import type { MachineRental, OperatorGpu, OperatorMachine as View } from '../../shared/api/operator-machine.ts';
import { OperatorMachine } from '../../shared/api/operator-machine.ts';
import { type Clock, isoTime } from '../../shared/clock.ts';
import { fail } from '../../shared/errors.ts';
import { dollarsFromUcents } from '../../shared/money.ts';
import type { Db, Query } from '../base/db/db.ts';
import type { EventRow, Events } from '../base/events/events.ts';
import { Id, operator } from '../base/http/operator.ts';
import { type Route, route } from '../base/http/route.ts';
import { machineChecklist } from '../fleet/supply/machine-view.ts';
import { machineFields } from '../fleet/supply/operator-routes.ts';
import { reliabilityOf } from '../fleet/supply/reliability.ts';
import { findMachine, type GpuRow, gpusOf, type MachineRow } from '../fleet/supply/store.ts';
import { outagesOnMachine } from '../money/credits/outage-routes.ts';
import { findInstances } from '../rental/instances/search.ts';
import type { RentalRow } from '../rental/instances/store.ts';
import { failingProbesOf } from '../rental/outages/store.ts';

const RENTALS_MAX = 50;
const LATE_MAX = 20;

export interface MachineDeps {
  db: Db;
  clock: Clock;
  events: Pick<Events, 'ofSubject'>;
}

export function machineRoute(deps: MachineDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/machines/{id}',
    operationId: 'adminShowMachine',
    summary: 'Show a machine: its checks, GPUs, rentals, outages and events',
    params: Id,
    responses: { 200: { description: 'The machine', schema: OperatorMachine } },
    errors: ['not_found'],
    handler: async ({ params: { id } }) => {
      const row = (await findMachine(deps.db.read, id)) ?? fail('not_found', `There is no machine ${id}.`);
      return { status: 200, body: await viewOf(row, deps) };
    },
  });
}

async function viewOf(row: MachineRow, { db, clock, events }: MachineDeps): Promise<View> {
  const { read } = db;
  const gpus = await gpusOf(read, row.id);
  const filter = { orgId: null, machineId: row.id, status: null };
  const [checklist, reliability, rentals, outages, journal] = await Promise.all([
    machineChecklist(read, row, await failingProbesOf(read, row.id)),
    reliabilityOf(read, [{ id: row.id, gpus: gpus.length }], clock.now()),
    findInstances(read, filter, { count: RENTALS_MAX }),
    outagesOnMachine(read, row.id, LATE_MAX),
    latestEvents(read, row.id, events),
  ]);
  const numbers = reliability.get(row.id);
  if (numbers === undefined) throw new Error(`the machine ${row.id} has no numbers`);
  return {
    machine: machineFields(row),
    on_offer: checklist.on_offer,
    checks: checklist.checks,
    reliability: numbers,
    gpus: gpus.map((gpu) => gpuView(gpu, row, rentals)),
    rentals: rentals.map(rentalView),
    outages,
    events: journal,
  };
}

function gpuView(gpu: GpuRow, { inventory }: MachineRow, rentals: readonly RentalRow[]): OperatorGpu {
  const fault = inventory?.gpu_faults.find(({ uuid }) => uuid === gpu.gpu_uuid);
  const rental = gpu.held_by === null ? undefined : rentals.find(({ workload_id: id }) => id === gpu.held_by);
  return {
    gpu_uuid: gpu.gpu_uuid,
    index: gpu.gpu_index,
    gpu_type: gpu.gpu_type,
    vram_gb: gpu.vram_gb,
    usable: gpu.usable,
    fault: fault?.detail ?? null,
    used_by: rental?.id ?? gpu.held_by,
    reserved_by: gpu.reserved_by,
  };
}

function rentalView(row: RentalRow): MachineRental {
  return {
    instance_id: row.id,
    org_id: row.org_id,
    status: row.status,
    gpus: `${row.gpu_count} ${row.gpu_type}`,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    since: isoTime(row.entered_ms),
  };
}

async function latestEvents(query: Query, id: string, events: MachineDeps['events']): Promise<View['events']> {
  const rows = await events.ofSubject(query, id, { count: LATE_MAX });
  return rows.map(({ created_ms: atMs, type, data }) => ({ at: isoTime(atMs), type, detail: wordsOf(data) }));
}

function wordsOf(data: EventRow['data']): string {
  const shown = Object.entries(data).filter(([name, value]) => name !== 'machine_id' && value !== null);
  return shown.map(([name, value]) => `${name.replaceAll('_', ' ')}: ${String(value)}`).join(', ');
}
