// How routes about machines name, show and price a machine.
import { z } from 'zod';
import type { CommunityMachine, MachineChecklist, MachineReliability } from '../../../shared/api/community.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { centsFloor, dollarsFromUcents, ucentsFromDollars } from '../../../shared/money.ts';
import type { Query } from '../../base/db/db.ts';
import { earnedByMachine, type OfMachine } from '../../money/payouts/earnings.ts';
import { reliabilityOf } from './reliability.ts';
import { type GpuUse, gpuUseOf, type MachineRow } from './store.ts';
import { checklistOf, obstacleOf, tierObstacle } from './checks.ts';

const DAY_MS = 24 * 3_600_000;

/** A microcent. */
const SMALLEST_DOLLARS = 0.00000001;

export const tag = 'Community supply';
export const MachineId = z.strictObject({ id: z.uuid().describe('The machine id') });

/** @throws ServiceError `validation_failed` */
export function priceUcents(pricePerHour: number): bigint {
  if (pricePerHour < SMALLEST_DOLLARS) failField('price_per_hour', 'must be at least 0.00000001');
  return ucentsFromDollars(pricePerHour) ?? failField('price_per_hour', 'must have at most 8 decimals');
}

/** Facts that are not in the row of a machine. */
export interface MachineFacts {
  gpus: readonly GpuUse[];
  earnedTodayUcents: bigint;
  reliability: MachineReliability;
  platformFeeBps: number;
}

export interface ViewDeps extends Pick<OfMachine, 'machinesOf' | 'subjectsOf'> {
  clock: Clock;
  platformFeeBps: number;
}

/** The machines of one supplier, in the order of `rows`. */
export async function machineViews(
  query: Query,
  rows: readonly MachineRow[],
  deps: ViewDeps,
): Promise<CommunityMachine[]> {
  const [first] = rows;
  if (first === undefined) return [];
  const machineIds = rows.map(({ id }) => id);
  const gpus = Map.groupBy(await gpuUseOf(query, machineIds), (gpu) => gpu.machine_id);
  const nowMs = deps.clock.now();
  const counted = rows.map(({ id }) => ({ id, gpus: sumOf(gpus.get(id) ?? []) }));
  const reliability = await reliabilityOf(query, counted, nowMs);
  const sinceMs = Math.floor(nowMs / DAY_MS) * DAY_MS;
  const earned = await earnedByMachine(query, { supplierId: first.supplier_id, machineIds, sinceMs }, deps);
  return rows.map((row) => {
    const numbers = reliability.get(row.id);
    if (numbers === undefined) throw new Error(`the machine ${row.id} has no numbers`);
    const earnedTodayUcents = earned.get(row.id) ?? 0n;
    const facts = { gpus: gpus.get(row.id) ?? [], earnedTodayUcents, reliability: numbers };
    return machineView(row, { ...facts, platformFeeBps: deps.platformFeeBps });
  });
}

function sumOf(gpus: readonly GpuUse[]): number {
  return gpus.reduce((sum, { count }) => sum + count, 0);
}

/** One machine of a supplier. */
export async function viewOf(query: Query, row: MachineRow, deps: ViewDeps): Promise<CommunityMachine> {
  const [view] = await machineViews(query, [row], deps);
  if (view === undefined) throw new Error(`the machine ${row.id} has no view`);
  return view;
}

/** The checklist of a machine: what decides whether it is on offer, and what its rentals show. `failingProbes` is provided by a room above. */
export async function machineChecklist(
  query: Query,
  row: MachineRow,
  failingProbes: readonly string[],
): Promise<MachineChecklist> {
  const checks = checklistOf(row, { gpus: await gpuUseOf(query, [row.id]), failingProbes });
  const isOnOffer = checks.every(({ required, state }) => !required || state === 'passed');
  return { machine_id: row.id, on_offer: isOnOffer, checks };
}

export function machineView(row: MachineRow, facts: MachineFacts): CommunityMachine {
  const { gpus, earnedTodayUcents, reliability, platformFeeBps } = facts;
  const reason = obstacleOf(row) ?? tierObstacle(row) ?? null;
  return {
    machine_id: row.id,
    supplier_id: row.supplier_id,
    name: row.name,
    hostname: row.inventory?.hostname ?? null,
    // Specification 3.4: only the answer of a delisting says `draining`. `status_reason` says that a rental goes on.
    status: row.status === 'draining' ? 'delisted' : row.status,
    status_reason: reason,
    on_offer: reason === null,
    verification_status: row.verification_status,
    verification_detail: row.verification_detail,
    gpu_faults: row.inventory?.gpu_faults.map(({ uuid, ...fault }) => ({ gpu_uuid: uuid, ...fault })) ?? [],
    created_at: isoTime(row.created_ms),
    gpu_count: row.declared_gpu_count,
    gpu_type: row.declared_gpu_type,
    region: row.region,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    platform_fee_percent: platformFeeBps / 100,
    vram_per_gpu_gb: row.declared_vram_per_gpu_gb,
    tier: row.tier,
    rentable_until: row.rentable_until_ms === null ? null : isoTime(row.rentable_until_ms),
    online: row.online,
    reported_gpus: gpus.map(({ gpu_type, vram_gb, count, rented, reserved }) => ({
      gpu_type,
      vram_per_gpu_gb: vram_gb,
      count,
      rented,
      reserved,
    })),
    earned_today_cents: Number(centsFloor(earnedTodayUcents)),
    reliability,
    last_heartbeat_at: row.last_heartbeat_ms === null ? null : isoTime(row.last_heartbeat_ms),
  };
}
