// What a launch can start from: environments (specification 2.16), which are places to log in to, and templates, which are curated applications.
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

const TemplateVariable = z.strictObject({
  key: z.string().describe('Name of the variable'),
  description: z.string().describe('What it is for'),
  default: z.string().optional().describe('Its value if the launch sets none; absent: it is not set'),
  required: z.boolean().describe('A launch must set it in env'),
  user_overridable: z.boolean().describe('A launch may set it in env; others are refused'),
  secret: z.boolean().describe('Its value is a secret, such as a token'),
});

export const Template = z
  .strictObject({
    id: z.string().describe('The template_id of a launch'),
    title: z.string().describe('Name for people'),
    description: z.string().describe('What it runs'),
    min_vram_gb: z.int().describe('VRAM that each GPU must have at least'),
    primary_port: z
      .int()
      .nullable()
      .describe('What is served at connection.app_url; null: nothing is, it is used over SSH'),
    env: z.array(TemplateVariable).describe('Its variables'),
  })
  .meta({ id: 'Template' });
export type Template = z.infer<typeof Template>;
