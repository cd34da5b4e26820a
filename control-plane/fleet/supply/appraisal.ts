// Judges what a host shows: compares it with the declaration, with the operator's approval, and with the claims of other machines.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import type { Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { foreignWords } from './approval.ts';
import { claimedElsewhere, syncClaims } from './claims.ts';
import { identifyGpu } from './known-gpus.ts';
import * as store from './store.ts';
import { verificationOf } from './verdict.ts';

interface AppraisalDeps {
  clock: Clock;
  log: Log;
  events: Events;
  /** Updates the offerings of the machine. */
  refresh(tx: Tx, machineId: string): Promise<void>;
}

/** Called after each change of a machine's inventory, approval, status or declared fields, and when its last rental ends. */
export async function appraise(tx: Tx, machineId: string, deps: AppraisalDeps): Promise<void> {
  // A claim that comes or goes changes what other machines may offer. Each claim changes hands at most once, so the loop ends.
  const due = [machineId];
  for (let id = due.shift(); id !== undefined; id = due.shift()) {
    due.push(...(await appraiseOne(tx, id, deps)));
  }
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
  await store.setVerification(tx, machineId, verdict);
  const { verification_status: status, verification_detail: detail } = verdict;
  // Logged once per verdict, because a host that reports often must not fill the log.
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
    orgId: null,
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
