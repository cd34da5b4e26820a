// The request with which an instance was launched.
import { z } from 'zod';
import { CreateInstance } from './instance.ts';

export const InstanceRequest = z
  .strictObject(CreateInstance.shape)
  .omit({ env: true })
  .extend({
    env_names: z
      .array(z.string())
      .describe('Names of the variables in `env` of the request, in their order. Their values are never shown'),
  })
  .meta({ id: 'InstanceRequest' });
export type InstanceRequest = z.infer<typeof InstanceRequest>;
