// The guest connection: the holder listens on `run/guest.sock`, and the guest inside the container connects to it.
//
// A program of the tenant can connect too, or replace the guest. So every byte that arrives here is treated as hostile.
//
// There are two kinds of connections, and the first frame (a hello) says which kind it is:
//
//     holder                                                guest
//       |  <──────────────── hello {control} ───────────────  |   one control connection, for the life of the guest
//       |  ── open {token, exec "ls"} ─────────────────────>  |   a one-time token for each session
//       |  <──── hello {session, token} (new connection) ───  |   one connection per session, so that the kernel's flow
//       |  <──── started ───────────────────────────────────  |   control is per session: a stalled one stops no other
//       |  ────── data "..." / eof ────────────────────────>  |
//       |  <───── data (stdout), stderr, then exit {code} ──  |   the holder closes the connection after the exit
//       |  <────── main_exit {code}  (on control) ──────────  |   the container's main process has ended
//
// States of a connection:   stranger ─hello─> control ─close─> gone           (mainExit stays known until the next control)
//                              │ └────hello─> session: waiting ─started─> running ─exit or close─> ended
//                              │                          └─ no start in 10 s after the open() ─> destroyed
//                              └─ no hello in 5 s, or a broken rule ─> destroyed
// States of an open():      pending ─started─> resolved;  ─failed, closed or 10 s─> rejected
//
// Defences, each with a reason:
//   - The first control connection keeps its place until it closes: no program can push the guest out of it.
//   - A session needs a token that this holder has just sent to the guest. A token works once.
//   - At most 64 connections without a hello (STRANGERS_MAX), each for at most 5 s (HELLO_MS_MAX).
//   - A frame has at most 512 KiB. The pace (guest-frames.ts) bounds frames and bytes per second for all connections together.
//   - Orders that the guest does not read have a bound (UNREAD_ORDERS_BYTES_MAX): above it, no session is opened until the guest reads.
//   - A broken rule destroys that one connection. A session that sends data before `started` or after its EOF breaks a rule.
//   - `onChange` is called at most once a second (CHANGE_MS), however often the guest connects, leaves or reports an exit.
//     Example: the guest reconnects 1,000 times in a second; the supervisor receives two reports, not 1,000.
//
// Backpressure: onData may return a promise. Until it resolves, no more frames of that connection are read; its socket fills up,
// and the program inside blocks on its write. No bytes pile up in the holder.
//
// What must never happen: bytes from the container end the holder, reach a session of another client, or count as evidence in
// the decision about an outage.
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { basename } from 'node:path';
import type { z } from 'zod';
import { logAcceptErrors } from '../../shared/accept-errors.ts';
import type { Clock } from '../../shared/clock.ts';
import type { Ids } from '../../shared/ids.ts';
import type { Log } from '../../shared/log.ts';
import { createGuestPace, type Rest, sendOpen, sendOrder } from './guest-frames.ts';
import { eachFrame, FRAME, FRAME_BYTES_MAX, FrameError, type Frame } from '../wire/frames.ts';
import {
  type Exit,
  GuestHello,
  GuestMessage,
  type GuestOrder,
  SessionMessage,
  type SessionRequest,
} from '../wire/guest-messages.ts';

/** The events of a session for its owner. */
export interface SessionEvents {
  /** No more bytes are read until the returned promise resolves. */
  onData(type: 'stdout' | 'stderr', bytes: Buffer): Promise<void> | undefined;
  /** A dialled connection inside has sent its last byte. */
  onEof(): void;
  /** A program has connected to the session's listener. */
  onAccepted?(connection: { connection: number; host: string; port: number }): void;
  /** The last event; `undefined` if the guest disappeared before the exit. */
  onEnd(exit: Exit | undefined): void;
}

export interface GuestSession {
  /** The owner sends data and eof frames on it. */
  socket: Socket;
  /** The port or socket path of a listener, if one was requested. */
  port?: number;
  path?: string;
  resize(cols: number, rows: number): void;
  signal(name: string): void;
}

