// The control link: dials the control plane, proves this host's identity, receives desired state, sends observed state, and reconnects.
import { fullJitterMs, spreadMs } from '../../shared/backoff.ts';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import type { LinkStatus } from '../host/status-socket.ts';
import {
  LINK_RECONNECT_MS_MAX,
  LINK_RECONNECT_MS_MIN,
  LINK_SILENCE_MS_MAX,
  LINK_DESIRED_BYTES_MAX,
  LINK_HELLO_MS_MAX,
} from '../../shared/limits.ts';
import { type Log, throttledLog } from '../../shared/log.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import {
  decodeMessage,
  forVersion,
  type HolderMessage,
  LINK_CLOSE,
  ServerMessage,
  type AgentMessage,
  type DesiredMessage,
  type ObservedMessage,
  type OpenMessage,
  type Revision,
  type PullAnswer,
  type PullLoginMessage,
  type LinkSocket,
  negotiateVersion,
  PROTOCOL_MAX,
  PROTOCOL_MIN,
  PROTOCOL_WITH_JOBS,
  PROTOCOL_WITH_METRICS,
} from '../../shared/protocol/link.ts';
import type { MetricsSample } from '../../shared/protocol/metrics.ts';
import type { Rng } from '../../shared/rng.ts';
import type { CloneToken } from './identity.ts';
import { type JobMessages, openJobMessages, openPullLogins, type PullLogins } from './requests.ts';
import WebSocket from 'ws';

/** The functions of the rest of the agent that the link calls. */
export interface LinkPeer {
  hello(): { held: Revision | null; boot_id: string; inventory: Inventory };
  /** base64url signature over the server's nonce. */
  prove(nonce: string): string;
  observed(): ObservedMessage;
  /** Called one at a time, in the order of arrival. */
  onDesired(message: DesiredMessage): Promise<void>;
  onOpen(message: OpenMessage): Promise<void>;
  /** The control plane cannot reach the workload's holder: replace it. */
  onRepair(workloadId: string): void;
  /** Called while somebody looks at the figures of this host. Samples must be sent every second for `forMs`. */
  onWatch(forMs: number): void;
  cloneToken: CloneToken;
}

export interface LinkOptions {
  /** `wss://host/agent/v1/link`. */
  url: string;
  machineId: string;
}

export interface Link {
  /** Call after a change of the observed state. It is sent within a tenth of a second, together with other changes. */
  observedChanged(): void;
  sendInventory(inventory: Inventory): void;
  /** Sends what this host has observed of a holder. Dropped without a link: it is only evidence, and nobody waits for it. */
  sendHolder(seen: Omit<HolderMessage, 'type'>): void;
  /** Sends a sample of the figures. It is dropped without a link, and if the control plane is too old for this message or reads too slowly. */
  sendMetrics(sample: MetricsSample): void;
  /** Asks for a login to the registry of the workload's private image; null: none is needed. @throws Error if no answer comes */
  pullLogin(workloadId: string): Promise<PullAnswer | null>;
  /** The messages of jobs. */
  jobs: Pick<JobMessages, 'url' | 'events'>;
  status(): LinkStatus;
  stop(): Promise<void>;
}

interface LinkDeps {
  clock: Clock;
  rng: Rng;
  log: Log;
  dial(url: string): LinkSocket;
}

/** The first change after a quiet time is sent almost at once. Further ones wait longer and are sent together. */
const OBSERVED_SOON_MS = 5;
const OBSERVED_COALESCE_MS = 10;
const OBSERVED_PERIOD_MS = 30_000;
/**
 * Bytes that the control plane has not read yet. Above this it gets no report and no sample: older ones would fill our memory and delay newer
 * ones.
 */
export const UNREAD_BYTES_MAX = 1024 ** 2;
/** A report that finds more than UNREAD_BYTES_MAX bytes unread is tried again after this time. */
const OBSERVED_BEHIND_MS = 1_000;
/** After a connection that lasted this long, the reconnect delay begins at its minimum again. */
const SETTLED_MS = 30_000;

