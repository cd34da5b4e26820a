// Judges what a host shows: compares it with the declaration, with the operator's approval, and with the claims of other machines. A GPU is claimed
// by the first machine that was approved with it. Other machines that show the same GPU are judged `failed`.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { type Tx, join, type Query, sql } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { foreignWords } from './approval.ts';
import { identifyGpu } from './known-gpus.ts';
import { orgOfMachine } from './owners.ts';
import * as store from './store.ts';
import { awaitsApproval, verificationOf } from './verdict.ts';
import { z } from 'zod';
import { text } from '../../base/db/columns.ts';
import type { MachineRow } from './store.ts';

interface AppraisalDeps {
  clock: Clock;
  log: Log;
  events: Events;
  /** Updates the offerings of the machine. */
  refresh(tx: Tx, machineId: string): Promise<void>;
}

/** Judges a machine. Must be called after each change of its inventory, approval, status or declared fields, and when its last rental ends. */
export async function appraise(tx: Tx, machineId: string, deps: AppraisalDeps): Promise<void> {
  // A claim that comes or goes changes what other machines may offer. Each claim changes hands at most once, so the loop ends.
  const due = [machineId];
  for (let id = due.shift(); id !== undefined; id = due.shift()) {
    const others = await appraiseOne(tx, id, deps);
    // Locked before they are read. Otherwise an inventory that a host reports meanwhile would be replaced by the one that was read here.
    await tx.lock('machine', ...others);
    due.push(...others);
  }
}

const ClaimRow = z.object({ gpu_uuid: text, machine_id: text });
const UuidRow = z.object({ gpu_uuid: text });
const MachineIdRow = z.object({ machine_id: text });

/** The GPUs among these that another machine claims, with that machine. */
export function claimedElsewhere(
  query: Query,
  machineId: string,
  uuids: readonly string[],
): Promise<z.infer<typeof ClaimRow>[]> {
  if (uuids.length === 0) return Promise.resolve([]);
  return query.all(
    ClaimRow,
    sql`select gpu_uuid, machine_id from gpu_claims
        where gpu_uuid in (${join([...uuids])}) and machine_id <> ${machineId} order by gpu_uuid`,
  );
}

/**
 * Updates the claims of a machine. It claims approved GPUs until it is delisted, and rented GPUs until the rental ends. Returns the other
 * machines that show a GPU whose claim came or went: they must be judged again.
 */
async function syncClaims(tx: Tx, machine: MachineRow, nowMs: number): Promise<string[]> {
  const isClaiming = machine.approved && machine.status !== 'delisted';
  const wanted = isClaiming ? (machine.approved_gpus ?? []).map(({ uuid }) => uuid) : [];
  const changed = [...(await release(tx, machine.id, wanted)), ...(await claim(tx, machine.id, { wanted, nowMs }))];
  if (changed.length === 0) return [];
  const rows = await tx.all(
    MachineIdRow,
    sql`select machine_id from (
          select g.machine_id, min(m.created_ms) as created_ms from machine_gpus g join machines m on m.id = g.machine_id
          where g.gpu_uuid in (${join(changed)}) and g.machine_id <> ${machine.id} group by g.machine_id) as claimants
        order by created_ms, machine_id`,
  );
  return rows.map((row) => row.machine_id);
}

async function appraiseOne(tx: Tx, machineId: string, deps: AppraisalDeps): Promise<string[]> {
  const before = await store.findMachine(tx, machineId);
  if (before === undefined) return [];
  const machine = { ...before, inventory_fault: await noteFault(tx, before, deps) };
  const others = await syncClaims(tx, machine, deps.clock.now());
  const uuids = machine.inventory?.gpus.map((gpu) => gpu.uuid) ?? [];
  const elsewhere = await claimedElsewhere(tx, machineId, uuids);
  if (machine.inventory !== null) {
    await writeGpus(tx, machineId, machine.inventory, new Set(elsewhere.map((claim) => claim.gpu_uuid)));
  }
  const verdict = verificationOf(machine, elsewhere.length);
  await store.setVerification(tx, machineId, verdict, awaitsApproval(machine) ? deps.clock.now() : null);
  const { verification_status: status, verification_detail: detail } = verdict;
  // Logged only when the verdict becomes `failed`, because a host that reports often must not fill the log.
  if (status === 'failed' && before.verification_status !== 'failed') {
    const claimedBy = [...new Set(elsewhere.map((claim) => claim.machine_id))];
    deps.log.error(
      { machine_id: machineId, supplier_id: machine.supplier_id, detail, claimed_by_machine_ids: claimedBy },
      'a machine failed its verification and is off the market',
    );
  }
  await deps.refresh(tx, machineId);
  return others;
}

/** Stores a contradiction to the approval until the operator approves again. A host that was caught must not return by itself. */
async function noteFault(tx: Tx, machine: store.MachineRow, { events }: AppraisalDeps): Promise<string | null> {
  const { approved_gpus: approved, inventory } = machine;
  if (machine.inventory_fault !== null || approved === null || inventory === null) return machine.inventory_fault;
  const fault = foreignWords(approved, inventory) ?? null;
  if (fault === null) return null;
  await store.setInventoryFault(tx, machine.id, fault);
  await events.append(tx, {
    type: 'machine.inventory_changed',
    subjectId: machine.id,
    orgId: await orgOfMachine(tx, machine.id),
    data: { machine_id: machine.id, detail: fault },
  });
  return fault;
}

async function writeGpus(
  tx: Tx,
  machineId: string,
  inventory: Inventory,
  elsewhere: ReadonlySet<string>,
): Promise<void> {
  const faulty = new Set(inventory.gpu_faults.map(({ uuid }) => uuid));
  for (const gpu of inventory.gpus) {
    await store.upsertGpu(tx, {
      machine_id: machineId,
      gpu_uuid: gpu.uuid,
      gpu_index: gpu.index,
      ...identifyGpu(gpu.name, gpu.memory_mib),
      usable: !gpu.foreign_use && !elsewhere.has(gpu.uuid) && !faulty.has(gpu.uuid),
    });
  }
}

async function release(tx: Tx, machineId: string, wanted: readonly string[]): Promise<string[]> {
  const isWanted = wanted.length === 0 ? sql`1 = 0` : sql`gpu_uuid in (${join([...wanted])})`;
  const rented = sql`select gpu_uuid from machine_gpus where machine_id = ${machineId} and held_by is not null`;
  const rows = await tx.all(
    UuidRow,
    sql`delete from gpu_claims where machine_id = ${machineId} and not (${isWanted}) and gpu_uuid not in (${rented})
        returning gpu_uuid`,
  );
  return rows.map((row) => row.gpu_uuid);
}

async function claim(
  tx: Tx,
  machineId: string,
  { wanted, nowMs }: { wanted: readonly string[]; nowMs: number },
): Promise<string[]> {
  const claimed: string[] = [];
  for (const uuid of wanted) {
    const isNew = await tx.run(
      sql`insert into gpu_claims (gpu_uuid, machine_id, claimed_ms) values (${uuid}, ${machineId}, ${nowMs})
          on conflict (gpu_uuid) do nothing`,
    );
    if (isNew === 1) claimed.push(uuid);
  }
  return claimed;
}
