// The links of all machines: one live session each, desired state pushed when it moved, streams asked for.
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { LINK_HELLO_BYTES_MAX, LINK_MESSAGE_BYTES_MAX, CLONE_TOKEN_MS } from '../../../shared/limits.ts';
import { spreadMs } from '../../../shared/backoff.ts';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf, ServiceError } from '../../../shared/errors.ts';
import {
  type AgentMessage,
  type DesiredMessage,
  type HelloMessage,
  type HolderMessage,
  LINK_CLOSE,
  type ObservedMessage,
  type OpenMessage,
  type PullAnswer,
  type PullLogin,
} from '../../../shared/protocol/link.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import type { LinkSocket } from '../../../shared/protocol/link-socket.ts';
import type { Upgrade } from '../../base/http/upgrades.ts';
import type { CloneTokens } from './clone-tokens.ts';
import { openReadBudget } from './read-budget.ts';
import { runSession, type Session, type SessionDeps } from './session.ts';
import { openStreams, StreamError, type Streams } from './streams.ts';

/** What rooms above do with a link; handed in by the house. */
export interface LinkHandlers {
  /** A machine's link is up: it is online, and this is what it holds and has. */
  onUp(machineId: string, hello: HelloMessage, clientIp: string): Promise<void>;
  /** Another host has gone on with the machine's identity: one of them is a copy. Before `onUp`. */
  onCopy(machineId: string): Promise<void>;
  /** The newest link of the machine is down. */
  onDown(machineId: string): Promise<void>;
  /** A ping was missed, or is answered again, or the link came or went: what runs there is to be looked at. */
  onLife(machineId: string): void;
  /** What the host has seen of a holder by itself. */
  onHolder(machineId: string, message: HolderMessage): Promise<void>;
  onObserved(machineId: string, message: ObservedMessage): Promise<void>;
  onInventory(machineId: string, inventory: Inventory): Promise<void>;
  /**
   * What the machine needs to pull the workload's private image; undefined where it has no business with it. May take long.
   * @throws ServiceError `image_unavailable` where nobody may pull it any more: the host is told so
   */
  pullLogin(machineId: string, workloadId: string): Promise<PullLogin | null | undefined>;
  /** The machine's whole desired state. */
  desired(machineId: string): Promise<DesiredMessage>;
}

export interface Link {
  /** Sends the machine its desired state now, if it is connected. */
  push(machineId: string): void;
  isUp(machineId: string): boolean;
  /** True for a while after a link took the place of one that was up: the two may be of a host and a copy of it. */
  isContested(machineId: string): boolean;
  /** What shows that a workload of the machine is alive, as far as this process knows. */
  lifeOf(machineId: string, workloadId: string): WorkloadLife;
  /** Has the host replace the holder of a workload; false if it is not connected. */
  repair(machineId: string, workloadId: string): boolean;
  /** Of links that are up. */
  count(): number;
  /** A byte stream into a workload. @throws StreamError saying which leg failed */
  openStream(machineId: string, workloadId: string, target: OpenMessage['target']): Promise<Duplex>;
  /** Whoever is at the other end wants to be a machine. `proven` is called once it has shown that the link is its own. */
  accept(socket: LinkSocket, clientIp: string, proven: () => void): void;
  onLinkUpgrade(upgrade: Upgrade): void;
  onStreamUpgrade(upgrade: Upgrade): void;
  /** Says goodbye to every agent, asking them to come back after `reconnectAfterMs`. */
  drain(reconnectAfterMs: number): Promise<void>;
}

export interface WorkloadLife {
  /** The link is up, and the host has answered the last ping. */
  isAnswering: boolean;
  /** Since when the link is up; null if it is not. */
  upSinceMs: number | null;
  /** When the host last answered a ping, or sent bytes on a stream of a customer; null if this process has seen neither. */
  lastMs: number | null;
  /** Streams to its SSH server that are open, of customers and of strangers. */
  sshStreams: number;
}

/** A host that lost its link to a copy is back by then, and shows a clone token that tells the two apart. */
const CONTESTED_MS = 35_000;
/** A machine pulls for as many workloads as it has GPUs; more questions than this are not answered. */
const PULL_LOGINS_PER_MACHINE_MAX = 16;

type LinkDeps = Pick<SessionDeps, 'clock' | 'ids' | 'rng' | 'log' | 'machineKey'> & {
  handlers: LinkHandlers;
  cloneTokens: CloneTokens;
};

