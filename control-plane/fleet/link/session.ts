// One link from its first byte to its last: challenge, proof, then messages until either side closes it.
import { createPublicKey, verify, hash } from 'node:crypto';
import { spreadMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import {
  LINK_BEHIND_BYTES,
  LINK_HELLO_BYTES_MAX,
  LINK_HELLO_MS_MAX,
  LINK_HELLOS_BURST,
  LINK_HELLOS_PER_SECOND,
  LINK_MESSAGE_VALUES_MAX,
  LINK_PING_MS,
  LINK_PONG_MS_MAX,
  LINK_SILENCE_MS_MAX,
  LINK_UNSENT_BYTES_MAX,
  LINK_READ_BYTES_BURST,
  LINK_READ_BYTES_PER_SECOND,
  LINK_READ_MESSAGES_BURST,
  LINK_READ_MESSAGES_PER_SECOND,
  LINK_UNPROVEN_BYTES_BURST,
  LINK_UNPROVEN_BYTES_PER_SECOND,
} from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import {
  AgentMessage,
  decodeMessage,
  faultIn,
  type HelloMessage,
  LINK_CLOSE,
  linkProof,
  ServerMessage,
  type LinkSocket,
  negotiateVersion,
  PROTOCOL_MAX,
  PROTOCOL_MIN,
} from '../../../shared/protocol/link.ts';
import type { Rng } from '../../../shared/rng.ts';
import { networkOf } from '../../../shared/client-network.ts';
import { openBuckets } from '../../base/http/rate-limits.ts';

/** The sender of a hello: its address, and the key that it has proven to have. */
export interface Caller {
  clientIp: string;
  publicKey: string;
}

export interface Session {
  readonly machineId: string;
  /** The enrolled key that it has proven. */
  readonly publicKey: string;
  /** The version of the protocol that both ends speak. */
  readonly protocol: number;
  /** Whether the last ping was answered, and the times of the last answer and of the connection. */
  life(): Life;
  /** True while the host has not read much of what it was sent. */
  isBehind(): boolean;
  send(message: ServerMessage): void;
  close(code: number, reason: string): void;
}

export interface Life {
  isAnswering: boolean;
  /** The time of the host's last answer. */
  lastMs: number;
  upSinceMs: number;
}

export interface SessionDeps {
  clock: Clock;
  ids: Ids;
  rng: Rng;
  log: Log;
  budget: ReadBudget;
  /** The enrolled key (base64url of 32 bytes), undefined for an unknown machine. */
  machineKey(machineId: string): Promise<string | undefined>;
  /** The proof is valid: the link belongs to this machine. Resolves before the first message is handled. */
  onOpen(session: Session, hello: HelloMessage): Promise<void>;
  /** Called for one message at a time, in order. */
  onMessage(session: Session, message: AgentMessage): Promise<void>;
  /** The host missed a ping, or answers again after a missed one. */
  onLife(session: Session): void;
  onClose(session: Session): void;
}

/** Runs a new socket as a link. Every failure closes it with a reason. */
export function runSession(socket: LinkSocket, clientIp: string, deps: SessionDeps): void {
  const { clock, log } = deps;
  const nonce = deps.ids.secret(32);
  let session: Session | undefined;
  const who = (): object => ({ client_ip: clientIp, machine_id: session?.machineId });

  const send = (message: ServerMessage): void => sendOver(socket, message, { who, log });
  const refuse = (code: number, reason: string): void => {
    if (socket.readyState !== socket.OPEN) return;
    log.warn({ ...who(), reason }, 'an agent link was refused');
    socket.close(code, reason);
  };

  const onHello = async (hello: HelloMessage, bytes: number): Promise<void> => {
    const version = negotiateVersion(hello.protocol);
    if (version === undefined)
      return refuse(LINK_CLOSE.version, `this control plane speaks protocol ${PROTOCOL_MIN} to ${PROTOCOL_MAX}`);
    const key = await deps.machineKey(hello.machine_id);
    // The link may have closed meanwhile, and nothing would ever close it again.
    if (socket.readyState !== socket.OPEN) return;
    if (key === undefined || !isProof(key, hello, nonce))
      return refuse(LINK_CLOSE.unauthorized, 'unknown machine or wrong key');
    if (!deps.budget.takeHello(hello.machine_id)) return refuse(LINK_CLOSE.busy, 'this machine links too often');
    cancelHello();
    deps.budget.giveBack(clientIp, bytes);
    const close = socket.close.bind(socket);
    const isBehind = (): boolean => socket.bufferedAmount > LINK_BEHIND_BYTES;
    session = { machineId: hello.machine_id, publicKey: key, protocol: version, life, isBehind, send, close };
    send({ type: 'welcome', protocol: version, now_ms: clock.now() });
    await deps.onOpen(session, hello);
  };

  const onFrame = async (frame: string): Promise<void> => {
    if (socket.readyState !== socket.OPEN) return;
    const bytes = Buffer.byteLength(frame);
    const refusal = session === undefined ? whyUnread(clientIp, bytes, deps) : undefined;
    if (refusal !== undefined) return refuse(refusal.code, refusal.reason);
    const waitMs = session === undefined ? 0 : deps.budget.waitMs(session.machineId, bytes);
    if (waitMs > 0) await clock.sleep(waitMs);
    const decoded = decodeMessage(AgentMessage, frame, LINK_MESSAGE_VALUES_MAX);
    if (!decoded.ok) return refuse(LINK_CLOSE.malformed, `malformed message: ${decoded.reason}`);
    const { message } = decoded;
    if (session === undefined && message.type === 'hello') return onHello(message, bytes);
    if (session === undefined || message.type === 'hello')
      return refuse(LINK_CLOSE.malformed, `${message.type} out of order`);
    return deps.onMessage(session, message);
  };

  const cancelHello = clock.after(LINK_HELLO_MS_MAX, () => refuse(LINK_CLOSE.silent, 'no hello in time'));
  const silentMs = readOneByOne(socket, clock, (frame) =>
    onFrame(frame).catch((error: unknown) => {
      const fields = { machine_id: session?.machineId, err: error };
      log.error(fields, 'handling a link message failed; the agent will send it again');
      socket.close(1011, 'internal error');
    }),
  );
  const { life, stop } = keepPinging(socket, silentMs, deps, () => session !== undefined && deps.onLife(session));
  socket.on('error', (error) => log.info({ ...who(), err: error }, 'a link broke'));
  socket.on('close', () => {
    cancelHello();
    stop();
    if (session !== undefined) deps.onClose(session);
  });
  send({ type: 'challenge', nonce, protocol: { min: PROTOCOL_MIN, max: PROTOCOL_MAX } });
}

function sendOver(socket: LinkSocket, message: ServerMessage, { who, log }: { who(): object; log: Log }): void {
  const fault = faultIn(ServerMessage, message);
  if (fault !== undefined) {
    // A host closes its link at a message that it cannot decode. So a fault of ours would cut all its tenants off.
    const fields = { ...who(), message: message.type, reason: fault };
    return log.error(
      fields,
      'a message was not sent, because the host could not read it and would end its link: this is a bug, so report it',
    );
  }
  if (socket.bufferedAmount <= LINK_UNSENT_BYTES_MAX) return socket.send(JSON.stringify(message));
  // The link is closed, because the unread messages would fill our memory. Pings do not show this: a host that sends is not silent, even if it
  // never reads.
  log.warn(who(), 'a host does not read from its link; the link is closed');
  socket.terminate();
}

/** Limits what is read: the bytes of first messages per address before the proof, and bytes and number of messages per machine after it. */
export interface ReadBudget {
  /** Takes the bytes of a first message; false if the address has sent too many bytes without a valid proof. */
  takeUnproven(clientIp: string, bytes: number): boolean;
  /** Refunds the bytes of a first message with a valid proof. */
  giveBack(clientIp: string, bytes: number): void;
  /** Counts a hello with a valid proof, which costs a transaction; false if the machine has linked too often. */
  takeHello(machineId: string): boolean;
  /**
   * Takes a message of this size from a machine. The message is read after this delay. Until then the machine waits, and nothing is lost.
   */
  waitMs(machineId: string, bytes: number): number;
}

/** All addresses of an IPv6 /64 count as one. */
export function openReadBudget(clock: Clock): ReadBudget {
  const unproven = openBuckets({ perSecond: LINK_UNPROVEN_BYTES_PER_SECOND, burst: LINK_UNPROVEN_BYTES_BURST }, clock);
  const bytesOf = openBuckets({ perSecond: LINK_READ_BYTES_PER_SECOND, burst: LINK_READ_BYTES_BURST }, clock);
  // The smallest messages cost as much to handle as longer ones, so a host may not send as many of them as fit into its bytes.
  const messagesOf = openBuckets({ perSecond: LINK_READ_MESSAGES_PER_SECOND, burst: LINK_READ_MESSAGES_BURST }, clock);
  const hellosOf = openBuckets({ perSecond: LINK_HELLOS_PER_SECOND, burst: LINK_HELLOS_BURST }, clock);
  return {
    takeHello: (machineId) => hellosOf.take(machineId).waitMs === 0,
    takeUnproven: (clientIp, bytes) => unproven.take(networkOf(clientIp), bytes).waitMs === 0,
    giveBack: (clientIp, bytes) => unproven.giveBack(networkOf(clientIp), bytes),
    waitMs: (machineId, bytes) => Math.max(bytesOf.owe(machineId, bytes), messagesOf.owe(machineId, 1)),
  };
}

/**
 * Drops the reports of a host that repeat the last one of its link. A host sends its reports every half minute, although mostly nothing has
 * changed, and handling one costs several statements.
 */
export interface Reports {
  /** Calls `handle` unless the report equals the last one of its type that `handle` has accepted on this link. */
  take(session: Session, report: AgentMessage, handle: () => Promise<boolean>): Promise<void>;
}

/** Keeps a hash of each report, because the reports of all links would fill the memory. */
export function openReports(): Reports {
  const lastOf = new WeakMap<Session, Map<AgentMessage['type'], string>>();
  return {
    take: async (session, report, handle) => {
      const last = lastOf.get(session) ?? new Map<AgentMessage['type'], string>();
      const digest = hash('sha256', JSON.stringify(report), 'base64');
      if (last.get(report.type) === digest) return;
      last.delete(report.type);
      lastOf.set(session, last);
      if (await handle()) last.set(report.type, digest);
    },
  };
}

/**
 * Passes on one frame at a time and reads no further until it is handled. Otherwise a host that sends faster would fill our memory. A turn of
 * the event loop handles one frame, because a chunk may contain a thousand, and all others would wait for them. Returns a function that gives
 * the time since the last message. That time is 0 while we do not read, because then the host may be sending.
 */
function readOneByOne(socket: LinkSocket, clock: Clock, handle: (frame: string) => Promise<void>): () => number {
  let receivedMs = clock.monotonicMs();
  let waiting = 0;
  let work = Promise.resolve();
  const noteReceived = (): void => void (receivedMs = clock.monotonicMs());
  socket.on('pong', noteReceived);
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    const frame = isBinary ? 'binary' : data.toString();
    waiting += 1;
    socket.pause();
    work = work
      .then(() => handle(frame))
      .then(() => clock.nextTurn())
      .then(() => {
        waiting -= 1;
        noteReceived();
        if (waiting === 0) socket.resume();
      });
  });
  return () => (waiting > 0 ? 0 : clock.monotonicMs() - receivedMs);
}

