// The shells of one workload's console: their number, which shell a page returns to, and how long a shell waits for its page. A shell lives in the
// holder and not in the page: a page that returns continues at the byte at which it left, because a ring keeps the last bytes of the terminal.
import type { Clock } from '../../shared/clock.ts';
import type { Ids } from '../../shared/ids.ts';
import type { Guests } from './guest-connection.ts';
import { frameSink } from './guest-frames.ts';
import type { Exit } from '../wire/guest-messages.ts';

export interface Terminals {
  /** The terminal with this id, or a new one if there is none. Rejects if none can be started. */
  find(id: string, size: Size): Promise<{ id: string; session: TerminalSession }>;
  /** Must be called whenever a page has gone. A terminal to which no page returns ends after a while. */
  left(id: string): void;
}

const TERMINALS_MAX = 8;
const DETACHED_MS_MAX = 30 * 60_000;

interface Kept {
  session: TerminalSession;
  /** Monotonic time since which no page shows the terminal. */
  aloneSinceMs: number;
  /** Stops the timer that ends a terminal without a page. */
  cancelEnd(): void;
}

export function openTerminals(deps: { clock: Clock; ids: Ids; guests: Guests }): Terminals {
  const { clock, ids, guests } = deps;
  const kept = new Map<string, Kept>();
  let starting = 0;

  /** Ends the terminal that has been without a page for longest, if there are too many. */
  const makeRoom = (): void => {
    if (kept.size + starting < TERMINALS_MAX) return;
    const alone = [...kept].filter(([, { session }]) => session.isDetached());
    const [longest] = alone.toSorted(([, a], [, b]) => a.aloneSinceMs - b.aloneSinceMs);
    if (longest === undefined) throw new Error(`${TERMINALS_MAX} terminals are open already; close one of them`);
    const [id, { session, cancelEnd }] = longest;
    kept.delete(id);
    cancelEnd();
    session.end();
  };

  const start = async (size: Size): Promise<{ id: string; session: TerminalSession }> => {
    makeRoom();
    const id = ids.secret(16);
    starting += 1;
    try {
      const session = await startTerminal(guests, size, () => {
        kept.get(id)?.cancelEnd();
        kept.delete(id);
      });
      kept.set(id, { session, aloneSinceMs: 0, cancelEnd: () => undefined });
      return { id, session };
    } finally {
      starting -= 1;
    }
  };

  return {
    find: async (id, size) => {
      const found = kept.get(id);
      if (found === undefined) return start(size);
      found.cancelEnd();
      return { id, session: found.session };
    },
    left: (id) => {
      const one = kept.get(id);
      if (one === undefined || !one.session.isDetached()) return;
      one.aloneSinceMs = clock.monotonicMs();
      one.cancelEnd = clock.after(DETACHED_MS_MAX, () => one.session.end());
    },
  };
}

export interface Size {
  cols: number;
  rows: number;
}

/** A page that shows a terminal. */
export interface Viewer {
  begin(at: { place: number; end: number }): void;
  show(bytes: Buffer): void;
  /** Another page shows this terminal now. */
  taken(): void;
  /** The terminal has ended; `exit` is undefined if the connection into the container was lost. */
  ended(exit: Exit | undefined): void;
}

export interface TerminalSession {
  /** Shows the terminal on this page, from the byte after the first `place` bytes. A page that showed it before receives `taken`. */
  attach(viewer: Viewer, place: number, size: Size): void;
  /** Must be called when the page has gone. The program goes on. */
  detach(viewer: Viewer): void;
  isDetached(): boolean;
  /** The page has shown this many more bytes. */
  shown(viewer: Viewer, bytes: number): void;
  resize(size: Size): void;
  /** Resolves when the program's terminal has room for more. */
  type(bytes: Buffer): Promise<void>;
  /** Hangs up on the program. */
  end(): void;
}

