// The socket under the control link, for both ends: a WebSocket, or the simulated network of the tests.

/** Sockets of the package `ws` have this form. */
export interface LinkSocket {
  readonly readyState: number;
  readonly OPEN: number;
  /** Bytes that were sent but that the peer has not read yet. */
  readonly bufferedAmount: number;
  on(event: 'message', heard: (data: Buffer, isBinary: boolean) => void): unknown;
  on(event: 'close', heard: (code: number, reason: Buffer) => void): unknown;
  on(event: 'error', heard: (error: Error) => void): unknown;
  on(event: 'ping' | 'pong', heard: () => void): unknown;
  send(text: string): void;
  ping(): void;
  /** Starts the closing handshake; the event `close` follows. */
  close(code: number, reason: string): void;
  /** Cuts the connection without a handshake. */
  terminate(): void;
  /** Stops reading until `resume`. Messages that have arrived already may still be emitted. */
  pause(): void;
  resume(): void;
}