export interface Guests {
  connected(): boolean;
  mainExit(): Exit | null;
  /** Starts a session inside the container. Rejects with the reason if it does not start. */
  open(request: SessionRequest, events: SessionEvents): Promise<GuestSession>;
  close(): Promise<void>;
}

interface GuestsDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
  /** Called at the first change at once, then at most every CHANGE_MS: a tenant can cause as many changes as it likes. */
  onChange: () => void;
}

interface Pending {
  events: SessionEvents;
  started: (session: GuestSession) => void;
  failed: (error: Error) => void;
  /** The connection that the guest has opened for it; undefined until then. */
  socket?: Socket;
}

const HELLO_MS_MAX = 5_000;
const START_MS_MAX = 10_000;
const STRANGERS_MAX = 64;
/** Each change costs the supervisor a tick over all containers, and the control plane a write to the database. */
const CHANGE_MS = 1_000;

/** Lets `server` listen at `path`, where no old socket may be left. @throws Error if it cannot */
export async function listenAt(path: string, server: Server, deps: { clock: Clock; log: Log }): Promise<void> {
  server.listen(path);
  await once(server, 'listening');
  logAcceptErrors(server, { socket: basename(path) }, deps);
}

/** Listens at `path`, where no old socket may be left. */
export async function openGuests(path: string, deps: GuestsDeps): Promise<Guests> {
  const { clock, ids, log } = deps;
  const onChange = paced(clock, deps.onChange);
  const pending = new Map<string, Pending>();
  const strangers = new Set<Socket>();
  const sockets = new Set<Socket>();
  const pace = createGuestPace(clock);
  let control: Socket | undefined;
  let mainExit: Exit | null = null;

  const send = (order: Exclude<GuestOrder, { kind: 'open' }>): void => {
    if (control?.writable === true) sendOrder(control, order);
  };

  /** Accepts the control connection; a second one is refused. */
  const takeControl = (socket: Socket): Receiver => {
    if (control !== undefined) throw new FrameError('there is a guest already');
    control = socket;
    // After a restart of the container, its main process runs again. A guest whose main process has ended says so at each connection.
    mainExit = null;
    onChange();
    return {
      hear: (frame) => {
        mainExit = parse(GuestMessage, frame).exit;
        onChange();
      },
      over: () => {
        control = undefined;
        onChange();
      },
    };
  };

  const takeSession = (socket: Socket, token: string): Receiver => {
    const waiting = pending.get(token);
    if (waiting === undefined) throw new FrameError('nobody asked for this session');
    pending.delete(token);
    const session: GuestSession = {
      socket,
      resize: (cols, rows) => send({ kind: 'resize', token, cols, rows }),
      signal: (signal) => send({ kind: 'signal', token, signal }),
    };
    return serveSession(session, waiting, () => send({ kind: 'cut', token }));
  };

  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    if (strangers.size >= STRANGERS_MAX) return void socket.destroy();
    void serveStranger(socket, strangers, { clock, log, rest: pace() }, (hello) =>
      hello.kind === 'control' ? takeControl(socket) : takeSession(socket, hello.token),
    );
  });
  await listenAt(path, server, deps);

  return {
    connected: () => control !== undefined,
    mainExit: () => mainExit,
    open: async (request, events) => {
      if (control?.writable !== true) throw new Error('the helper inside the container does not answer');
      const token = ids.secret(16);
      sendOpen(control, { kind: 'open', token, request });
      return waitForSession(pending, { token, events, clock });
    },
    close: () => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

function waitForSession(
  pending: Map<string, Pending>,
  { token, events, clock }: { token: string; events: SessionEvents; clock: Clock },
): Promise<GuestSession> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(START_MS_MAX, () => {
      pending.delete(token);
      // Nobody would own a session that the guest starts later, so nobody would close it.
      waiting.socket?.destroy();
      reject(new Error('the helper inside the container did not start it in time'));
    });
    const started = (session: GuestSession): void => {
      cancel();
      resolve(session);
    };
    const failed = (error: Error): void => {
      cancel();
      reject(error);
    };
    const waiting: Pending = { events, started, failed };
    pending.set(token, waiting);
  });
}

