// The links of all machines. A link is the WebSocket on which an agent receives its desired state and reports what it observes.
//
// The life of a link (session.ts runs one of them; this file keeps the newest of each machine):
//
//   agent                                       control plane
//     |  connects                                     |
//     |  <--------------------- challenge (nonce) --- |  limits per address: connections, bytes before the proof
//     |  --- hello (machine, proof, clone token) ---> |  the proof is the nonce, signed with the enrolled key
//     |  <----------------------------- welcome ----- |  a link of the same machine that is still up is closed
//     |  <----------------------------- desired ----- |  always the complete list, at once and after each change
//     |  <------------------------- clone_token ----- |  a new one at once and then once a minute (clone-tokens.ts)
//     |  --- observed, inventory, holder -----------> |  handled one after another, by the rooms above (`LinkHandlers`)
//     |  <-------------------------------- open ----- |  a customer connects: the host dials a stream back (streams.ts)
//     |  pings and pongs, until one side closes       |
//
// Newest link wins. If a network breaks, the old link often looks alive for another half minute, so a second link of the same
// machine is normal: it takes over, and the old one is closed with `superseded`. But a second link may also come from a clone,
// which is a second host that runs from a copy of the disk and so has the same key. At this moment nobody knows which it is.
// The machine is `contested` for 35 s. In this time a host that lost its link to a clone reconnects, and the clone tokens tell
// the two apart.
//
// Example. Host A runs instance i. Somebody copies its disk to host B, and B starts at 10:00:00.
// - 10:00:00  B sends hello with the clone token of the copied disk, which A has replaced many times since: B is a copy. The rooms
//             above place nothing new on the machine. B's link is the newest, and A's link is closed.
// - 10:00:01  B reports that the container of i is missing. The machine is a known copy, so the report changes nothing.
// - 10:00:02  A connects again, and B's link is closed. The two take turns until the operator ends one of them.
// Now let the copy be so fresh that B has the newest token of A. B's hello is accepted as that of the host, and B gets a new token.
// Its report about i is ignored because the machine is contested. A returns within the 35 s with a token that is older than the
// one which B has stored, so the machine is known to be copied.
//
// What must never happen:
// - A message of a link that is not the newest one takes effect. `onMessage` and `onClose` compare the session first.
// - A report that a container is missing ends a rental while nobody knows which host has sent it.
// - A host without a proof costs memory or time of others: size, rate and number of first messages are limited.
//
// A host repeats its reports although nothing has changed. A report that equals the last one of its link is dropped, unless that one
// was ignored. The report contains the revision that the host holds, so a new decision of ours makes its next report a different one.
//
// Signs of life (lives.ts) are kept in memory only. They never decide alone that an instance is down: that takes failed probes too.
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { networkOf } from '../../../shared/client-network.ts';
import { LINK_HELLO_BYTES_MAX, LINK_MESSAGE_BYTES_MAX, CLONE_TOKEN_MS } from '../../../shared/limits.ts';
import { spreadMs } from '../../../shared/backoff.ts';
import { messageOf } from '../../../shared/errors.ts';
import {
  type AgentMessage,
  type DesiredMessage,
  forVersion,
  type HelloMessage,
  type HolderMessage,
  LINK_CLOSE,
  type ObservedMessage,
  type OpenMessage,
  type LinkSocket,
  PROTOCOL_WITH_METRICS,
} from '../../../shared/protocol/link.ts';
import type { MetricsSample } from '../../../shared/protocol/metrics.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import type { Upgrade } from '../../base/http/upgrades.ts';
import type { CloneTokens } from './clone-tokens.ts';
import { type Lives, openLives, type WorkloadLife } from './lives.ts';
import { openRequests, type RequestHandlers } from './requests.ts';
import { openReports, type Caller, openReadBudget, runSession, type Session, type SessionDeps } from './session.ts';
import { openStreams, StreamError, type Streams } from './streams.ts';

/** Handlers of the rooms above. The house passes them in. */
export interface LinkHandlers extends RequestHandlers {
  /** The link of a machine is up: the machine is online, and `hello` reports its clone token, its revision and its inventory. */
  onUp(machineId: string, hello: HelloMessage, caller: Caller): Promise<void>;
  /** The newest link of the machine is down. */
  onDown(machineId: string): Promise<void>;
  /** The host missed a ping or answers again, or the link went up or down: its instances should be probed now. */
  onLife(machineId: string): void;
  /** The host reports a change of a holder. */
  onHolder(machineId: string, message: HolderMessage): Promise<void>;
  /** False if the report was ignored for now, so that the same report has to be handled when it comes again. */
  onObserved(machineId: string, message: ObservedMessage): Promise<boolean>;
  /** False if the report was ignored for now, so that the same report has to be handled when it comes again. */
  onInventory(machineId: string, inventory: Inventory): Promise<boolean>;
  /** The host's figures of this moment. */
  onMetrics(machineId: string, sample: MetricsSample): void;
  /** The complete desired state of the machine. */
  desired(machineId: string): Promise<DesiredMessage>;
}

