// The messages between the console's page and the holder over a WebSocket. Binary messages are the terminal's bytes, in both
// directions; text messages are JSON. The page connects to `/session?session=<id or nothing>&place=<bytes shown>&cols=<n>&rows=<n>`.
import { z } from 'zod';

/** Page -> holder. */
export const PageMessage = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('resize'), cols: z.int().min(1).max(1000), rows: z.int().min(1).max(1000) }),
  /** The number of bytes that the page has shown since its last such message. The program waits while too many bytes are not shown yet. */
  z.strictObject({ kind: z.literal('shown'), bytes: z.int().min(0) }),
]);
export type PageMessage = z.infer<typeof PageMessage>;

/** Holder -> page. */
export type TerminalMessage =
  /** The next bytes begin at `place`. Those before `end` are history: the page must not answer terminal queries in them. */
  | { kind: 'begin'; session: string; place: number; end: number }
  /** The program in the terminal has ended. */
  | { kind: 'exit'; code: number | null; signal: string | null }
  /** The terminal could not be started. */
  | { kind: 'failed'; detail: string };

/** The page does not reconnect by itself after these codes. */
export const TERMINAL_CLOSE = { ended: 4000, taken: 4001 } as const;