/** Several times what xterm.js keeps as its scrollback. */
const RING_BYTES = 1024 * 1024;
/**
 * Bytes that a page was sent and has not shown yet. Above this, the program waits as for any slow terminal, until few are left: xterm.js drops bytes
 * that come much faster than it shows them.
 */
const UNSHOWN_BYTES_MAX = 100_000;
const UNSHOWN_BYTES_LOW = 5_000;
const ENV = { COLORTERM: 'truecolor' };

/** Keeps the last bytes of a stream. Each byte is addressed by its offset in the whole stream (its place). */
export interface Ring {
  /** Place of the oldest byte that is still kept. */
  start(): number;
  /** Place of the next byte to come. */
  end(): number;
  append(bytes: Uint8Array): void;
  /** All bytes from `place` on, which must not be before the start. */
  from(place: number): Buffer;
}

export function createRing(bytesMax: number): Ring {
  const bytes = Buffer.alloc(bytesMax);
  let end = 0;
  const start = (): number => Math.max(0, end - bytesMax);
  return {
    start,
    end: () => end,
    append: (chunk) => {
      const kept = chunk.subarray(-bytesMax);
      const at = (end + chunk.length - kept.length) % bytesMax;
      const first = kept.subarray(0, bytesMax - at);
      bytes.set(first, at);
      bytes.set(kept.subarray(first.length), 0);
      end += chunk.length;
    },
    from: (place) => {
      const at = place % bytesMax;
      const length = end - place;
      return Buffer.concat([bytes.subarray(at, at + length), bytes.subarray(0, Math.max(0, at + length - bytesMax))]);
    },
  };
}

/** Starts a login shell. Rejects with the reason if the image has none. `onEnd` is called once when the shell has ended. */
async function startTerminal(guests: Guests, size: Size, onEnd: () => void): Promise<TerminalSession> {
  const ring = createRing(RING_BYTES);
  let viewer: Viewer | undefined;
  let unshown = 0;
  /** Set while the program waits. */
  let room: PromiseWithResolvers<void> | undefined;
  const resumeIfRoom = (): void => {
    if (viewer !== undefined && unshown > UNSHOWN_BYTES_LOW) return;
    room?.resolve();
    room = undefined;
  };
  const show = (bytes: Buffer): void => {
    if (bytes.length === 0) return;
    unshown += bytes.length;
    viewer?.show(bytes);
  };

  const inside = await guests.open(
    { kind: 'exec', command: null, env: ENV, pty: { term: 'xterm-256color', ...size } },
    {
      onData: (_type, bytes) => {
        ring.append(bytes);
        if (viewer === undefined) return undefined;
        show(bytes);
        if (unshown <= UNSHOWN_BYTES_MAX) return undefined;
        room ??= Promise.withResolvers();
        return room.promise;
      },
      onEof: () => undefined,
      onEnd: (exit) => {
        onEnd();
        viewer?.ended(exit);
      },
    },
  );
  const input = frameSink(inside.socket);

  return {
    attach: (next, place, { cols, rows }) => {
      viewer?.taken();
      viewer = next;
      const isPast = place < ring.start() || place > ring.end();
      const begin = isPast ? ring.start() : place;
      next.begin({ place: begin, end: ring.end() });
      unshown = 0;
      show(ring.from(begin));
      resumeIfRoom();
      // Full-screen programs draw their screen again only if the size changes. So another size is set first, and then the page's size.
      if (place !== ring.end()) inside.resize(cols, Math.max(1, rows - 1));
      inside.resize(cols, rows);
    },
    detach: (gone) => {
      if (viewer !== gone) return;
      viewer = undefined;
      resumeIfRoom();
    },
    isDetached: () => viewer === undefined,
    shown: (by, bytes) => {
      if (viewer !== by) return;
      unshown = Math.max(0, unshown - bytes);
      resumeIfRoom();
    },
    resize: ({ cols, rows }) => inside.resize(cols, rows),
    type: (bytes) => new Promise((resolve) => input.write(bytes, () => resolve())),
    end: () => inside.socket.destroy(),
  };
}
