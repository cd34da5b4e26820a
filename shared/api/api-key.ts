// API keys as they are listed: never the key itself, which is shown once when it is made.
import { z } from 'zod';

const SCOPES_MAX = 64;

export const ApiKey = z
  .strictObject({
    id: z.string().describe('Identifies the key; it is no secret'),
    org_id: z.string().describe('The organisation that the key acts for'),
    name: z.string().describe('Label of the key'),
    prefix: z.string().describe('The first characters of the key, to tell keys apart'),
    scopes: z.array(z.string()).describe('What the key may do'),
    created_at: z.iso.datetime().describe('When it was made'),
    expires_at: z.iso.datetime().nullable().describe('It is refused from then on; null: it does not expire'),
    last_used_at: z.iso.datetime().nullable().describe('Last request with it, exact to a minute; null: never used'),
    revoked_at: z.iso.datetime().nullable().describe('It is refused since then; null: it was not revoked'),
  })
  .meta({ id: 'ApiKey' });
export type ApiKey = z.infer<typeof ApiKey>;

/** The answer to its creation. */
export const NewApiKey = ApiKey.extend({
  key: z.string().describe('The key itself: `svc_live_` and 43 characters. Shown exactly once'),
}).meta({ id: 'NewApiKey' });
export type NewApiKey = z.infer<typeof NewApiKey>;

/** Body of POST /v1/api-keys. */
export const CreateApiKey = z
  .strictObject({
    name: z
      .string()
      .min(1)
      .max(255)
      .regex(/^\P{Cc}*$/u, 'must not contain control characters')
      .describe('Label of the key'),
    scopes: z
      .array(z.string().min(1).max(64))
      .min(1)
      .max(SCOPES_MAX)
      .describe('What the key may do, like `instances: read`; at most what the calling key may do itself'),
    expires_at: z.iso
      .datetime({ offset: true })
      .optional()
      .describe(
        'When the key ends. Left out: when the calling key does, or never. Not after the end of the calling key',
      ),
  })
  .meta({ id: 'CreateApiKey' });
