// The figures of instances and machines, as JSON and as Prometheus reads them.
import { z } from 'zod';
import { InstanceMetrics, MachineMetrics, MetricsQuery } from '../../../shared/api/metrics.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { METRICS_READS_PER_ORG_MAX, METRICS_SCRAPED_MAX, METRICS_SCRAPES_PER_ORG_MAX } from '../../../shared/limits.ts';
import type { Db, Query } from '../../base/db/db.ts';
import type { Cursor } from '../../base/http/cursors.ts';
import { Id, operator } from '../../base/http/operator.ts';
import { PROMETHEUS_TYPE } from '../../base/http/metrics.ts';
import { type Caller, type Route, route } from '../../base/http/route.ts';
import { type InTurn, openTurns } from '../../base/http/turns.ts';
import { ownMachine } from '../supply/listing.ts';
import { machinesOfSupplier } from '../supply/machine-pages.ts';
import { findMachine, supplierOfOrg } from '../supply/store.ts';
import { prometheusPieces, type Scraped } from './exposition.ts';
import type { FleetMetrics } from './metrics.ts';
import { windowOf } from './series.ts';
import { instanceMetrics, machineMetrics, type MeasuredInstance } from './views.ts';

export interface MetricsRouteDeps {
  db: Db;
  clock: Clock;
  metrics: FleetMetrics;
  /** @throws ServiceError `not_found`, also for an instance of another organisation */
  instanceOf(query: Query, orgId: string, id: string): Promise<MeasuredInstance>;
  /** The instances of an organisation that run, at most `limit`. */
  runningOf(query: Query, orgId: string, limit: number): Promise<Scraped[]>;
}

const DESCRIPTION =
  'Each point has averages and maxima. They come from values for each minute, which are kept for seven days. `latest` is the newest sample. Each read makes the host take a sample every second for half a minute. Without such reads, the newest sample is up to two minutes old. The values come from the host.';

/** Machines that are read in one turn of the event loop: each has an inventory. METRICS_SCRAPED_MAX is a multiple of it. */
const MACHINES_PER_PAGE = 50;

export function metricsRoutes(deps: MetricsRouteDeps): Route[] {
  const inTurn = openTurns(deps.clock, METRICS_READS_PER_ORG_MAX);
  return [
    instanceRoute(deps, inTurn),
    machineRoute(deps, inTurn),
    prometheusRoute(deps, openTurns(deps.clock, METRICS_SCRAPES_PER_ORG_MAX)),
  ];
}

function instanceRoute({ db, clock, metrics, instanceOf }: MetricsRouteDeps, inTurn: InTurn): Route {
  return route({
    method: 'GET',
    path: '/v1/instances/{id}/metrics',
    operationId: 'getInstanceMetrics',
    tag: 'Instances',
    summary: 'What the GPUs and the container of an instance use',
    description: DESCRIPTION,
    scope: 'instances:read',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The instance id') }),
    query: MetricsQuery,
    responses: { 200: { description: 'The figures', schema: InstanceMetrics } },
    errors: ['not_found'],
    handler: async ({ caller, params, query }) => {
      const instance = await instanceOf(db.read, caller.orgId, params.id);
      const window = windowOf(query, clock.now());
      return { status: 200, body: await inTurn(caller.orgId, () => instanceMetrics(instance, window, metrics)) };
    },
  });
}

function machineRoute({ db, clock, metrics }: MetricsRouteDeps, inTurn: InTurn): Route {
  return route({
    method: 'GET',
    path: '/v1/community/machines/{id}/metrics',
    operationId: 'getMachineMetrics',
    tag: 'Community supply',
    summary: 'What the GPUs of a machine, and the machine as a whole, use',
    description: `${DESCRIPTION} The figures show nothing from inside the containers of customers.`,
    scope: 'supply:read',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The machine id') }),
    query: MetricsQuery,
    responses: { 200: { description: 'The figures', schema: MachineMetrics } },
    errors: ['not_found'],
    handler: async ({ caller, params, query }) => {
      const machine = await ownMachine(db.read, caller.orgId, params.id);
      const window = windowOf(query, clock.now());
      return { status: 200, body: await inTurn(caller.orgId, () => machineMetrics(machine.id, window, metrics)) };
    },
  });
}