/** Anyone can send a first message, and parsing it delays everyone else. So its size and rate are limited before it is parsed. */
function whyUnread(
  clientIp: string,
  bytes: number,
  { budget }: SessionDeps,
): { code: number; reason: string } | undefined {
  if (bytes > LINK_HELLO_BYTES_MAX)
    return { code: LINK_CLOSE.malformed, reason: `a first message has at most ${LINK_HELLO_BYTES_MAX} bytes` };
  if (budget.takeUnproven(clientIp, bytes)) return undefined;
  return { code: LINK_CLOSE.busy, reason: 'too many first messages from your address; try again later' };
}

interface Pulse {
  life(): Life;
  stop(): void;
}

/**
 * Pings until stopped. Reports a missed ping at once, and the next answer too. Closes the link if the host has been silent for too long.
 */
function keepPinging(socket: LinkSocket, silentMs: () => number, deps: SessionDeps, onLife: () => unknown): Pulse {
  const { clock, rng } = deps;
  const upSinceMs = clock.now();
  let lastMs = upSinceMs;
  let isAnswering = true;
  let cancels: (() => void)[] = [];
  const ping = (): void => {
    if (silentMs() > LINK_SILENCE_MS_MAX) return socket.terminate();
    const sentMs = clock.monotonicMs();
    const missed = (): void => {
      if (!isAnswering || answeredMs >= sentMs || silentMs() === 0) return;
      isAnswering = false;
      onLife();
    };
    socket.ping();
    cancels = [clock.after(LINK_PONG_MS_MAX, missed), clock.after(spreadMs(LINK_PING_MS, rng), ping)];
  };
  let answeredMs = clock.monotonicMs();
  socket.on('pong', () => {
    const wasAnswering = isAnswering;
    [answeredMs, lastMs, isAnswering] = [clock.monotonicMs(), clock.now(), true];
    if (!wasAnswering) onLife();
  });
  cancels = [clock.after(spreadMs(LINK_PING_MS, rng), ping)];
  return {
    life: () => ({ isAnswering, lastMs, upSinceMs }),
    stop: () => cancels.forEach((cancel) => cancel()),
  };
}

function isProof(key: string, hello: HelloMessage, nonce: string): boolean {
  const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: key }, format: 'jwk' });
  return verify(null, linkProof(hello.machine_id, nonce), publicKey, Buffer.from(hello.proof, 'base64url'));
}