export interface Link {
  /** Sends the machine its desired state now, if it is connected. */
  push(machineId: string): void;
  isUp(machineId: string): boolean;
  /** True while the host has not read much of what it was sent: large messages should wait. */
  isBehind(machineId: string): boolean;
  /** True for a while after a link replaced another one that was up: the two may belong to a host and a copy of it. */
  isContested(machineId: string): boolean;
  /** The signs of life of a workload that this process has seen. */
  lifeOf(machineId: string, workloadId: string): WorkloadLife;
  /** Asks the host to replace the holder of a workload; false if the host is not connected. */
  repair(machineId: string, workloadId: string): boolean;
  /** Asks the host to sample its figures every second for `forMs`. Does nothing without a link, or if the host's protocol has no figures. */
  watch(machineId: string, forMs: number): void;
  /** The number of links that are up. */
  count(): number;
  /** Opens a byte stream into a workload. @throws StreamError with the leg that failed */
  openStream(machineId: string, workloadId: string, target: OpenMessage['target']): Promise<Duplex>;
  /** Takes a new connection that claims to be a machine. `proven` is called once the proof of its key is valid. */
  accept(socket: LinkSocket, clientIp: string, proven: () => void): void;
  onLinkUpgrade(upgrade: Upgrade): void;
  onStreamUpgrade(upgrade: Upgrade): void;
  /** Closes all links and asks the agents to reconnect after `reconnectAfterMs`. */
  drain(reconnectAfterMs: number): Promise<void>;
}

/** Within this time, a host that lost its link to a copy reconnects and sends its clone token, which tells the two apart. */
const CONTESTED_MS = 35_000;

type LinkDeps = Pick<SessionDeps, 'clock' | 'ids' | 'rng' | 'log' | 'machineKey'> & {
  handlers: LinkHandlers;
  cloneTokens: Pick<CloneTokens, 'next' | 'kept' | 'leave'>;
};

