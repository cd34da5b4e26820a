// What both ends of the control link need of what carries it: a WebSocket, or the network that a simulation plays.

/** As of the package `ws`, whose sockets fit. */
export interface LinkSocket {
  readonly readyState: number;
  readonly OPEN: number;
  /** Bytes that were sent and that the peer has not taken yet. */
  readonly bufferedAmount: number;
  on(event: 'message', heard: (data: Buffer, isBinary: boolean) => void): unknown;
  on(event: 'close', heard: (code: number, reason: Buffer) => void): unknown;
  on(event: 'error', heard: (error: Error) => void): unknown;
  on(event: 'ping' | 'pong', heard: () => void): unknown;
  send(text: string): void;
  ping(): void;
  /** Says goodbye; `close` follows. */
  close(code: number, reason: string): void;
  /** Without a goodbye. */
  terminate(): void;
  /** Nothing is handed out until `resume`; what has come already may be. */
  pause(): void;
  resume(): void;
}
