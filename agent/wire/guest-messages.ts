// The JSON messages between holder and guest. The holder parses every message of the guest. The guest trusts the holder, so messages to
// the guest are types only and its bundle needs no parser.
import { z } from 'zod';

/** Holder -> guest, on the control connection. */
export type GuestOrder =
  | { kind: 'open'; token: string; request: SessionRequest }
  | { kind: 'resize'; token: string; cols: number; rows: number }
  | { kind: 'signal'; token: string; signal: string }
  /** The client of this session has gone. */
  | { kind: 'cut'; token: string };

/** A session inside the container. The guest opens one connection to the holder for each. */
export type SessionRequest =
  | { kind: 'exec'; command: string | null; env: Record<string, string>; pty: Pty | null }
  | { kind: 'sftp' }
  | { kind: 'dial'; host: string; port: number }
  /** Listens as long as the session's connection is open; port 0 means any free port. */
  | { kind: 'listen'; port: number }
  /** Listens on a unix socket that programs use as their SSH agent. */
  | { kind: 'listen_agent' }
  /** Takes over an accepted connection, by the number from its `accepted` message. */
  | { kind: 'take'; connection: number };

export interface Pty {
  term: string;
  cols: number;
  rows: number;
}

/** How a process ended: a code or a signal such as `SIGTERM`. */
export const Exit = z.object({ code: z.int().min(0).max(255).nullable(), signal: z.string().max(32).nullable() });
export type Exit = z.infer<typeof Exit>;

/** Guest -> holder: the first frame of a connection says what it is for. */
export const GuestHello = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('control') }),
  z.object({ kind: z.literal('session'), token: z.string().max(64) }),
]);
export type GuestHello = z.infer<typeof GuestHello>;

/** Guest -> holder, later on the control connection. */
export const GuestMessage = z.object({ kind: z.literal('main_exit'), exit: Exit });
export type GuestMessage = z.infer<typeof GuestMessage>;

/** Guest -> holder on a session's connection: `started` or `failed` first, `exit` after the last byte of output. */
export const SessionMessage = z.discriminatedUnion('kind', [
  /** `port`, `path`: of the listener, if one was requested. */
  z.object({
    kind: z.literal('started'),
    port: z.int().min(0).max(65_535).optional(),
    path: z.string().max(108).optional(),
  }),
  z.object({ kind: z.literal('failed'), detail: z.string().max(1024) }),
  /** A program has connected to the listener; `host` is empty on a unix socket. */
  z.object({
    kind: z.literal('accepted'),
    connection: z.int(),
    host: z.string().max(64),
    port: z.int().min(0).max(65_535),
  }),
  z.object({ kind: z.literal('exit'), exit: Exit }),
]);
export type SessionMessage = z.infer<typeof SessionMessage>;
