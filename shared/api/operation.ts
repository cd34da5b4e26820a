// The operation as callers see it (specification 2.6).
import { z } from 'zod';

export const Operation = z
  .strictObject({
    operation_id: z.uuid(),
    kind: z.enum(['instance.create', 'instance.delete']),
    state: z.enum(['pending', 'in_progress', 'succeeded', 'failed', 'cancelled']),
    resource_id: z.string().nullable().describe('The instance, once work on it has begun'),
    created_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
    completed_at: z.iso.datetime().nullable(),
    error: z
      .strictObject({ code: z.string(), detail: z.string() })
      .optional()
      .describe('Present exactly when the operation failed'),
    progress: z.string().optional().describe('What is going on, in words: e.g. how much of the image has been pulled'),
  })
  .meta({ id: 'Operation' });
export type Operation = z.infer<typeof Operation>;