export function openLink(deps: LinkDeps): Link {
  const sessions = new Map<string, Session>();
  /** Until when, by the monotonic clock. */
  const contestedMs = new Map<string, number>();
  const streams = openStreams(deps);
  const budget = openReadBudget(deps.clock);
  const lives = openLives(sessions, deps.clock);
  const server = new WebSocketServer({ noServer: true, maxPayload: LINK_MESSAGE_BYTES_MAX, perMessageDeflate: false });
  const events = sessionEvents({ sessions, contestedMs, streams, lives }, deps);
  const accept: Link['accept'] = (socket, clientIp, proven) =>
    runSession(socket, clientIp, {
      ...deps,
      budget,
      onOpen: (session, hello) => {
        proven();
        return events.onOpen(session, hello, clientIp);
      },
      onMessage: events.onMessage,
      onLife: ({ machineId }) => deps.handlers.onLife(machineId),
      onClose: events.onClose,
    });

  return {
    push: (machineId) => {
      const session = sessions.get(machineId);
      if (session !== undefined) pushDesired(session, deps);
    },
    isUp: (machineId) => sessions.has(machineId),
    isContested: (machineId) => (contestedMs.get(machineId) ?? 0) > deps.clock.monotonicMs(),
    lifeOf: lives.of,
    repair: (machineId, workloadId) => {
      sessions.get(machineId)?.send({ type: 'repair', workload_id: workloadId });
      return sessions.has(machineId);
    },
    count: () => sessions.size,
    openStream: async (machineId, workloadId, target) => {
      const session = sessions.get(machineId);
      if (session === undefined) throw new StreamError('link', 'the host is not connected');
      const isCustomers = target.kind !== 'probe';
      const pending = streams.expect(machineId, isCustomers ? () => lives.noteBytes(workloadId) : undefined);
      const { streamId, token } = pending;
      session.send({ type: 'open', stream_id: streamId, token, workload_id: workloadId, target });
      const stream = await pending.dialled;
      if (target.kind === 'ssh') lives.noteSsh(workloadId, stream);
      return stream;
    },
    accept,
    onLinkUpgrade: ({ request, socket, head, clientIp, proven }) => {
      request.socket.setNoDelay(true);
      const unproven = boundUnproven(socket);
      server.handleUpgrade(request, socket, head, (webSocket: WebSocket) =>
        accept(webSocket, clientIp, () => {
          unproven.lift();
          proven();
        }),
      );
    },
    onStreamUpgrade: streams.onUpgrade,
    drain: async (reconnectAfterMs) => {
      for (const session of sessions.values()) {
        session.send({ type: 'drain', reconnect_after_ms: reconnectAfterMs });
        session.close(1001, 'the control plane is stopping');
      }
      sessions.clear();
      streams.close();
      server.close();
    },
  };
}

/** What comes before a proof is one message and some control frames. `ws` itself would collect a whole message of any machine's size. */
const UNPROVEN_BYTES_MAX = 2 * LINK_HELLO_BYTES_MAX;

/** Ends a connection that sends more than that, until the bound is lifted. */
function boundUnproven(socket: Duplex): { lift(): void } {
  let bytes = 0;
  const count = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes > UNPROVEN_BYTES_MAX) socket.destroy();
  };
  socket.on('data', count);
  return { lift: () => void socket.off('data', count) };
}

interface Lives {
  of(machineId: string, workloadId: string): WorkloadLife;
  /** The host has sent bytes of a customer's own stream. */
  noteBytes(workloadId: string): void;
  noteSsh(workloadId: string, stream: Duplex): void;
  /** The link is gone; its last answer still counts. */
  keep(session: Session): void;
}

/** Machines and workloads whose last sign of life is remembered. Whoever is forgotten is known by its last good probe. */
const LIVES_MAX = 50_000;

function openLives(sessions: ReadonlyMap<string, Session>, clock: Clock): Lives {
  const answeredMs = new Map<string, number>();
  const bytesMs = new Map<string, number>();
  const sshStreams = new Map<string, number>();
  const note = (map: Map<string, number>, id: string, ms: number): void => {
    map.delete(id);
    map.set(id, ms);
    const oldest = map.size > LIVES_MAX ? map.keys().next().value : undefined;
    if (oldest !== undefined) map.delete(oldest);
  };
  return {
    of: (machineId, workloadId) => {
      const life = sessions.get(machineId)?.life();
      const known = [life?.lastMs ?? answeredMs.get(machineId), bytesMs.get(workloadId)].filter(
        (ms) => ms !== undefined,
      );
      return {
        isAnswering: life?.isAnswering === true,
        upSinceMs: life?.upSinceMs ?? null,
        lastMs: known.length === 0 ? null : Math.max(...known),
        sshStreams: sshStreams.get(workloadId) ?? 0,
      };
    },
    noteBytes: (workloadId) => note(bytesMs, workloadId, clock.now()),
    noteSsh: (workloadId, stream) => {
      sshStreams.set(workloadId, (sshStreams.get(workloadId) ?? 0) + 1);
      stream.once('close', () => {
        const left = (sshStreams.get(workloadId) ?? 1) - 1;
        if (left === 0) sshStreams.delete(workloadId);
        else sshStreams.set(workloadId, left);
      });
    },
    keep: (session) => note(answeredMs, session.machineId, session.life().lastMs),
  };
}

