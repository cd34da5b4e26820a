// What must hold in a fleet at every moment, and what must have come to its end once nothing disturbs it any more.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { int, text } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { messageOf } from '../../shared/errors.ts';
import { brokenHolds, brokenListings, unfinished } from '../control-plane/rental/walk/promises.ts';
import type { World } from '../kit/world.ts';
import type { Fleet } from './fleet.ts';
import type { SimHost } from './host.ts';

/** A sentence for each rule that is broken now. */
export async function brokenRules(fleet: Fleet): Promise<string[]> {
  const { plane, hosts } = fleet;
  const world = plane.world();
  const books = await world.verify().then(
    () => [],
    (error: unknown) => [messageOf(error)],
  );
  return [
    ...books,
    ...(await brokenHolds(world)),
    ...(await brokenListings(world)),
    ...hosts.flatMap(({ crimes }) => crimes),
    ...hosts.flatMap(sharedGpus),
    ...(await freedTooEarly(fleet)),
  ];
}

const InstanceRow = z.object({ id: text, status: text, status_reason: text.nullable(), workload_id: text.nullable() });

/** A sentence for each thing that has not ended although nothing keeps it from its end, and for what hosts have kept or lost. */
export async function leftOver({ plane, hosts }: Fleet): Promise<string[]> {
  const world = plane.world();
  const instances = await world.db.read.all(
    InstanceRow,
    sql`select id, status, status_reason, workload_id from instances order by created_ms, id`,
  );
  const containers = hosts.flatMap(({ engine }) => [...engine.containers.values()]);
  const wanted = new Set(instances.flatMap(({ status, workload_id: id }) => (status === 'running' ? [id] : [])));
  const running = new Set(containers.flatMap((one) => (one.running ? [one.workload_id] : [])));
  return [
    ...(await unfinished(world)),
    ...containers.flatMap(({ workload_id: id }) => (wanted.has(id) ? [] : [`container ${id} is there for nobody`])),
    ...[...wanted].flatMap((id) => (id !== null && running.has(id) ? [] : [`${id} should run and does not`])),
    ...(await wrongLinks(plane.world())),
    ...instances.flatMap((one) =>
      one.status === 'error' && one.status_reason === null ? [`${one.id} failed without a reason`] : [],
    ),
  ];
}

const LinkRow = z.object({ machine_id: text, is_noted: int, is_online: int });

/** The state of the hosts' links as operators and customers see it. */
async function wrongLinks({ db, rooms }: World): Promise<string[]> {
  const rows = await db.read.all(
    LinkRow,
    sql`select l.machine_id, case when l.disconnected_ms is null then 1 else 0 end as is_noted, m.online as is_online
        from agent_links l join machines m on m.id = l.machine_id`,
  );
  return rows.flatMap(({ machine_id: id, is_noted: isNoted, is_online: isOnline }) => {
    const isUp = rooms.link.isUp(id) ? 1 : 0;
    return isUp === isNoted && isUp === isOnline
      ? []
      : [`the link of ${id}: up ${isUp}, noted ${isNoted}, online ${isOnline}`];
  });
}

const EventRow = z.object({ id: text, type: text, subject_id: text, created_ms: int, data: text });

/** A hash of everything that has happened. The same seed gives the same hash. */
export async function journalHash({ plane }: Fleet): Promise<string> {
  const rows = await plane
    .world()
    .db.read.all(EventRow, sql`select id, type, subject_id, created_ms, data from events order by created_ms, id`);
  return createHash('sha256').update(JSON.stringify(rows)).digest('hex');
}

const GpuRow = z.object({ gpu_uuid: text, held_by: text.nullable() });

/**
 * A GPU that a container has is held for it. A restored database does not know some containers any more, and keeps new work away from their
 * hosts. The first report of a copied host is believed if its disk is less than a minute old, even if it says that the container is gone.
 */
async function freedTooEarly({ plane, hosts, backup, witness }: Fleet): Promise<string[]> {
  if (backup !== undefined) return [];
  const rows = await plane.world().db.read.all(GpuRow, sql`select gpu_uuid, held_by from machine_gpus`);
  const heldBy = new Map(rows.map((row) => [row.gpu_uuid, row.held_by]));
  const alone = hosts.filter(({ machineId }) => witness.copies(machineId).length === 0);
  return alone.flatMap(({ machineId, engine }) =>
    [...engine.containers.values()]
      .filter((one) => one.running && one.gpu_uuids.some((uuid) => heldBy.get(uuid) !== one.workload_id))
      .map((one) => `container ${one.workload_id} runs on GPUs of ${machineId} that are not held for it`),
  );
}

function sharedGpus({ machineId, engine }: SimHost): string[] {
  const used = [...engine.containers.values()].flatMap((one) => (one.running ? one.gpu_uuids : []));
  const twice = used.filter((uuid, i) => used.indexOf(uuid) !== i);
  return twice.map((uuid) => `two containers on ${machineId} have ${uuid}`);
}
