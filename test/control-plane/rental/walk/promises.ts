// What must hold after every step of a walk, and what must have come to an end when everybody has done their part.
import { z } from 'zod';
import { int, json, text } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { openSegments } from '../../../../control-plane/money/metering/store.ts';
import { findInstance, type InstanceRow } from '../../../../control-plane/rental/instances/store.ts';
import { Instance } from '../../../../shared/api/instance.ts';
import { INSTANCE_STATES, type InstanceState, mayMove } from '../../../../shared/states.ts';
import type { World } from '../../../kit/world.ts';
import { brokenContracts } from '../contract-promises.ts';
import { brokenDeliveries } from '../webhooks/delivery-rules.ts';
import { brokenFields } from './fields.ts';
import type { Endpoint, Life } from './life.ts';

const PUBLIC = ['instance.creating', 'instance.running', 'instance.terminated', 'instance.failed'];
const STATE_OF: Record<string, InstanceState> = {
  'instance.creating': 'allocating',
  'instance.placed': 'allocating',
  'instance.starting': 'starting',
  'instance.running': 'running',
  'instance.recovered': 'running',
  'instance.unreachable': 'unreachable',
  'instance.stopping': 'stopping',
  'instance.terminated': 'terminated',
  'instance.failed': 'error',
};
/** A stopped instance has the event of a terminated one. */
const EVENT_OF: Partial<Record<InstanceState, InstanceState>> = { stopped: 'terminated' };
/** A stopping instance is not here: it gives its GPUs back as soon as the host reports that the container is gone. */
const HOLDING = new Set<InstanceState>(['allocating', 'starting', 'running', 'unreachable']);
const PASSING = new Set<InstanceState>(['allocating', 'starting', 'stopping']);

/** A sentence for each promise that is broken now. */
export async function brokenPromises(life: Life): Promise<string[]> {
  const { world } = life.api;
  return [
    ...(await brokenInstances(life)),
    ...(await brokenViews(life)),
    ...life.hosts.flatMap((host) => host.clashes).map((uuid) => `two containers have ${uuid}`),
    ...(await brokenHolds(world)),
    ...(await brokenListings(world)),
    ...(await brokenContracts(world)),
    ...(await brokenDeliveries(world)),
    ...(await brokenSubscriptions(life)),
  ];
}

/** A sentence for each thing that has not ended although nothing keeps it from its end. */
export async function unfinished({ db }: World): Promise<string[]> {
  const rows = await db.read.all(
    IdAndState,
    sql`select id, 'operation ' || state as state from operations where completed_ms is null
        union all select id, 'instance ' || status from instances where status in ('allocating', 'starting', 'stopping', 'unreachable')
        union all select id, 'workload ' || state from workloads where state = 'removing'
        union all select d.id, 'delivery ' || d.status from webhook_deliveries d join webhook_endpoints e on e.id = d.endpoint_id
          where d.completed_ms is null and e.deleted_ms is null
        union all select g.gpu_uuid, 'GPU held by ' || g.held_by from machine_gpus g
          where g.held_by is not null and g.held_by not in (select workload_id from instances where status = 'running')`,
  );
  return rows.map(({ id, state }) => `${id}: ${state}`);
}

const EventRow = z.object({ id: text, type: text, subject_id: text });

/** The public events of an organisation, oldest first. */
export function publicEvents({ db }: World, orgId: string): Promise<z.infer<typeof EventRow>[]> {
  return db.read.all(
    EventRow,
    sql`select id, type, subject_id from events where org_id = ${orgId}
        and type in ('instance.creating', 'instance.running', 'instance.terminated', 'instance.failed') order by created_ms, id`,
  );
}

const IdAndState = z.object({ id: text, state: text });
const Operation = z.object({ id: text, kind: text, resource_id: text.nullable(), state: text });
type Operation = z.infer<typeof Operation>;

async function brokenInstances(life: Life): Promise<string[]> {
  const { db, rooms } = life.api.world;
  const lists = life.owners.map(({ orgId }) => rooms.instances.list(orgId, { count: 1000 }));
  const ids = (await Promise.all(lists)).flat().map(({ instance }) => instance.id);
  const found = await Promise.all(ids.map((id) => findInstance(db.read, id)));
  const rows = found.filter((row) => row !== undefined);
  const events = await db.read.all(EventRow, sql`select id, type, subject_id from events order by created_ms, id`);
  const journals = Map.groupBy(events, (event) => event.subject_id);
  const operations = await db.read.all(Operation, sql`select id, kind, resource_id, state from operations`);
  const broken = rows.flatMap((row) => [
    ...brokenJournal(row, journals.get(row.id)?.map(({ type }) => type) ?? []),
    ...brokenOperations(row, operations),
  ]);
  const charged = (await openSegments(db.read, '', 1000)).map((segment) => segment.subject_id);
  const running = rows.filter(({ status }) => status === 'running').map(({ id }) => id);
  if (charged.toSorted().join() !== running.toSorted().join()) {
    broken.push(`${charged.length} are charged, ${running.length} run`);
  }
  return broken;
}

async function brokenViews({ api, owners }: Life): Promise<string[]> {
  const pages = owners.map(({ key }) => api.call('GET', '/v1/instances?limit=200', { key }));
  return (await Promise.all(pages))
    .flatMap(({ json: page }) => page.data ?? [])
    .flatMap((shown) => brokenFields(Instance.parse(shown)));
}

