// Suppliers are told about their machines: one is offline, is online again, or has a broken GPU. Rows say which machines were told to be offline, so
// that each is told once, over restarts and with several control planes.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import type { EventRow } from '../../base/events/events.ts';
import {
  offlineMachines,
  type OfflineMachine,
  orgOfMachine,
  type ServingMachine,
  servingMachines,
} from '../../fleet/supply/owners.ts';
import type { Quiet } from '../instances/quiet.ts';
import { GATHER_MS, OFFLINE_MS } from './limits.ts';
import * as store from './store.ts';

export interface MachinesDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  /** While the control plane was away, no machine could have a link. */
  quiet: Quiet;
}

/** Number of machines that one statement reads. */
const PAGE = 200;

/** Looks at all machines that are offline or were told so. @throws what has failed, at the end; DbError at once */
export async function lookAtMachines(signal: AbortSignal, deps: MachinesDeps): Promise<void> {
  const failures = openRowFailures();
  const { db } = deps;
  for (let afterId: string | undefined = ''; afterId !== undefined && !signal.aborted;) {
    const told: store.ToldMachine[] = await store.toldMachines(db.read, afterId, PAGE);
    const machines = await servingMachines(
      db.read,
      told.map(({ machine_id: id }) => id),
    );
    const lost = new Set(machines.filter(isLost).map(({ id }) => id));
    for (const row of told.filter(({ machine_id: id }) => !lost.has(id)))
      await failures.note(`the return of the machine ${row.machine_id} could not be told`, tellOfReturn(row, deps));
    afterId = told.length < PAGE ? undefined : told.at(-1)?.machine_id;
  }
  const untilMs = deps.clock.now() - OFFLINE_MS;
  const isKnown = untilMs >= deps.quiet.fromMs;
  for (let afterId: string | undefined = ''; isKnown && afterId !== undefined && !signal.aborted;) {
    const offline: OfflineMachine[] = await offlineMachines(db.read, { untilMs, afterId, limit: PAGE });
    const ids = offline.map(({ id }) => id);
    const told = await store.toldAmong(db.read, ids);
    for (const row of offline.filter(({ id }) => !told.has(id)))
      await failures.note(`the supplier of the machine ${row.id} could not be told`, tellOfLoss(row, deps));
    afterId = offline.length < PAGE ? undefined : offline.at(-1)?.id;
  }
  failures.throwAll();
}

/** Tells the supplier that a GPU of its machine is broken, and not whose instance had it. Called in the transaction of the event. */
export async function noteBrokenGpu(tx: Tx, event: EventRow): Promise<void> {
  const { id, data, created_ms: nowMs } = event;
  const { machine_id: machineId, reason } = data;
  if (typeof machineId !== 'string') return;
  const orgId = await orgOfMachine(tx, machineId);
  if (orgId === null) return;
  const about = { machineId, orgId, nowMs, id: `${id}:machine` };
  await tell(tx, { ...about, type: 'machine.gpu_broken', data: { reason: reason ?? null } });
}

async function tellOfLoss({ id, org_id, last_heartbeat_ms }: OfflineMachine, deps: MachinesDeps): Promise<void> {
  const { db, clock, ids } = deps;
  await db.tx('notices.machine_offline', async (tx) => {
    await tx.lock('machine', id);
    const [machine] = await servingMachines(tx, [id]);
    if (machine === undefined || !isLost(machine)) return;
    const nowMs = clock.now();
    if (!(await store.insertToldMachine(tx, { machine_id: id, org_id }, nowMs))) return;
    const about = { machineId: id, orgId: org_id, nowMs, id: ids.uuid() };
    await tell(tx, { ...about, type: 'machine.offline', data: { since_ms: last_heartbeat_ms } });
  });
}

/** A machine that has left the market is told no more. */
async function tellOfReturn({ machine_id: id, org_id: orgId }: store.ToldMachine, deps: MachinesDeps): Promise<void> {
  const { db, clock, ids } = deps;
  await db.tx('notices.machine_online', async (tx) => {
    await tx.lock('machine', id);
    const [machine] = await servingMachines(tx, [id]);
    if (machine !== undefined && isLost(machine)) return;
    if (!(await store.deleteToldMachine(tx, id)) || machine?.online !== true) return;
    const about = { machineId: id, orgId, nowMs: clock.now(), id: ids.uuid() };
    await tell(tx, { ...about, type: 'machine.online', data: {} });
  });
}

function isLost({ online, serves }: ServingMachine): boolean {
  return serves && !online;
}

interface Telling {
  id: string;
  orgId: string;
  machineId: string;
  type: 'machine.offline' | 'machine.online' | 'machine.gpu_broken';
  data: EventRow['data'];
  nowMs: number;
}

async function tell(tx: Tx, { id, orgId, machineId, type, data, nowMs }: Telling): Promise<void> {
  const row = { id, org_id: orgId, topic: 'machine', type, subject_id: machineId, data } as const;
  await store.insertNotice(tx, { ...row, created_ms: nowMs, due_ms: nowMs + GATHER_MS });
}