interface Ground {
  lives: Lives;
  sessions: Map<string, Session>;
  contestedMs: Map<string, number>;
  streams: Streams;
}

/** What a session's life does to the room: the newest link of a machine is the only one that counts. */
function sessionEvents({ sessions, contestedMs, streams, lives }: Ground, deps: LinkDeps) {
  const { handlers, log, cloneTokens } = deps;
  const pullLogins = openPullLogins(deps);
  return {
    onOpen: async (session: Session, hello: HelloMessage, clientIp: string): Promise<void> => {
      const before = sessions.get(session.machineId);
      if (before !== undefined) contestedMs.set(session.machineId, deps.clock.monotonicMs() + CONTESTED_MS);
      before?.close(LINK_CLOSE.superseded, 'a newer link of this machine is up');
      sessions.set(session.machineId, session);
      if (!(await cloneTokens.show(session.machineId, hello.clone_token))) await handlers.onCopy(session.machineId);
      await handlers.onUp(session.machineId, hello, clientIp);
      log.info({ machine_id: session.machineId, client_ip: clientIp }, 'agent link up');
      handlers.onLife(session.machineId);
      pushDesired(session, deps);
      turnCloneToken(session, () => sessions.get(session.machineId) === session, deps);
    },
    onMessage: async (session: Session, message: AgentMessage): Promise<void> => {
      if (sessions.get(session.machineId) !== session) return;
      switch (message.type) {
        case 'observed':
          return handlers.onObserved(session.machineId, message);
        case 'inventory':
          return handlers.onInventory(session.machineId, message.inventory);
        case 'holder':
          return handlers.onHolder(session.machineId, message);
        case 'clone_token_kept':
          return cloneTokens.kept(session.machineId, message.value);
        case 'pull_login':
          return void pullLogins.answer(session, message.workload_id);
        case 'stream_refused':
          return streams.refuse(session.machineId, message.stream_id, message.detail);
        case 'hello':
          return undefined;
      }
    },
    onClose: (session: Session): void => {
      if (sessions.get(session.machineId) !== session) return;
      sessions.delete(session.machineId);
      lives.keep(session);
      handlers.onLife(session.machineId);
      log.info({ machine_id: session.machineId }, 'agent link down');
      handlers.onDown(session.machineId).catch((error: unknown) => {
        log.error({ machine_id: session.machineId, reason: messageOf(error) }, 'a lost link could not be noted');
      });
    },
  };
}

function pushDesired(session: Session, { handlers, log }: LinkDeps): void {
  handlers
    .desired(session.machineId)
    .then((message) => session.send(message))
    .catch((error: unknown) => {
      log.error(
        { machine_id: session.machineId, reason: messageOf(error) },
        'desired state could not be pushed; the next change or reconnect tries again',
      );
    });
}

/** Now, and again and again while the link lasts. */
function turnCloneToken(session: Session, isUp: () => boolean, deps: LinkDeps): void {
  const { clock, rng, log, cloneTokens } = deps;
  if (!isUp()) return;
  cloneTokens
    .next(session.machineId)
    .then((value) => session.send({ type: 'clone_token', value }))
    .catch((error: unknown) => {
      const told = { machine_id: session.machineId, reason: messageOf(error) };
      log.error(told, 'a cloneToken could not be turned; the next time comes');
    });
  clock.after(spreadMs(CLONE_TOKEN_MS, rng), () => turnCloneToken(session, isUp, deps));
}

/** Logins are fetched beside the link's other messages: a slow registry must not hold up what the machine observes. */
function openPullLogins({ handlers, log }: LinkDeps): { answer(session: Session, workloadId: string): Promise<void> } {
  const underWay = new Map<string, number>();
  const answerOf = async (machineId: string, workloadId: string): Promise<PullAnswer | null | undefined> => {
    try {
      return await handlers.pullLogin(machineId, workloadId);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'image_unavailable') throw error;
      return { kind: 'refused', detail: error.details.detail.slice(0, 512) };
    }
  };
  return {
    answer: async (session, workloadId) => {
      const { machineId } = session;
      const count = underWay.get(machineId) ?? 0;
      if (count >= PULL_LOGINS_PER_MACHINE_MAX) return;
      underWay.set(machineId, count + 1);
      try {
        const login = await answerOf(machineId, workloadId);
        if (login === undefined)
          log.warn({ machine_id: machineId, workload_id: workloadId }, 'a pull login was refused');
        else session.send({ type: 'pull_login', workload_id: workloadId, login });
      } catch (error) {
        // Without an answer the host asks again.
        const reason = messageOf(error);
        log.warn({ machine_id: machineId, workload_id: workloadId, reason }, 'a pull login could not be had');
      } finally {
        const left = (underWay.get(machineId) ?? 1) - 1;
        if (left === 0) underWay.delete(machineId);
        else underWay.set(machineId, left);
      }
    },
  };
}