/** Keeps one link open until `stop`. Never throws: after every failure it tries again. */
export function openLink(options: LinkOptions, peer: LinkPeer, deps: LinkDeps): Link {
  const { clock, rng, log } = deps;
  const stopping = new AbortController();
  const pullLogins = openPullLogins(clock, (workloadId) =>
    current?.send({ type: 'pull_login', workload_id: workloadId }),
  );
  const sendSince = openSendSince(() => current);
  const jobs = openJobMessages(clock, sendSince(PROTOCOL_WITH_JOBS));
  let status: LinkStatus = { connected: false, last_end: null };
  let current: Connection | undefined;
  let cancelReport: (() => void) | undefined;
  let reportIsNear = false;
  let reportedMs = 0;

  const report = (): void => {
    cancelReport?.();
    const isBehind = current?.isBehind() === true;
    reportIsNear = isBehind;
    cancelReport = clock.after(isBehind ? OBSERVED_BEHIND_MS : spreadMs(OBSERVED_PERIOD_MS, rng), report);
    if (isBehind) return;
    reportedMs = clock.monotonicMs();
    if (current !== undefined) current.send(forVersion(peer.observed(), current.version()));
  };

  const keep = async (): Promise<void> => {
    let attempt = 0;
    while (!stopping.signal.aborted) {
      const startedMs = clock.monotonicMs();
      current = connect(options, peer, { ...deps, pullLogins, jobs });
      void current.welcomed.then((ok) => {
        status.connected = ok;
        if (!ok) return;
        log.info({ machine_id: options.machineId }, 'the link is up');
        report();
      });
      const end = await current.ended;
      current = undefined;
      status = { connected: false, last_end: end.reason };
      if (clock.monotonicMs() - startedMs > SETTLED_MS || end.drainMs !== undefined) attempt = 0;
      const waitMs = fullJitterMs(attempt, LINK_RECONNECT_MS_MIN, LINK_RECONNECT_MS_MAX, rng) + (end.drainMs ?? 0);
      attempt += 1;
      const againInMs = stopping.signal.aborted ? null : Math.round(waitMs);
      log.info({ machine_id: options.machineId, reason: end.reason, again_in_ms: againInMs }, 'the link ended');
      await clock.sleep(waitMs, stopping.signal);
    }
  };
  const finished = keep();
  stopping.signal.addEventListener('abort', () => current?.close(1000, 'the agent stops'), { once: true });

  return {
    observedChanged: () => {
      if (reportIsNear) return;
      reportIsNear = true;
      cancelReport?.();
      const sinceMs = clock.monotonicMs() - reportedMs;
      cancelReport = clock.after(Math.max(OBSERVED_SOON_MS, OBSERVED_COALESCE_MS - sinceMs), report);
    },
    sendInventory: (inventory) => current?.send({ type: 'inventory', inventory }),
    sendHolder: (seen) => current?.send({ type: 'holder', ...seen }),
    sendMetrics: sendSince(PROTOCOL_WITH_METRICS),
    pullLogin: pullLogins.ask,
    jobs,
    status: () => ({ ...status }),
    stop: async () => {
      stopping.abort();
      await finished;
      cancelReport?.();
    },
  };
}

/** Returns the socket while it connects. If that fails, it emits `error` and `close`. `ca` replaces the public authorities. */
export function dialLink(url: string, ca: string | undefined): LinkSocket {
  return new WebSocket(url, {
    perMessageDeflate: false,
    maxPayload: LINK_DESIRED_BYTES_MAX,
    handshakeTimeout: LINK_HELLO_MS_MAX,
    ...(ca === undefined ? {} : { ca }),
  });
}

/** The returned function makes a sender for messages that exist since `version` of the protocol. An older control plane does not get them. */
function openSendSince(current: () => Connection | undefined): (version: number) => (message: AgentMessage) => void {
  return (version) => (message) => {
    const connection = current();
    // A sample has no use later. Every other message has an answer, for which somebody waits.
    if (message.type === 'metrics' && connection?.isBehind() === true) return;
    if (connection !== undefined && connection.version() >= version) connection.send(message);
  };
}

interface Connection {
  /** Resolves with true after the server's `welcome`, with false if the connection ends before. */
  welcomed: Promise<boolean>;
  ended: Promise<{ reason: string; drainMs: number | undefined }>;
  /** Drops the message if `welcome` has not come yet. Nothing is lost: a whole report and a changed inventory follow right after `welcome`. */
  send(message: AgentMessage): void;
  close(code: number, reason: string): void;
  /** The control plane has not read what was sent before. */
  isBehind(): boolean;
  /** The version of the protocol that both ends speak; 0 before `welcome`. */
  version(): number;
}

interface Answers {
  pullLogins: PullLogins;
  jobs: JobMessages;
}

