// What a launch can start from: environments (specification 2.16), which are places to log in to, and templates, which are curated applications.
import { z } from 'zod';

/** The releases of CUDA that images are built for. */
export const CudaVariant = z.enum(['cuda128', 'cuda124']);

export const IncludeItem = z
  .strictObject({
    name: z.string().min(1).describe('Name of the component'),
    version: z.string().min(1).optional().describe('Absent for a component that is not pinned'),
  })
  .meta({ id: 'IncludeItem' });

const FrameworkVersion = z
  .strictObject({
    id: z.string().describe('Identifies the version: the part after the @ in `environment`'),
    label: z.string().describe('Name for people'),
    variant: CudaVariant.describe('The CUDA variant that it is built for'),
    default: z
      .boolean()
      .describe('True if a launch that names no version gets this one. A framework has at most one default'),
  })
  .meta({ id: 'FrameworkVersion' });
export type FrameworkVersion = z.infer<typeof FrameworkVersion>;

export const Environments = z
  .strictObject({
    frameworks: z.array(z.string()).describe('The frameworks. A launch names one as `certified:<framework>`'),
    versions: z.record(z.string(), z.array(FrameworkVersion)).describe('The versions of each framework'),
    includes: z
      .record(z.string(), z.partialRecord(CudaVariant, z.array(IncludeItem)))
      .describe('The installed components of each framework and of `base`, by CUDA variant'),
    vm_images: z
      .record(z.string(), z.strictObject({}))
      .describe('Systems of virtual machines; empty while no host runs any'),
  })
  .meta({ id: 'Environments' });
export type Environments = z.infer<typeof Environments>;

const TemplateVariable = z.strictObject({
  key: z.string().describe('Name of the variable'),
  description: z.string().describe('What it is for'),
  default: z
    .string()
    .optional()
    .describe('Value of the variable if the launch sets none. If there is no default, the variable is then not set'),
  required: z.boolean().describe('A launch must set it in env'),
  user_overridable: z
    .boolean()
    .describe('True if a launch may set the variable in `env`. A launch that sets any other variable is refused'),
  secret: z.boolean().describe('Its value is a secret, such as a token'),
});

export const Template = z
  .strictObject({
    id: z.string().describe('The template_id of a launch'),
    title: z.string().describe('Name for people'),
    description: z.string().describe('What it runs'),
    min_vram_gb: z.int().describe('Minimum VRAM of each GPU, in GB'),
    primary_port: z
      .int()
      .nullable()
      .describe(
        'The port that is served at `connection.app_url`. Null if no port is served: the template is used over SSH',
      ),
    env: z.array(TemplateVariable).describe('Its variables'),
  })
  .meta({ id: 'Template' });
export type Template = z.infer<typeof Template>;
