// The page's end of a terminal: a WebSocket that is reopened after a break and continues at the byte at which it broke.
import { TERMINAL_CLOSE, type TerminalMessage, type PageMessage } from '../terminal-messages.ts';

/** The events of a connection for its page. */
export interface Listener {
  size(): { cols: number; rows: number };
  /** The next bytes begin at `place`; bytes before `end` are history. `continues`: they follow directly after the last bytes that were shown. */
  begin(at: { place: number; end: number; continues: boolean }): void;
  /** `end`: the place after these bytes. `isCurrent`: whether they arrived on the connection that is open. */
  show(bytes: Uint8Array, at: { end: number; isCurrent(): boolean }): void;
  /** The connection is lost and will be opened again. */
  lost(): void;
  /** The connection is over until `connect` is called. */
  over(why: string): void;
}

export interface Connection {
  connect(): void;
  /** The place after the last byte received. */
  received(): number;
  /** Text that is typed without a connection is lost. */
  type(bytes: Uint8Array): void;
  tell(word: PageMessage): void;
}

/** sessionStorage key of the terminal's id. It survives reloads and belongs to one tab, so every tab has its own terminal. */
const KEY = 'terminal';
/** Pasted text is sent in pieces, so that no message is large. */
const TYPED_BYTES_STEP = 16_384;
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 15_000;

export function openConnection(listener: Listener): Connection {
  let socket: WebSocket | undefined;
  let received = 0;
  let retryMs = RETRY_MS_MIN;

  const hear = (said: TerminalMessage): void => {
    switch (said.kind) {
      case 'begin': {
        const continues = said.place === received && said.session === sessionStorage.getItem(KEY);
        sessionStorage.setItem(KEY, said.session);
        received = said.place;
        retryMs = RETRY_MS_MIN;
        return listener.begin({ ...said, continues });
      }
      case 'exit':
        sessionStorage.removeItem(KEY);
        return finish(`the shell has ended${howItEnded(said)}`);
      case 'failed':
        return finish(`there is no terminal: ${said.detail}`);
    }
  };
  const finish = (why: string): void => {
    socket?.close();
    socket = undefined;
    listener.over(why);
  };
  const connect = (): void => {
    const { cols, rows } = listener.size();
    // All received bytes will be shown, so the terminal continues after them.
    const query = { session: sessionStorage.getItem(KEY) ?? '', place: received, cols, rows };
    const opening = new WebSocket(sessionUrl(query));
    const isCurrent = (): boolean => socket === opening;
    opening.binaryType = 'arraybuffer';
    opening.addEventListener('message', ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (!isCurrent()) return;
      if (typeof data === 'string') return hear(JSON.parse(data) as TerminalMessage);
      received += data.byteLength;
      listener.show(new Uint8Array(data), { end: received, isCurrent });
    });
    opening.addEventListener('close', ({ code }) => {
      if (!isCurrent()) return;
      if (code === TERMINAL_CLOSE.taken) return finish('another page shows this terminal now');
      socket = undefined;
      listener.lost();
      setTimeout(connect, retryMs * (0.5 + Math.random() / 2));
      retryMs = Math.min(2 * retryMs, RETRY_MS_MAX);
    });
    socket = opening;
  };
  const send = (data: string | Uint8Array<ArrayBuffer>): void => {
    if (socket?.readyState === WebSocket.OPEN) socket.send(data);
  };

  return {
    connect,
    received: () => received,
    type: (bytes) => {
      for (let at = 0; at < bytes.length; at += TYPED_BYTES_STEP) send(bytes.slice(at, at + TYPED_BYTES_STEP));
    },
    tell: (word) => send(JSON.stringify(word)),
  };
}

function sessionUrl(query: Record<string, string | number>): string {
  const text = Object.entries(query).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/session?${text.join('&')}`;
}

function howItEnded({ code, signal }: { code: number | null; signal: string | null }): string {
  if (signal !== null) return ` (${signal})`;
  return code === null || code === 0 ? '' : ` (exit code ${code})`;
}
