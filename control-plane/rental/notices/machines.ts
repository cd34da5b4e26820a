// Suppliers are told about their machines: one is offline or not on offer, has a broken GPU, or is in order again. Each trouble is a row, so that it
// is told once, over restarts and with several control planes.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { openRowFailures, type RowFailures } from '../../base/db/row-failures.ts';
import type { EventData } from '../../base/events/events.ts';
import { gpusOf } from '../../fleet/supply/store.ts';
import {
  type MachineStanding,
  offlineMachines,
  offOfferReason,
  onlineMachines,
  standingOf,
} from '../../fleet/supply/troubles.ts';
import type { Quiet } from '../instances/quiet.ts';
import { GATHER_MS, OFF_OFFER_MS, OFFLINE_MS } from './limits.ts';
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

const TOLD_AS = {
  offline: { begins: 'machine.offline', ends: 'machine.online' },
  off_offer: { begins: 'machine.off_offer', ends: 'machine.on_offer' },
  gpu_broken: { begins: 'machine.gpu_broken', ends: 'machine.gpu_mended' },
} as const;

/** Looks at all machines that are in trouble or were. @throws what has failed, at the end; DbError at once */
export async function lookAtMachines(signal: AbortSignal, deps: MachinesDeps): Promise<void> {
  const failures = openRowFailures();
  const looking: Looking = { ...deps, signal, failures };
  await lookAtKnown(looking);
  await lookAtOffline(looking);
  await lookAtOnline(looking);
  failures.throwAll();
}

interface Looking extends MachinesDeps {
  signal: AbortSignal;
  failures: RowFailures;
}

/** Troubles that are known: some are over, and some last for so long now that they are told. */
async function lookAtKnown(looking: Looking): Promise<void> {
  const { db, clock, signal, failures } = looking;
  let after: store.TroubleKey | undefined = { machine_id: '', trouble: 'offline', gpu_uuid: '' };
  while (after !== undefined && !signal.aborted) {
    const rows: store.TroubleRow[] = await store.troublesAfter(db.read, after, PAGE);
    const machines = await standingOf(db.read, [...new Set(rows.map(({ machine_id: id }) => id))]);
    const byId = new Map(machines.map((machine) => [machine.id, machine]));
    for (const row of rows) {
      const machine = byId.get(row.machine_id);
      if (isOver(machine, row))
        await failures.note(`the end of ${wordsOf(row)} could not be told`, tellOfEnd(row, looking));
      else if (row.told_ms === null && row.since_ms <= clock.now() - OFF_OFFER_MS)
        await failures.note(`${wordsOf(row)} could not be told`, tellOfNoOffer(row, looking));
    }
    after = rows.length < PAGE ? undefined : rows.at(-1);
  }
}

async function lookAtOffline(looking: Looking): Promise<void> {
  const { db, clock, quiet, signal } = looking;
  const untilMs = clock.now() - OFFLINE_MS;
  if (untilMs < quiet.fromMs) return;
  for (let afterId: string | undefined = ''; afterId !== undefined && !signal.aborted;) {
    const machines: MachineStanding[] = await offlineMachines(db.read, { untilMs, afterId, limit: PAGE });
    await noteNew(
      machines.map((machine) => ({ machine, trouble: 'offline', gpu_uuid: '' })),
      looking,
    );
    afterId = machines.length < PAGE ? undefined : machines.at(-1)?.id;
  }
}

async function lookAtOnline(looking: Looking): Promise<void> {
  const { db, signal } = looking;
  for (let afterId: string | undefined = ''; afterId !== undefined && !signal.aborted;) {
    const machines: MachineStanding[] = await onlineMachines(db.read, { afterId, limit: PAGE });
    await noteNew(machines.flatMap(troublesOnline), looking);
    afterId = machines.length < PAGE ? undefined : machines.at(-1)?.id;
  }
}

interface Found extends Pick<store.TroubleKey, 'trouble' | 'gpu_uuid'> {
  machine: MachineStanding;
}

function troublesOnline(machine: MachineStanding): Found[] {
  const found: Found[] = machine.broken_gpus.map(({ uuid }) => ({ machine, trouble: 'gpu_broken', gpu_uuid: uuid }));
  found.push({ machine, trouble: 'off_offer', gpu_uuid: '' });
  return found.filter((each) => lasts(machine, each));
}

async function noteNew(found: readonly Found[], looking: Looking): Promise<void> {
  const { db, failures } = looking;
  const ids = found.map(({ machine }) => machine.id);
  const known = new Set((await store.troublesOf(db.read, ids)).map(wordsOf));
  for (const { machine, ...trouble } of found) {
    const key = { ...trouble, machine_id: machine.id };
    if (!known.has(wordsOf(key))) await failures.note(`${wordsOf(key)} could not be noted`, noteTrouble(key, looking));
  }
}

