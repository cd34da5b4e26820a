// The operation as callers see it (specification 2.6).
import { z } from 'zod';

export const Operation = z
  .strictObject({
    operation_id: z.uuid().describe('Id of the operation, also in the Operation-Id header'),
    kind: z.enum(['instance.create', 'instance.delete']).describe('What was asked for'),
    state: z
      .enum(['pending', 'in_progress', 'succeeded', 'failed', 'cancelled'])
      .describe('State of the operation. `succeeded`, `failed` and `cancelled` are final'),
    resource_id: z.string().nullable().describe('Id of the instance. Null while the state is `pending`'),
    created_at: z.iso.datetime().describe('When it was asked for'),
    updated_at: z.iso.datetime().describe('Last change'),
    completed_at: z.iso.datetime().nullable().describe('When it reached a final state; null before'),
    error: z
      .strictObject({
        code: z.string().describe('Stable identifier of the kind of failure'),
        detail: z.string().describe('What happened, in words'),
      })
      .optional()
      .describe('Present exactly when the operation failed'),
    warnings: z
      .array(z.string())
      .optional()
      .describe(
        'What may go wrong with the launch of this template, for example because the size of its model could not be found out',
      ),
    progress: z.string().optional().describe('What is going on, in words: e.g. how much of the image has been pulled'),
  })
  .meta({ id: 'Operation' });
export type Operation = z.infer<typeof Operation>;
