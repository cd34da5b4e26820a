// What routes about machines share: how one is named, shown and priced.
import { z } from 'zod';
import type { CommunityMachine } from '../../../shared/api/community.ts';
import { isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { dollarsFromUcents, ucentsFromDollars } from '../../../shared/money.ts';
import type { MachineRow } from './store.ts';
import { obstacleOf } from './verdict.ts';

export const tag = 'Community supply';
export const MachineId = z.strictObject({ id: z.uuid().describe('The machine id') });

/** @throws ServiceError `validation_failed` */
export function priceUcents(pricePerHour: number): bigint {
  const price = ucentsFromDollars(pricePerHour) ?? failField('price_per_hour', 'must have at most 8 decimals');
  return price > 0n ? price : failField('price_per_hour', 'must be at least 0.00000001');
}

export function machineView(row: MachineRow): CommunityMachine {
  return {
    machine_id: row.id,
    supplier_id: row.supplier_id,
    status: row.status,
    status_reason: obstacleOf(row) ?? (row.tier === 'spot' ? 'Spot capacity is not sold at present.' : null),
    verification_status: row.verification_status,
    verification_detail: row.verification_detail,
    gpu_faults: row.inventory?.gpu_faults.map(({ uuid, ...fault }) => ({ gpu_uuid: uuid, ...fault })) ?? [],
    created_at: isoTime(row.created_ms),
    gpu_count: row.declared_gpu_count,
    gpu_type: row.declared_gpu_type,
    region: row.region,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    vram_per_gpu_gb: row.declared_vram_per_gpu_gb,
    tier: row.tier,
    last_heartbeat_at: row.last_heartbeat_ms === null ? null : isoTime(row.last_heartbeat_ms),
  };
}
