// A line that a container has written, as hosts send it and as customers read it.
import { z } from 'zod';

/** A line on a stream of logs: one JSON object and a line feed, in the order in which the container has written them. */
export const LogLine = z.strictObject({
  /** RFC 3339 with nanoseconds, by the host's clock, as the engine has recorded it. */
  at: z.string().max(40).describe('When it was written, by the clock of the host'),
  stream: z.enum(['stdout', 'stderr']).describe('Where it was written to'),
  line: z.string().max(20_000).describe('Without its line feed; very long lines come in parts'),
});
export type LogLine = z.infer<typeof LogLine>;

/** Maximum size of a line as JSON: 20,000 characters, all of them escaped. */
export const LOG_LINE_BYTES_MAX = 160 * 1024;
