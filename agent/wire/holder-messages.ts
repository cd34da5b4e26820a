// The JSON messages between supervisor and holder over `holder.sock`. Both validate them, because their versions differ after an upgrade. A
// message that only a newer version knows has no effect, and the connection stays.
import { z } from 'zod';
import { LINK_MESSAGE_BYTES_MAX } from '../../shared/limits.ts';
import { ProbeTarget, SshTarget, TcpTarget, TerminalTarget } from '../../shared/protocol/link.ts';

/** Stream targets that a holder serves by itself. */
const HolderTarget = z.discriminatedUnion('kind', [SshTarget, ProbeTarget, TcpTarget, TerminalTarget]);
export type HolderTarget = z.infer<typeof HolderTarget>;

/** Supervisor -> holder. */
export const SupervisorMessage = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('open'),
    stream_id: z.string(),
    /** `wss://host/agent/v1/streams/<token>`. */
    url: z.string(),
    ca: z.string().nullable(),
    target: HolderTarget,
  }),
  /** Asks whether the holder still works. The answer is `pong`. */
  z.object({ kind: z.literal('ping') }),
  /** The workload is over. */
  z.object({ kind: z.literal('exit') }),
]);
export type SupervisorMessage = z.infer<typeof SupervisorMessage>;

/** Holder -> supervisor: `status` at once and after every change. */
export const HolderReport = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('status'),
    host_key: z.string().max(256),
    guest: z.boolean(),
    main_exit: z.object({ code: z.int().nullable(), signal: z.string().max(32).nullable() }).nullable(),
  }),
  z.object({ kind: z.literal('pong') }),
  z.object({ kind: z.literal('opened'), stream_id: z.string() }),
  z.object({ kind: z.literal('refused'), stream_id: z.string(), detail: z.string() }),
]);
export type HolderReport = z.infer<typeof HolderReport>;

/** What every message has, also those of versions to come. One with a `stream_id` waits for `opened` or `refused`. */
const AnyMessage = z.object({ kind: z.string(), stream_id: z.string().optional() });

/** The message, or the part of it that is known if it comes from a newer version. @throws Error if it is malformed */
export function readHolderMessage<T>(
  schema: z.ZodType<T>,
  payload: Buffer,
): { known: T } | { unknown: z.infer<typeof AnyMessage> } {
  const json: unknown = JSON.parse(payload.toString());
  const read = schema.safeParse(json);
  return read.success ? { known: read.data } : { unknown: AnyMessage.parse(json) };
}

/** An `open` message has come over the link, so it is not much larger than a link message. */
export const HOLDER_MESSAGE_BYTES_MAX = 2 * LINK_MESSAGE_BYTES_MAX;
