// The catalog as anybody sees it (specification 2.3 and 2.4).
import { z } from 'zod';

export const GpuType = z
  .strictObject({
    gpu_type: z.string().describe('Canonical identifier'),
    vram_gb: z.int().describe('Nameplate VRAM of one GPU. If the model has variants, the smallest VRAM on offer'),
    architecture: z.string().optional().describe('Family of the GPU; absent for a model that we do not know'),
    cpu_cores: z.int().describe('Representative vCPUs of a host; 0 = unreported'),
    ram_gb: z.int().describe('Representative RAM of a host; 0 = unreported'),
    storage_gb: z.int().describe('Representative storage of a host; 0 = unreported'),
    instance_disk_gb: z.int().describe('Representative file system size of a launch; 0 = unreported'),
    disk_configurable: z.boolean().describe('True if at least one offering honours `disk_gb`'),
  })
  .meta({ id: 'GpuType' });
export type GpuType = z.infer<typeof GpuType>;

export const PricingRow = z
  .strictObject({
    offering_id: z.string().describe('Pins a launch to exactly this offering'),
    gpu_type: z.string().describe('Canonical identifier, as in GET /v1/gpu-types'),
    region: z.string().describe('Where the host stands'),
    tier: z.enum(['on_demand']).describe('How it is rented'),
    price_per_hour: z.number().describe('Dollars an hour for one GPU'),
    available: z.int().describe('GPUs that are free now; one launch can have at most this many'),
    vram_gb: z.int().describe('Nameplate VRAM of one GPU'),
    storage_gb: z.int().describe('Storage of the host; 0 = unreported'),
    disk_configurable: z.boolean().describe('Whether a launch here can choose disk_gb'),
    disk_price_per_gb_hour: z
      .number()
      .describe('Dollars an hour for each GB of disk beyond the included 100; 0 if the disk size cannot be chosen'),
  })
  .meta({ id: 'PricingRow' });
export type PricingRow = z.infer<typeof PricingRow>;
