// The catalog as anybody sees it (specification 2.3 and 2.4).
import { z } from 'zod';
import { AUTO_TERMINATE_HOURS_MAX, DISK_GB_MAX, DISK_GB_MIN, GPU_COUNT_MAX } from '../limits.ts';
import { label } from './label.ts';
import { CHOICES_MAX, hostMinimums } from './requirements.ts';

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
    available: z
      .int()
      .describe(
        'GPUs that are free now; one launch can have at most this many. 0 with `rentable_until`, unless the query says with `auto_terminate_hours` that the launch ends by itself',
      ),
    rentable_until: z.iso
      .datetime()
      .optional()
      .describe(
        'Time from which the host is not on offer any more. A launch whose `auto_terminate_hours` end before it, with its start included, can still have free GPUs there. Absent if the host is offered without an end',
      ),
    vram_gb: z.int().describe('Nameplate VRAM of one GPU'),
    cpu_cores: z.int().describe('Processors of the host; 0 = unreported. An instance gets a share of them by its GPUs'),
    ram_gb: z.int().describe('Memory of the host in GB; 0 = unreported. An instance gets a share of it by its GPUs'),
    storage_gb: z.int().describe('Storage of the host; 0 = unreported'),
    host_gpu_count: z.int().describe('All GPUs of the host, which share its processors and its memory; 0 = unreported'),
    driver_version: z.string().optional().describe('Version of the GPU driver of the host; absent if it is unknown'),
    cuda_version: z
      .string()
      .optional()
      .describe('Newest version of CUDA that the driver supports, such as 12.8; absent if it is unknown'),
    disk_configurable: z.boolean().describe('Whether a launch here can choose disk_gb'),
    disk_price_per_gb_hour: z
      .number()
      .describe('Dollars an hour for each GB of disk beyond the included 100; 0 if the disk size cannot be chosen'),
    uptime: z
      .number()
      .min(0)
      .max(1)
      .optional()
      .describe(
        'Share of the last 30 days, or of the time since the first connection of the host, in which the host was connected; rounded down to three decimals. Absent until a day after the first connection',
      ),
    failed_launch_share: z
      .number()
      .min(0)
      .max(1)
      .optional()
      .describe(
        'Share of the launches of the last 30 days that failed because of the host, with three decimals. Absent with fewer than 5 launches',
      ),
  })
  .meta({ id: 'PricingRow' });
export type PricingRow = z.infer<typeof PricingRow>;

const whole = z.coerce.number().int();

/** Query parameters of GET /v1/pricing beside those of a page. Each keeps only the offerings that meet it. */
export const pricingFilters = {
  gpu_type: z
    .string()
    .min(1)
    .max(1_300)
    .refine((types) => types.split(',').length <= CHOICES_MAX, `must be at most ${CHOICES_MAX} types`)
    .optional()
    .describe(`Only this GPU type, or these types, separated by commas; at most ${CHOICES_MAX}`),
  region: label(64).optional().describe('Only this region'),
  gpu_count: whole
    .min(1)
    .max(GPU_COUNT_MAX)
    .optional()
    .describe(
      'Only offerings with at least this many free GPUs. The other filters then compare what a launch with this many GPUs would get. If it is left out, offerings without a free GPU are listed too, and the filters compare a launch with one GPU',
    ),
  max_price_per_hour: z.coerce
    .number()
    .positive()
    .max(1_000_000)
    .optional()
    .describe('The highest price of the whole launch for an hour, in dollars'),
  disk_gb: whole
    .min(DISK_GB_MIN)
    .max(DISK_GB_MAX)
    .optional()
    .describe('Only offerings that honour a disk of this size and have this much left'),
  auto_terminate_hours: whole
    .min(1)
    .max(AUTO_TERMINATE_HOURS_MAX)
    .optional()
    .describe(
      'Only offerings that stay until a launch with this limit has ended, with its start included. If it is left out, `available` counts for a launch without an end',
    ),
  ...hostMinimums(z.coerce.number()),
  sort: z
    .enum(['newest', 'price'])
    .optional()
    .describe('newest (the default): the newest offering comes first. price: the cheapest GPU comes first'),
};
const PricingFilters = z.object(pricingFilters);
export type PricingFilters = z.infer<typeof PricingFilters>;
