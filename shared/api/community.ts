// Community supply as suppliers see it (specification 2.17).
import { z } from 'zod';

export const CommunitySupplier = z
  .strictObject({
    supplier_id: z.uuid().describe('Identifies the supplier'),
    org_id: z.string().describe('The organisation that supplies'),
    status: z.enum(['active', 'suspended']).describe('A suspended supplier cannot register machines'),
    created_at: z.iso.datetime().describe('Since when it is a supplier'),
    updated_at: z.iso.datetime().describe('Last change'),
  })
  .meta({ id: 'CommunitySupplier' });
export type CommunitySupplier = z.infer<typeof CommunitySupplier>;

/** Body of POST /v1/community/machines. Declared, not believed: what is offered comes from the host's own inventory. */
export const RegisterMachine = z
  .strictObject({
    region: z.string().min(1).max(64).describe('Where it stands, e.g. eu-west'),
    price_per_hour: z.number().positive().max(1000).describe('Retail price of one GPU in dollars an hour'),
    gpu_type: z.string().min(1).max(64).optional().describe('Declared, not believed'),
    gpu_count: z.int().min(1).max(16).optional().describe('Declared, not believed'),
    vram_per_gpu_gb: z.int().min(1).max(1024).optional().describe('Declared, not believed'),
    tier: z.enum(['on_demand', 'spot']).default('on_demand').describe('Tier of its offerings'),
  })
  .meta({ id: 'RegisterMachine' });
export type RegisterMachine = z.infer<typeof RegisterMachine>;

export const CommunityMachine = z
  .strictObject({
    machine_id: z.uuid().describe('Identifies the machine'),
    supplier_id: z.uuid().describe('Whose machine it is'),
    status: z
      .enum(['pending_verification', 'listed', 'draining', 'delisted', 'suspended'])
      .describe('listed: on offer while it is online; draining: the rental on it goes on, no new ones'),
    verification_status: z.enum(['unverified', 'verified', 'failed']).describe('Whether its GPUs were checked'),
    created_at: z.iso.datetime().describe('When it was registered'),
    gpu_count: z.int().nullable().describe('As declared'),
    gpu_type: z.string().nullable().describe('As declared'),
    region: z.string().nullable().describe('Where it stands, as declared'),
    price_per_hour: z.number().nullable().describe('Retail price of one GPU in dollars an hour'),
    vram_per_gpu_gb: z.int().nullable().describe('As declared'),
    tier: z.enum(['on_demand', 'spot']).describe('Tier of its offerings'),
    last_heartbeat_at: z.iso.datetime().nullable().describe('Last sign of its agent; null before the first'),
  })
  .meta({ id: 'CommunityMachine' });
export type CommunityMachine = z.infer<typeof CommunityMachine>;

export const CommunityMachineRegistration = z
  .strictObject({
    machine: CommunityMachine.describe('The machine'),
    enrollment_token: z.string().describe('Shown exactly once; lives 24 hours'),
  })
  .meta({ id: 'CommunityMachineRegistration' });
