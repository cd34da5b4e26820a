// The holder's ear for the guest. Whoever connects here is inside the container, so every byte is taken as hostile: limits, schema, deadlines.
import { createServer, type Server, type Socket } from 'node:net';
import { z } from 'zod';
import type { Clock } from '../../shared/clock.ts';
import type { Ids } from '../../shared/ids.ts';
import { createGuestPace, type Rest } from './guest-pace.ts';
import { eachFrame, FRAME, FRAME_BYTES_MAX, FrameError, sendJson, type Frame } from '../wire/frames.ts';
import type { Exit, GuestOrder, SessionRequest } from '../wire/guest-messages.ts';

const ExitWord = z.object({ code: z.int().min(0).max(255).nullable(), signal: z.string().max(32).nullable() });
const Hello = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('control') }),
  z.object({ kind: z.literal('session'), token: z.string().max(64) }),
]);
const News = z.object({ kind: z.literal('main_exit'), exit: ExitWord });
const SessionMessageSchema = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('started'),
    port: z.int().min(0).max(65_535).optional(),
    path: z.string().max(108).optional(),
  }),
  z.object({ kind: z.literal('failed'), detail: z.string().max(1024) }),
  z.object({
    kind: z.literal('accepted'),
    connection: z.int(),
    host: z.string().max(64),
    port: z.int().min(0).max(65_535),
  }),
  z.object({ kind: z.literal('exit'), exit: ExitWord }),
]);

/** What a session's owner is told. */
export interface SessionEvents {
  /** Resolve when the bytes are taken: until then no more are read. */
  onData(type: 'stdout' | 'stderr', bytes: Buffer): Promise<void> | undefined;
  /** No more output (of a dialled connection). */
  onEof(): void;
  /** Somebody has connected to what is listened on. */
  onAccepted?(connection: { connection: number; host: string; port: number }): void;
  /** The last event, also where the guest vanished: then `undefined`. */
  onEnd(exit: Exit | undefined): void;
}

export interface GuestSession {
  /** Frames of type data and eof may be sent on it. */
  socket: Socket;
  /** What is listened on, where that was asked for. */
  port?: number;
  path?: string;
  resize(cols: number, rows: number): void;
  signal(name: string): void;
}

export interface Guests {
  connected(): boolean;
  mainExit(): Exit | null;
  /** Starts something inside the container. Rejects with the reason where it does not start. */
  open(request: SessionRequest, events: SessionEvents): Promise<GuestSession>;
  close(): Promise<void>;
}

interface GuestsDeps {
  clock: Clock;
  ids: Ids;
  /** Called at once, and at most every CHANGE_MS: whoever is inside can come, go and end as often as they like. */
  onChange: () => void;
}

interface Pending {
  events: SessionEvents;
  started: (session: GuestSession) => void;
  failed: (error: Error) => void;
}

const HELLO_MS_MAX = 5_000;
const START_MS_MAX = 10_000;
const STRANGERS_MAX = 64;
/** Every change makes the supervisor look at all containers, and the control plane write down what it saw. */
const CHANGE_MS = 1_000;

/** Listens at `path` (a stale socket there must have been removed). */
export async function openGuests(path: string, deps: GuestsDeps): Promise<Guests> {
  const { clock, ids } = deps;
  const onChange = paced(clock, deps.onChange);
  const pending = new Map<string, Pending>();
  const strangers = new Set<Socket>();
  const sockets = new Set<Socket>();
  const pace = createGuestPace(clock);
  let control: Socket | undefined;
  let mainExit: Exit | null = null;

  const send = (word: GuestOrder): void => {
    if (control?.writable === true) sendJson(control, word);
  };

  /** The first one keeps the place until it goes: nobody in the container can push the guest out of it. */
  const takeControl = (socket: Socket): Hearer => {
    if (control !== undefined) throw new FrameError('there is a guest already');
    control = socket;
    onChange();
    return {
      hear: (frame) => {
        mainExit = parse(News, frame).exit;
        onChange();
      },
      over: () => {
        control = undefined;
        onChange();
      },
    };
  };

  const takeSession = (socket: Socket, token: string): Hearer => {
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
    void serveStranger(socket, strangers, { clock, rest: pace() }, (hello) =>
      hello.kind === 'control' ? takeControl(socket) : takeSession(socket, hello.token),
    );
  });
  await listen(server, path);

  return {
    connected: () => control !== undefined,
    mainExit: () => mainExit,
    open: (request, events) => {
      if (control === undefined) return Promise.reject(new Error('the helper inside the container does not answer'));
      const token = ids.secret(16);
      send({ kind: 'open', token, request });
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
    pending.set(token, { events, started, failed });
  });
}

interface Hearer {
  hear(frame: Frame): Promise<void> | undefined | void;
  /** Once, after the last frame has been taken: a socket closes while what it brought still waits for a slow consumer. */
  over(): void;
}

/** The first frame says who it is, soon; `know` gives what hears the rest. A socket that breaks a rule is destroyed. */
async function serveStranger(
  socket: Socket,
  strangers: Set<Socket>,
  { clock, rest }: { clock: Clock; rest: Rest },
  know: (hello: z.infer<typeof Hello>) => Hearer,
): Promise<void> {
  strangers.add(socket);
  socket.on('error', () => socket.destroy());
  const giveUp = clock.after(HELLO_MS_MAX, () => socket.destroy());
  const known = (): void => {
    giveUp();
    strangers.delete(socket);
  };
  socket.once('close', known);
  let hearer: Hearer | undefined;
  const hear = (frame: Frame): Promise<void> | undefined | void => {
    if (hearer !== undefined) return hearer.hear(frame);
    const hello = parse(Hello, frame);
    known();
    hearer = know(hello);
    return undefined;
  };
  await eachFrame(socket, FRAME_BYTES_MAX, (frame) => {
    const taken = hear(frame);
    const rested = rest(frame);
    return taken === undefined ? rested : taken.then(() => rested);
  }).catch(() => {});
  socket.destroy();
  hearer?.over();
}

function serveSession(session: GuestSession, { events, started, failed }: Pending, cut: () => void): Hearer {
  const { socket } = session;
  let running = false;
  let saidAll = false;
  let exit: Exit | undefined;
  const receive = (frame: Frame): void => {
    const word = parse(SessionMessageSchema, frame);
    if (word.kind === 'exit') exit = word.exit;
    if (word.kind === 'failed') failed(new Error(word.detail));
    if (word.kind === 'accepted' && running && events.onAccepted !== undefined) return events.onAccepted(word);
    if (word.kind === 'started' && !running) {
      running = true;
      const { port, path } = word;
      started({ ...session, ...(port !== undefined && { port }), ...(path !== undefined && { path }) });
    }
    // Nothing follows an end: the close tells the owner.
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
    // Its owner has left before the guest has: inside that may show nowhere else.
    if (!socket.readableEnded) cut();
    if (running) events.onEnd(exit);
    else failed(new Error('the helper inside the container went away'));
  };
  return { hear, over };
}

function parse<T>(schema: z.ZodType<T>, frame: Frame): T {
  if (frame.type !== FRAME.json) throw new FrameError('a word was expected');
  try {
    return schema.parse(JSON.parse(frame.payload.toString()));
  } catch {
    throw new FrameError('a word was not understood');
  }
}

/** The first call at once, those of the next CHANGE_MS together at its end. */
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

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => resolve());
  });
}