function connect(options: LinkOptions, peer: LinkPeer, deps: LinkDeps & Answers): Connection {
  const socket = deps.dial(options.url);
  const welcomed = Promise.withResolvers<boolean>();
  const ended = Promise.withResolvers<{ reason: string; drainMs: number | undefined }>();
  let version = 0;
  let drainMs: number | undefined;
  let reason: string | undefined;

  const close = (code: number, why: string): void => {
    reason ??= why;
    socket.close(code, why.slice(0, 120));
  };
  const post = (message: AgentMessage): void => {
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(message));
  };
  const silence = watchSilence(deps.clock, () => {
    reason ??= 'the control plane fell silent';
    socket.terminate();
  });
  const act = createActor(options, peer, {
    // Strangers cause refusals of streams: each connection to a port on which nothing listens.
    log: throttledLog(deps.log, deps.clock),
    post,
    close,
    welcome: (protocol) => {
      version = protocol;
      welcomed.resolve(true);
    },
    drain: (ms) => {
      drainMs = ms;
    },
    takePullLogin: deps.pullLogins.take,
    takeJob: deps.jobs.take,
  });

  socket.on('message', (data: Buffer, isBinary: boolean) => {
    silence.heard();
    if (isBinary) return close(LINK_CLOSE.malformed, 'malformed message: binary message');
    // The number of values has no limit: the socket bounds the bytes, and an agent trusts its control plane.
    const decoded = decodeMessage(ServerMessage, data.toString(), Number.POSITIVE_INFINITY);
    if (!decoded.ok) return close(LINK_CLOSE.malformed, `malformed message: ${decoded.reason}`);
    if (reason === undefined) act(decoded.message);
  });
  socket.on('ping', silence.heard);
  socket.on('error', (error) => {
    reason ??= error.message;
  });
  socket.on('close', (code, text) => {
    silence.stop();
    welcomed.resolve(false);
    ended.resolve({ reason: reason ?? `closed by the control plane (${code} ${text.toString()})`, drainMs });
  });

  return {
    welcomed: welcomed.promise,
    ended: ended.promise,
    send: (message) => {
      if (version > 0) post(message);
    },
    close,
    isBehind: () => socket.bufferedAmount > UNREAD_BYTES_MAX,
    version: () => version,
  };
}

interface ActorDeps {
  log: Log;
  post(message: AgentMessage): void;
  close(code: number, reason: string): void;
  welcome(protocol: number): void;
  drain(reconnectAfterMs: number): void;
  takePullLogin(message: PullLoginMessage): void;
  takeJob: JobMessages['take'];
}

/** Carries out the server's messages. */
function createActor(options: LinkOptions, peer: LinkPeer, deps: ActorDeps): (message: ServerMessage) => void {
  const { log, post, close } = deps;
  let desiredQueue = Promise.resolve();
  let greeted: Inventory | undefined;

  const sayHello = async (nonce: string): Promise<void> => {
    const hello = peer.hello();
    greeted = hello.inventory;
    post({
      type: 'hello',
      machine_id: options.machineId,
      proof: peer.prove(nonce),
      protocol: { min: PROTOCOL_MIN, max: PROTOCOL_MAX },
      ...hello,
      clone_token: await peer.cloneToken.shown(),
    });
  };
  /** The inventory may have changed since the hello. */
  const sendChangedInventory = (): void => {
    const { inventory } = peer.hello();
    if (JSON.stringify(inventory) !== JSON.stringify(greeted)) post({ type: 'inventory', inventory });
  };
  const open = async (message: OpenMessage): Promise<void> => {
    try {
      await peer.onOpen(message);
    } catch (error) {
      const { stream_id, workload_id } = message;
      const detail = messageOf(error).slice(0, 512);
      log.warn({ machine_id: options.machineId, stream_id, workload_id, detail }, 'a stream was refused');
      post({ type: 'stream_refused', stream_id, detail });
    }
  };

  return (message) => {
    switch (message.type) {
      case 'challenge':
        if (negotiateVersion(message.protocol) !== undefined) return void sayHello(message.nonce);
        return close(LINK_CLOSE.version, 'no common protocol version');
      case 'welcome':
        deps.welcome(message.protocol);
        return sendChangedInventory();
      case 'clone_token':
        return void peer.cloneToken.keep(message.value).then((isKept) => {
          if (isKept) post({ type: 'clone_token_kept', value: message.value });
        });
      case 'desired':
        desiredQueue = desiredQueue
          .then(() => peer.onDesired(message))
          .catch((error: unknown) => log.error({ err: error }, 'a desired state could not be taken'));
        return;
      case 'open':
        return void open(message);
      case 'repair':
        return peer.onRepair(message.workload_id);
      case 'watch':
        return peer.onWatch(message.for_ms);
      case 'pull_login':
        return deps.takePullLogin(message);
      case 'job_url':
      case 'job_events_kept':
        return deps.takeJob(message);
      case 'drain':
        deps.drain(message.reconnect_after_ms);
        return close(1000, 'the control plane asked us to come back later');
    }
  };
}

/** Calls `onSilent` after `LINK_SILENCE_MS_MAX` without a call of `heard`. */
function watchSilence(clock: Clock, onSilent: () => void): { heard(): void; stop(): void } {
  let cancel = clock.after(LINK_SILENCE_MS_MAX, onSilent);
  return {
    heard: () => {
      cancel();
      cancel = clock.after(LINK_SILENCE_MS_MAX, onSilent);
    },
    stop: () => cancel(),
  };
}
