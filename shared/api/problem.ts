// The problem document: how every refusal and failure looks to a caller (RFC 9457 and our own members).
import { z } from 'zod';

/** Further members may follow, e.g. `current_price_per_hour`. */
export const Problem = z
  .looseObject({
    type: z.string().describe('`urn:svc:error:` and the code'),
    title: z.string().describe('The code in a few words; the same for every occurrence'),
    status: z.int().describe('The HTTP status of this response'),
    detail: z.string().describe('What went wrong here and what to do about it'),
    instance: z.string().describe('The path of the request'),
    code: z.string().describe('Stable identifier of the kind of problem; branch on this one'),
    request_id: z.string().describe('Also in the X-Request-Id header; quote it when asking for help'),
    errors: z
      .array(
        z.strictObject({
          field: z.string().describe('Path in the body like `ports[2].port`, or the name of a parameter or header'),
          rule: z.string().describe('The rule that was broken'),
        }),
      )
      .describe('One entry for each broken rule, empty if no field is at fault'),
  })
  .meta({ id: 'Problem' });
export type Problem = z.infer<typeof Problem>;
