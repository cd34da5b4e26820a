// What holder and guest say to each other in JSON frames. The guest trusts the holder; the holder checks every word (guests.ts).

/** Holder -> guest, on the control connection. */
export type GuestOrder =
  | { kind: 'open'; token: string; request: SessionRequest }
  | { kind: 'resize'; token: string; cols: number; rows: number }
  | { kind: 'signal'; token: string; signal: string }
  /** Whoever the session was for has gone. */
  | { kind: 'cut'; token: string };

/** Something to do inside the container, on a connection of its own that the guest dials for it. */
export type SessionRequest =
  | { kind: 'exec'; command: string | null; env: Record<string, string>; pty: Pty | null }
  | { kind: 'sftp' }
  | { kind: 'dial'; host: string; port: number }
  /** For as long as the connection is open; 0 is any port that is free. */
  | { kind: 'listen'; port: number }
  /** The same on a socket that programs take for an SSH agent's. */
  | { kind: 'listen_agent' }
  /** A connection to a port that is listened on, by the number of its `accepted`. */
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
  /** `port`, `path`: what is listened on. */
  | { kind: 'started'; port?: number; path?: string }
  | { kind: 'failed'; detail: string }
  /** Somebody has connected to what is listened on; `host` is empty on a socket. */
  | { kind: 'accepted'; connection: number; host: string; port: number }
  | { kind: 'exit'; exit: Exit };
