// The JSON messages between holder and guest. The guest trusts the holder; the holder validates every message (guest-connection.ts).

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
export interface Exit {
  code: number | null;
  signal: string | null;
}

/** Guest -> holder: the first frame of a connection says what it is for. */
export type GuestHello = { kind: 'control' } | { kind: 'session'; token: string };

/** Guest -> holder, later on the control connection. */
export type GuestMessage = { kind: 'main_exit'; exit: Exit };

/** Guest -> holder on a session's connection: `started` or `failed` first, `exit` after the last byte of output. */
export type SessionMessage =
  /** `port`, `path`: of the listener, if one was requested. */
  | { kind: 'started'; port?: number; path?: string }
  | { kind: 'failed'; detail: string }
  /** A program has connected to the listener; `host` is empty on a unix socket. */
  | { kind: 'accepted'; connection: number; host: string; port: number }
  | { kind: 'exit'; exit: Exit };
