// Organisations as the operator sees them.
import { z } from 'zod';

export const OrgName = z
  .string()
  .min(1)
  .max(255)
  .regex(/^\P{Cc}*$/u, 'must not contain control characters');

export const Org = z.strictObject({ id: z.string(), name: OrgName, created_at: z.iso.datetime() });
export type Org = z.infer<typeof Org>;