export function openLink(deps: LinkDeps): Link {
  const sessions = new Map<string, Session>();
  /** The time at which a machine's contested time ends, on the monotonic clock. The key is the machine's id. */
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
    isBehind: (machineId) => sessions.get(machineId)?.isBehind() === true,
    isContested: (machineId) => (contestedMs.get(machineId) ?? 0) > deps.clock.monotonicMs(),
    lifeOf: lives.of,
    repair: (machineId, workloadId) => {
      sessions.get(machineId)?.send({ type: 'repair', workload_id: workloadId });
      return sessions.has(machineId);
    },
    watch: (machineId, forMs) => sendWatch(sessions.get(machineId), forMs),
    count: () => sessions.size,
    openStream: async (machineId, workloadId, target) => {
      const session = sessions.get(machineId);
      if (session === undefined) throw new StreamError('link', 'the host is not connected');
      return startStream({ session, streams, lives }, workloadId, target);
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

/** An async function would keep the target, with all keys of an organisation, in memory until the host has dialled. So this is none. */
function startStream(
  { session, streams, lives }: { session: Session; streams: Streams; lives: Lives },
  workloadId: string,
  target: OpenMessage['target'],
): Promise<Duplex> {
  const { kind } = target;
  const network = kind === 'ssh' ? networkOf(target.client_ip) : undefined;
  const onBytes = kind === 'probe' ? undefined : (): void => lives.noteBytes(workloadId);
  const { streamId, token, dialled } = streams.expect(session.machineId, onBytes);
  session.send({ type: 'open', stream_id: streamId, token, workload_id: workloadId, target });
  return dialled.then((stream) => {
    if (network !== undefined) lives.noteSsh(workloadId, stream, network);
    return stream;
  });
}

function sendWatch(session: Session | undefined, forMs: number): void {
  if (session === undefined || session.protocol < PROTOCOL_WITH_METRICS) return;
  session.send({ type: 'watch', for_ms: forMs });
}

/**
 * Limit of bytes before the proof: one message and some control frames. `ws` itself would buffer a message of the size that a proven
 * machine may send.
 */
const UNPROVEN_BYTES_MAX = 2 * LINK_HELLO_BYTES_MAX;

/** Ends a connection that sends more than UNPROVEN_BYTES_MAX, until `lift` is called. */
function boundUnproven(socket: Duplex): { lift(): void } {
  let bytes = 0;
  const count = (chunk: Buffer): void => {
    bytes += chunk.length;
    if (bytes > UNPROVEN_BYTES_MAX) socket.destroy();
  };
  socket.on('data', count);
  return { lift: () => void socket.off('data', count) };
}

interface Shared {
  lives: Lives;
  sessions: Map<string, Session>;
  contestedMs: Map<string, number>;
  streams: Streams;
}

/** The effects of a session on the room. Only the newest link of a machine counts. */
function sessionEvents({ sessions, contestedMs, streams, lives }: Shared, deps: LinkDeps) {
  const { handlers, log, cloneTokens } = deps;
  const requests = openRequests(deps);
  const reports = openReports();
  return {
    onOpen: async (session: Session, hello: HelloMessage, clientIp: string): Promise<void> => {
      const before = sessions.get(session.machineId);
      if (before !== undefined) contestedMs.set(session.machineId, deps.clock.monotonicMs() + CONTESTED_MS);
      before?.close(LINK_CLOSE.superseded, 'a newer link of this machine is up');
      sessions.set(session.machineId, session);
      await handlers.onUp(session.machineId, hello, { clientIp, publicKey: session.publicKey });
      log.info({ machine_id: session.machineId, client_ip: clientIp }, 'an agent link is up');
      handlers.onLife(session.machineId);
      pushDesired(session, deps);
      turnCloneToken(session, () => sessions.get(session.machineId) === session, deps);
    },
    onMessage: async (session: Session, message: AgentMessage): Promise<void> => {
      if (sessions.get(session.machineId) !== session) return;
      switch (message.type) {
        case 'observed':
          return reports.take(session, message, () => handlers.onObserved(session.machineId, message));
        case 'inventory':
          return reports.take(session, message, () => handlers.onInventory(session.machineId, message.inventory));
        case 'holder':
          return handlers.onHolder(session.machineId, message);
        case 'clone_token_kept':
          return cloneTokens.kept(session.machineId, message.value);
        case 'pull_login':
          return void requests.pullLogin(session, message.workload_id);
        case 'metrics':
          return handlers.onMetrics(session.machineId, message);
        case 'job_url':
          return void requests.jobUrl(session, message);
        case 'job_events':
          return requests.jobEvents(session, message);
        case 'stream_refused':
          return streams.refuse(session.machineId, message.stream_id, message.detail);
        case 'hello':
          return undefined;
      }
    },
    onClose: (session: Session): void => {
      if (sessions.get(session.machineId) !== session) return;
      sessions.delete(session.machineId);
      lives.keep(session.machineId, session.life().lastMs);
      handlers.onLife(session.machineId);
      log.info({ machine_id: session.machineId }, 'an agent link is down');
      const down = [handlers.onDown(session.machineId), cloneTokens.leave(session.machineId)];
      Promise.all(down).catch((error: unknown) => {
        const fields = { machine_id: session.machineId, reason: messageOf(error) };
        log.error(fields, 'a lost link could not be recorded; the loop own_outage marks the machine offline');
      });
    },
  };
}

function pushDesired(session: Session, { handlers, log }: LinkDeps): void {
  handlers
    .desired(session.machineId)
    .then((message) => session.send(forVersion(message, session.protocol)))
    .catch((error: unknown) => {
      log.error(
        { machine_id: session.machineId, reason: messageOf(error) },
        'desired state could not be pushed; the next change or reconnect tries again',
      );
    });
}

/** Issues a token now and then once per CLONE_TOKEN_MS while the link lasts. */
function turnCloneToken(session: Session, isUp: () => boolean, deps: LinkDeps): void {
  const { clock, rng, log, cloneTokens } = deps;
  if (!isUp()) return;
  cloneTokens
    .next(session.machineId)
    .then((value) => session.send({ type: 'clone_token', value }))
    .catch((error: unknown) => {
      const fields = { machine_id: session.machineId, reason: messageOf(error) };
      log.error(fields, 'a clone token could not be issued; the next one follows in a minute');
    });
  clock.after(spreadMs(CLONE_TOKEN_MS, rng), () => turnCloneToken(session, isUp, deps));
}
