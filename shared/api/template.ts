// Templates as customers see them: curated applications for `template_id` of a launch.
import { z } from 'zod';

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