/** The text is also the key of the trouble. */
function wordsOf({ machine_id: id, trouble, gpu_uuid: gpuUuid }: store.TroubleKey): string {
  return `the trouble ${trouble} of the machine ${id}${gpuUuid === '' ? '' : ` with ${gpuUuid}`}`;
}

/** A machine that is offline keeps its other troubles, because nobody knows how it will come back. */
function lasts(machine: MachineStanding | undefined, { trouble, gpu_uuid: gpuUuid }: Omit<Found, 'machine'>): boolean {
  if (machine === undefined) return false;
  if (trouble === 'off_offer') return machine.wanted && !machine.on_offer;
  if (!machine.serves) return false;
  return trouble === 'offline' ? !machine.online : machine.broken_gpus.some(({ uuid }) => uuid === gpuUuid);
}

/** A trouble that was not told begins anew if the machine was offline: while a host comes back, it is not on offer for a moment. */
function isOver(machine: MachineStanding | undefined, row: store.TroubleRow): boolean {
  return !lasts(machine, row) || (row.told_ms === null && machine?.online !== true);
}

/** Notes a trouble and tells it. A machine that is not on offer is told later, because most such troubles end soon. */
async function noteTrouble(key: store.TroubleKey, { db, clock, ids }: MachinesDeps): Promise<void> {
  await db.tx(`notices.machine_${key.trouble}`, async (tx) => {
    await tx.lock('machine', key.machine_id);
    const [machine] = await standingOf(tx, [key.machine_id]);
    if (machine === undefined || !lasts(machine, key)) return;
    const nowMs = clock.now();
    const toldMs = key.trouble === 'off_offer' ? null : nowMs;
    const row = { ...key, org_id: machine.org_id, since_ms: nowMs, told_ms: toldMs };
    if (!(await store.insertTrouble(tx, row)) || toldMs === null) return;
    const broken = machine.broken_gpus.find(({ uuid }) => uuid === key.gpu_uuid);
    const data: EventData =
      broken === undefined ? { since_ms: machine.last_heartbeat_ms } : { reason: `${broken.uuid}: ${broken.detail}` };
    await tell(tx, row, { id: ids.uuid(), type: TOLD_AS[key.trouble].begins, data, nowMs });
  });
}

async function tellOfNoOffer(row: store.TroubleRow, { db, clock, ids }: MachinesDeps): Promise<void> {
  await db.tx('notices.machine_off_offer', async (tx) => {
    await tx.lock('machine', row.machine_id);
    const reason = await offOfferReason(tx, row.machine_id);
    const nowMs = clock.now();
    if (reason === undefined || !(await store.setTold(tx, row, nowMs))) return;
    const data = { since_ms: row.since_ms, reason };
    await tell(tx, row, { id: ids.uuid(), type: TOLD_AS.off_offer.begins, data, nowMs });
  });
}

/** What was not told does not end either, and neither does the trouble of a machine that has left the market. */
async function tellOfEnd(row: store.TroubleRow, { db, clock, ids }: MachinesDeps): Promise<void> {
  await db.tx('notices.machine_end', async (tx) => {
    await tx.lock('machine', row.machine_id);
    const [machine] = await standingOf(tx, [row.machine_id]);
    if (!isOver(machine, row) || !(await store.deleteTrouble(tx, row))) return;
    if (row.told_ms === null || machine?.online !== true || !(await isMended(tx, machine, row))) return;
    await tell(tx, row, { id: ids.uuid(), type: TOLD_AS[row.trouble].ends, data: {}, nowMs: clock.now() });
  });
}

/** A broken GPU that was taken out of the host is not mended. */
async function isMended(tx: Tx, machine: MachineStanding, trouble: store.TroubleKey): Promise<boolean> {
  if (trouble.trouble === 'off_offer') return machine.on_offer;
  if (!machine.serves || trouble.trouble === 'offline') return machine.serves;
  return (await gpusOf(tx, machine.id)).some((gpu) => gpu.gpu_uuid === trouble.gpu_uuid);
}

interface Telling {
  id: string;
  type: string;
  data: EventData;
  nowMs: number;
}

async function tell(tx: Tx, trouble: store.TroubleRow, { id, type, data, nowMs }: Telling): Promise<void> {
  const { org_id: orgId, machine_id: machineId, gpu_uuid: gpuUuid } = trouble;
  const told = gpuUuid === '' ? data : { ...data, gpu_uuid: gpuUuid };
  const row = { id, org_id: orgId, topic: 'machine', type, subject_id: machineId, data: told } as const;
  await store.insertNotice(tx, { ...row, created_ms: nowMs, due_ms: nowMs + GATHER_MS });
}
