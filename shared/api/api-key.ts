// API keys as they are listed: never the key itself, which is shown once when it is made.
import { z } from 'zod';

export const ApiKey = z.strictObject({
  id: z.string(),
  org_id: z.string(),
  name: z.string(),
  prefix: z.string().describe('The first characters of the key, to tell keys apart'),
  scopes: z.array(z.string()),
  created_at: z.iso.datetime(),
  expires_at: z.iso.datetime().nullable(),
  last_used_at: z.iso.datetime().nullable(),
  revoked_at: z.iso.datetime().nullable(),
});
export type ApiKey = z.infer<typeof ApiKey>;

/** The answer to its creation. */
export const NewApiKey = ApiKey.extend({ key: z.string().describe('Shown exactly once') });
export type NewApiKey = z.infer<typeof NewApiKey>;
