// Log lines on a data stream: each is one JSON object and a line feed, in the order in which the container wrote them.
import { z } from 'zod';

export const LogLine = z.strictObject({
  /** RFC 3339 with nanoseconds, by the host's clock: what the engine has written beside the line. */
  at: z.string().max(40).describe('When it was written, by the clock of the host'),
  stream: z.enum(['stdout', 'stderr']).describe('Where it was written to'),
  line: z.string().max(20_000).describe('Without its line feed; very long lines come in parts'),
});
export type LogLine = z.infer<typeof LogLine>;

/** A line of JSON at its longest: 20,000 characters, all of them escaped. */
export const LOG_LINE_BYTES_MAX = 160 * 1024;
