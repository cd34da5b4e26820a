// Launch environments (specification 2.16): places to log in to, for `environment` of a launch.
import { z } from 'zod';

/** The releases of CUDA that images are built for. */
export const CudaVariant = z.enum(['cuda128', 'cuda124']);

export const IncludeItem = z
  .strictObject({
    name: z.string().min(1).describe('Component'),
    version: z.string().min(1).optional().describe('Absent for a component that is not pinned'),
  })
  .meta({ id: 'IncludeItem' });

const FrameworkVersion = z
  .strictObject({
    id: z.string().describe('What stands after the @'),
    label: z.string().describe('Name for people'),
    variant: CudaVariant.describe('The CUDA variant that it is built for'),
    default: z.boolean().describe('Taken where a launch names no version; at most one of a framework'),
  })
  .meta({ id: 'FrameworkVersion' });
export type FrameworkVersion = z.infer<typeof FrameworkVersion>;

export const Environments = z
  .strictObject({
    frameworks: z.array(z.string()).describe('Usable as certified:<framework>'),
    versions: z.record(z.string(), z.array(FrameworkVersion)).describe('Of each framework'),
    includes: z
      .record(z.string(), z.partialRecord(CudaVariant, z.array(IncludeItem)))
      .describe('What is installed, of each framework and of `base`, by CUDA variant'),
    vm_images: z
      .record(z.string(), z.strictObject({}))
      .describe('Systems of virtual machines; empty while no host runs any'),
  })
  .meta({ id: 'Environments' });
export type Environments = z.infer<typeof Environments>;
