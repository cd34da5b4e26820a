// What a page of the console and the holder say to each other over a WebSocket. Binary messages are the terminal's bytes, both ways;
// texts are these words as JSON. The page asks for `/session?session=<id or nothing>&place=<bytes it has shown>&cols=<n>&rows=<n>`.
import { z } from 'zod';

/** Page -> holder. */
export const PageMessage = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('resize'), cols: z.int().min(1).max(1000), rows: z.int().min(1).max(1000) }),
  /** So many more bytes have been shown: the holder lets no more than SHOWN_LATE_BYTES_MAX be on their way. */
  z.strictObject({ kind: z.literal('shown'), bytes: z.int().min(0) }),
]);
export type PageMessage = z.infer<typeof PageMessage>;

/** Holder -> page. */
export type TerminalMessage =
  /** The bytes that follow begin at `place`; those up to `end` are of the past, and questions in them are not to be answered. */
  | { kind: 'begin'; session: string; place: number; end: number }
  /** The program in the terminal is over. */
  | { kind: 'exit'; code: number | null; signal: string | null }
  /** There is no terminal. */
  | { kind: 'failed'; detail: string };
