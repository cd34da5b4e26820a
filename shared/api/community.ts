// Community supply as suppliers see it (specification 2.17).
import { z } from 'zod';

export const CommunitySupplier = z
  .strictObject({
    supplier_id: z.uuid(),
    org_id: z.string(),
    status: z.enum(['active', 'suspended']),
    created_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
  })
  .meta({ id: 'CommunitySupplier' });
export type CommunitySupplier = z.infer<typeof CommunitySupplier>;

/** Body of POST /v1/community/machines. Declared, not believed: what is offered comes from the host's own inventory. */
export const RegisterMachine = z
  .strictObject({
    region: z.string().min(1).max(64).describe('Where it stands, e.g. eu-west'),
    price_per_hour: z.number().positive().max(1000).describe('Retail price of one GPU in dollars an hour'),
    gpu_type: z.string().min(1).max(64).optional(),
    gpu_count: z.int().min(1).max(16).optional(),
    vram_per_gpu_gb: z.int().min(1).max(1024).optional(),
    tier: z.enum(['on_demand', 'spot']).default('on_demand'),
  })
  .meta({ id: 'RegisterMachine' });
export type RegisterMachine = z.infer<typeof RegisterMachine>;

export const CommunityMachine = z
  .strictObject({
    machine_id: z.uuid(),
    supplier_id: z.uuid(),
    status: z.enum(['pending_verification', 'listed', 'draining', 'delisted', 'suspended']),
    verification_status: z.enum(['unverified', 'verified', 'failed']),
    created_at: z.iso.datetime(),
    gpu_count: z.int().nullable(),
    gpu_type: z.string().nullable(),
    region: z.string().nullable(),
    price_per_hour: z.number().nullable(),
    vram_per_gpu_gb: z.int().nullable(),
    tier: z.enum(['on_demand', 'spot']),
    last_heartbeat_at: z.iso.datetime().nullable(),
  })
  .meta({ id: 'CommunityMachine' });
export type CommunityMachine = z.infer<typeof CommunityMachine>;

export const CommunityMachineRegistration = z
  .strictObject({
    machine: CommunityMachine,
    enrollment_token: z.string().describe('Shown exactly once; lives 24 hours'),
  })
  .meta({ id: 'CommunityMachineRegistration' });