interface Receiver {
  hear(frame: Frame): Promise<void> | undefined | void;
  /** Called once, after the last frame was handled. The socket may close earlier, while frames wait for a slow consumer. */
  over(): void;
}

/** Reads the hello and then passes all further frames to the receiver that `know` returns. Destroys a socket that breaks a rule. */
async function serveStranger(
  socket: Socket,
  strangers: Set<Socket>,
  { clock, log, rest }: { clock: Clock; log: Log; rest: Rest },
  know: (hello: GuestHello) => Receiver,
): Promise<void> {
  strangers.add(socket);
  socket.on('error', () => socket.destroy());
  const giveUp = clock.after(HELLO_MS_MAX, () => socket.destroy());
  const known = (): void => {
    giveUp();
    strangers.delete(socket);
  };
  socket.once('close', known);
  let receiver: Receiver | undefined;
  const hear = (frame: Frame): Promise<void> | undefined | void => {
    if (receiver !== undefined) return receiver.hear(frame);
    const hello = parse(GuestHello, frame);
    known();
    receiver = know(hello);
    return undefined;
  };
  await eachFrame(socket, FRAME_BYTES_MAX, (frame) => {
    const taken = hear(frame);
    const rested = rest(frame);
    return taken === undefined ? rested : taken.then(() => rested);
  }).catch(() => {});
  socket.destroy();
  try {
    receiver?.over();
  } catch (error) {
    // The cause can be words of the guest. A container must not end the holder, which serves all its other sessions.
    log.error({ err: error }, 'a connection from the container has ended, and its client could not be told');
  }
}

function serveSession(session: GuestSession, waiting: Pending, cut: () => void): Receiver {
  const { socket } = session;
  const { events, started, failed } = waiting;
  waiting.socket = socket;
  let running = false;
  let saidAll = false;
  let exit: Exit | undefined;
  const receive = (frame: Frame): void => {
    const message = parse(SessionMessage, frame);
    if (message.kind === 'exit') exit = message.exit;
    if (message.kind === 'failed') failed(new Error(message.detail));
    if (message.kind === 'accepted' && running && events.onAccepted !== undefined) return events.onAccepted(message);
    if (message.kind === 'started' && !running) {
      running = true;
      const { port, path } = message;
      started({ ...session, ...(port !== undefined && { port }), ...(path !== undefined && { path }) });
    }
    // Nothing may follow an exit or a failure. The owner is informed by `over`, after the close.
    else socket.destroy();
  };
  const hearData = (type: 'stdout' | 'stderr', bytes: Buffer): Promise<void> | undefined => {
    if (!running || saidAll || bytes.length === 0) throw new FrameError('no honest guest sends this');
    return events.onData(type, bytes);
  };
  const hear = (frame: Frame): Promise<void> | undefined => {
    switch (frame.type) {
      case FRAME.json:
        receive(frame);
        return undefined;
      case FRAME.data:
        return hearData('stdout', frame.payload);
      case FRAME.stderr:
        return hearData('stderr', frame.payload);
      case FRAME.eof:
        if (!running || saidAll) throw new FrameError('no honest guest sends this');
        saidAll = true;
        events.onEof();
        return undefined;
    }
  };
  const over = (): void => {
    // The owner has left before the guest. `cut` informs the guest, because a program that blocks on its output does not notice the close.
    if (!socket.readableEnded) cut();
    if (running) events.onEnd(exit);
    else failed(new Error('the helper inside the container went away'));
  };
  return { hear, over };
}

function parse<T>(schema: z.ZodType<T>, frame: Frame): T {
  if (frame.type !== FRAME.json) throw new FrameError('a JSON message was expected');
  try {
    return schema.parse(JSON.parse(frame.payload.toString()));
  } catch {
    throw new FrameError('a message does not fit its schema');
  }
}

/** Returns a function that calls `tell` at most once in CHANGE_MS: at once if it can, else at the end of that time. */
function paced(clock: Clock, tell: () => void): () => void {
  let resting = false;
  let again = false;
  const call = (): void => {
    if (resting) return void (again = true);
    [resting, again] = [true, false];
    clock.after(CHANGE_MS, () => {
      resting = false;
      if (again) call();
    });
    tell();
  };
  return call;
}