function brokenJournal(row: InstanceRow, journal: readonly string[]): string[] {
  const broken: string[] = [];
  const path = journal.flatMap((type) => STATE_OF[type] ?? []);
  const strays = path.filter((to, i) => i > 0 && !mayMove(INSTANCE_STATES, path[i - 1] ?? to, to));
  if (strays.length > 0) broken.push(`path ${path.join(', ')}`);
  // The last event of a failed instance reports the failure. Its removal adds no event.
  const last = path.at(-1) === 'error' && row.status === 'terminated' ? 'terminated' : path.at(-1);
  if (last !== (EVENT_OF[row.status] ?? row.status)) {
    broken.push(`the journal ends with ${last}, the status is ${row.status}`);
  }
  const twice = PUBLIC.filter((type) => journal.filter((other) => other === type).length > 1);
  if (twice.length > 0) broken.push(`sent twice: ${twice.join(', ')}`);
  if (PASSING.has(row.status) && row.due_ms === null) broken.push(`${row.status} and never due`);
  return broken;
}

/** The operations of an instance say how far it has come. */
function brokenOperations(row: InstanceRow, operations: readonly Operation[]): string[] {
  const create = operations.find(({ id }) => id === row.create_operation_id)?.state ?? 'none';
  const creates: Record<InstanceState, readonly string[]> = {
    allocating: ['pending', 'in_progress'],
    starting: ['in_progress'],
    running: ['succeeded'],
    unreachable: ['succeeded'],
    stopping: ['succeeded'],
    stopped: ['succeeded'],
    error: ['failed', 'succeeded'],
    terminated: ['succeeded', 'failed', 'cancelled'],
  };
  const deletes = { stopping: ['in_progress'], terminated: ['succeeded'] };
  const broken: string[] = [];
  if (!creates[row.status].includes(create)) broken.push(`${row.status} with a create that is ${create}`);
  const allowed = row.status === 'stopping' || row.status === 'terminated' ? deletes[row.status] : [];
  for (const { kind, resource_id: resource, state } of operations) {
    if (kind !== 'instance.delete' || resource !== row.id || allowed.includes(state)) continue;
    broken.push(`${row.status} with a delete that is ${state}`);
  }
  return broken;
}

const HoldRow = z.object({
  id: text,
  state: text,
  spec: json(z.object({ gpu_uuids: z.array(z.string()) })),
  status: text.nullable(),
  gpu_count: int.nullable(),
  is_current: int,
  held: text.nullable(),
});

/** Each container has its own GPUs, as many as were asked for, until its host has let go of them. */
export async function brokenHolds({ db }: World): Promise<string[]> {
  const rows = await db.read.all(
    HoldRow,
    sql`select w.id, w.state, w.spec, i.status, i.gpu_count, case when i.workload_id = w.id then 1 else 0 end as is_current,
          (select ${HELD[db.dialect]} from machine_gpus g where g.held_by = w.id) as held
        from workloads w left join instances i on i.id = w.instance_id where w.state <> 'gone'`,
  );
  return rows.flatMap((row) => {
    const held = row.held === null ? [] : row.held.split(',');
    const foreign = held.filter((uuid) => !row.spec.gpu_uuids.includes(uuid));
    if (foreign.length > 0) return [`workload ${row.id} holds GPUs that it was not given`];
    const isHolding = row.is_current === 1 && HOLDING.has(row.status as InstanceState);
    if (!isHolding || held.length === row.gpu_count) return [];
    return [`${row.status} holds ${held.length} of ${row.gpu_count} GPUs`];
  });
}

/** A machine drains exactly as long as somebody holds a GPU of it, and what is not listed is not on offer. */
export async function brokenListings({ db }: World): Promise<string[]> {
  const held = sql`(select count(*) from machine_gpus g where g.machine_id = m.id and g.held_by is not null)`;
  const rows = await db.read.all(
    IdAndState,
    sql`select m.id, m.status || ' with GPUs that are held' as state from machines m where m.status = 'delisted' and ${held} > 0
        union all select m.id, 'draining without a rental' from machines m where m.status = 'draining' and ${held} = 0
        union all select m.id, 'on offer while ' || m.status from machines m join offerings o on o.machine_id = m.id
          where o.listed = 1 and (m.status <> 'listed' or m.approved = 0)`,
  );
  return rows.map(({ id, state }) => `machine ${id} is ${state}`);
}

const HELD = { sqlite: sql`group_concat(g.gpu_uuid, ',')`, postgres: sql`string_agg(g.gpu_uuid, ',')` };

const DeliveryRow = z.object({ event_id: text });

/** An endpoint has a delivery for each event that it wants since it was made, and its receiver has nothing to complain of. */
async function brokenSubscriptions({ api: { world }, endpoints, receivers }: Life): Promise<string[]> {
  const broken = [...receivers.complaints];
  for (const [id, endpoint] of endpoints) {
    const rows = await world.db.read.all(
      DeliveryRow,
      sql`select event_id from webhook_deliveries where endpoint_id = ${id} order by created_ms, event_id`,
    );
    const wanted = await wantedBy(world, endpoint);
    if (rows.map((row) => row.event_id).join() !== wanted.join()) {
      broken.push(`endpoint ${id} has ${rows.length} deliveries of ${wanted.length}`);
    }
  }
  return broken;
}

async function wantedBy(world: World, { owner, types, before }: Endpoint): Promise<string[]> {
  const events = await publicEvents(world, owner.orgId);
  return events.filter(({ id, type }) => types.includes(type) && !before.has(id)).map(({ id }) => id);
}