/** What a supplier reads of its machine, for operators. */
export function machineOperatorRoute({ db, clock, metrics }: MetricsRouteDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/machines/{id}/metrics',
    operationId: 'adminShowMachineMetrics',
    summary: 'What the GPUs of a machine, and the machine as a whole, use',
    params: Id,
    query: MetricsQuery,
    responses: { 200: { description: 'The figures', schema: MachineMetrics } },
    errors: ['not_found'],
    handler: async ({ params: { id }, query }) => {
      if ((await findMachine(db.read, id)) === undefined) fail('not_found', `There is no machine ${id}.`);
      return { status: 200, body: await machineMetrics(id, windowOf(query, clock.now()), metrics) };
    },
  });
}

function prometheusRoute(deps: MetricsRouteDeps, inTurn: InTurn): Route {
  return route({
    method: 'GET',
    path: '/v1/metrics',
    operationId: 'scrapeMetrics',
    tag: 'Metrics',
    summary: 'The newest figures in the text format of Prometheus',
    description: `GPU figures have the names of NVIDIA's DCGM exporter. A key that may read instances gets the figures of its running instances. A key that may read the supply gets the figures of its machines. At most ${METRICS_SCRAPED_MAX} of each are shown. Values are at most two minutes old. Instances and machines without newer values are left out.`,
    scope: 'metrics:read',
    idempotency: 'none',
    responses: { 200: { description: 'Metrics', mediaType: 'text/plain' } },
    errors: [],
    handler: ({ caller }) =>
      inTurn(caller.orgId, async () => {
        const headers = { 'content-type': PROMETHEUS_TYPE };
        return { status: 200, headers, body: await scrape(caller, deps) };
      }),
  });
}

/** The text of one scrape. Others are served between its pieces. */
async function scrape(caller: Caller, deps: MetricsRouteDeps): Promise<string> {
  const [instances, machines] = await Promise.all([instancesOf(caller, deps), machinesOf(caller, deps)]);
  const live = await deps.metrics.live([...new Set([...instances, ...machines].map(({ machineId }) => machineId))]);
  const pieces: string[] = [];
  for (const piece of prometheusPieces({ instances, machines, live })) {
    pieces.push(piece);
    await deps.clock.nextTurn();
  }
  return pieces.join('');
}

async function instancesOf(caller: Caller, { db, runningOf }: MetricsRouteDeps): Promise<Scraped[]> {
  if (!caller.scopes.includes('instances:read')) return [];
  return runningOf(db.read, caller.orgId, METRICS_SCRAPED_MAX);
}

async function machinesOf(caller: Caller, { db, clock }: MetricsRouteDeps): Promise<Scraped[]> {
  if (!caller.scopes.includes('supply:read')) return [];
  const supplier = await supplierOfOrg(db.read, caller.orgId);
  if (supplier === undefined) return [];
  const found: Scraped[] = [];
  for (let from: Cursor | undefined; ;) {
    const rows = await machinesOfSupplier(db.read, supplier.id, { from, count: MACHINES_PER_PAGE });
    for (const { id, inventory } of rows) {
      const [gpu] = inventory?.gpus ?? [];
      found.push({ id, machineId: id, modelName: gpu?.name ?? '', hostname: inventory?.hostname ?? '' });
    }
    const last = rows.at(-1);
    if (last === undefined || rows.length < MACHINES_PER_PAGE || found.length >= METRICS_SCRAPED_MAX) return found;
    from = { createdMs: last.created_ms, id: last.id };
    await clock.nextTurn();
  }
}
