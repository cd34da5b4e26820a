// The outlook of a contract that has no GPUs yet: whether the supply can fill it, and how many GPUs it would find at its start.
import { fail } from '../../../shared/errors.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { fewestMachines } from '../../fleet/placement/placement.ts';
import { freeCapacity, type Kind, machinesOfKind, slotsOf, supplyOf } from '../../fleet/supply/slots.ts';
import { gpusIn, kindOf } from './allocate.ts';
import * as store from './store.ts';
import { lastEnd, standing } from './term.ts';

/** The GPUs that a contract would find at its start, if all GPUs in use now stayed in use. */
export interface Outlook {
  free: { machineId: string; gpuType: string; count: number }[];
  missing: number;
}

/**
 * Checks that the whole supply can fill the contract, whoever uses the GPUs now. Other contracts count for the time that they overlap with it.
 * The machines of the supply are locked first, so that two contracts at the same moment are not promised the same GPUs.
 * @throws ServiceError `conflict` if it cannot be filled
 */
export async function assertCanBeFilled(tx: Tx, contract: store.ReservationRow, nowMs: number): Promise<void> {
  const machines: string[] = [];
  for (const entry of contract.commitment) machines.push(...(await machinesOfKind(tx, kindOf(entry))));
  await tx.lock('machine', ...machines);
  const others = await othersOf(tx, contract, nowMs);
  for (const entry of contract.commitment) {
    const kind = kindOf(entry);
    const [supply, promised] = [
      await supplyOf(tx, { ...kind, endsMs: lastEnd(contract) }),
      peakOf(others, kind, contract),
    ];
    if (promised + entry.gpu_count <= supply) continue;
    const { gpuType, region } = kind;
    fail(
      'conflict',
      `${entry.gpu_count} ${gpuType} in ${region} are needed. There are ${supply}, and other contracts have up to ${promised} of them in that time. Nothing was changed.`,
    );
  }
}

/** Contracts that wait for GPUs of the same kind, or will wait before this one begins, are served first. */
export async function outlookOf(query: Query, contract: store.ReservationRow, nowMs: number): Promise<Outlook> {
  const others = await othersOf(query, contract, nowMs);
  const ended = others.filter((other) => endOf(other) <= contract.starts_ms).map(({ id }) => id);
  const running = others.filter((other) => isAt(other, contract.starts_ms));
  const outlook: Outlook = { free: [], missing: 0 };
  for (const entry of contract.commitment) {
    const kind = kindOf(entry);
    const capacities = await freeCapacity(query, { ...kind, endsMs: lastEnd(contract) }, ended);
    let awaited = 0;
    for (const other of running) awaited += await lackOf(query, other, kind);
    const count = Math.min(entry.gpu_count, Math.max(0, gpusIn(capacities) - awaited));
    const parts = fewestMachines(capacities, count) ?? [];
    outlook.free.push(...parts.map((part) => ({ ...part, gpuType: kind.gpuType })));
    outlook.missing += entry.gpu_count - count;
  }
  return outlook;
}

/** The largest number of GPUs that contracts have at one moment of a term. */
function peakOf(contracts: readonly store.ReservationRow[], kind: Kind, during: store.ReservationRow): number {
  const moments = contracts
    .map((contract) => contract.starts_ms)
    .filter((startsMs) => startsMs > during.starts_ms && startsMs < endOf(during));
  const committedAt = (atMs: number): number =>
    contracts
      .filter((contract) => isAt(contract, atMs))
      .reduce((sum, contract) => sum + committedOf(contract, kind), 0);
  return Math.max(...[during.starts_ms, ...moments].map(committedAt));
}

async function othersOf(query: Query, contract: store.ReservationRow, nowMs: number): Promise<store.ReservationRow[]> {
  const live = (await store.liveReservations(query)).filter(({ id }) => id !== contract.id);
  return live.map((other) => standing(other, nowMs)).filter(({ status }) => status !== 'expired');
}

async function lackOf(query: Query, contract: store.ReservationRow, kind: Kind): Promise<number> {
  const has = (await slotsOf(query, contract.id))
    .filter((slot) => slot.gpu_type === kind.gpuType && slot.region === kind.region)
    .reduce((sum, slot) => sum + slot.slots, 0);
  return Math.max(0, committedOf(contract, kind) - has);
}

function committedOf({ commitment }: store.ReservationRow, { gpuType, region }: Kind): number {
  return commitment.find((entry) => entry.gpu_type === gpuType && entry.region === region)?.gpu_count ?? 0;
}

function isAt(contract: store.ReservationRow, atMs: number): boolean {
  return contract.starts_ms <= atMs && endOf(contract) > atMs;
}

/** A contract with auto_renew counts as endless. */
function endOf(contract: store.ReservationRow): number {
  return lastEnd(contract) ?? Infinity;
}
