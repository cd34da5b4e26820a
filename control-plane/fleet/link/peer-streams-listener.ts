// The primary's end of streams between control planes: it opens the streams that secondaries ask for. `peer-wire.ts` explains the request and the
// answers.
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { closeSignal } from '../../base/http/relaying.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { UpgradeListener } from '../../base/http/upgrades.ts';
import type { Link } from './link.ts';
import { type Dated, openOnce } from './once.ts';
import {
  AGE_MS_MAX,
  openRequest,
  PEER_PROTOCOL,
  PEER_STREAMS_PATH,
  type PeerPort,
  type PeerRefusal,
  type PeerRequest,
  SCHEME,
  SEALED_CHARS_MAX,
  streamOver,
} from './peer-wire.ts';
import { refuse, splice, StreamError } from './streams.ts';

/** Limits how many ids of requests are kept in memory, at about a hundred bytes each. */
const KNOWN_MAX = 100_000;

const UNEXPECTED: PeerRefusal = { leg: 'link', detail: 'the control plane that has the links has failed' };

interface ListenerDeps {
  sealing: Sealing;
  clock: Pick<Clock, 'now' | 'monotonicMs' | 'after'>;
  log: Log;
  /** The id of this process among the control planes of its database. */
  member: string;
  openStream: Link['openStream'];
  /** Undefined if nobody may connect, or if the client has left. `gone` aborts once the other control plane does not wait any more. */
  openPort(port: PeerPort, gone: AbortSignal): Promise<Duplex | undefined>;
}

export interface PeerStreamsListener {
  onUpgrade: UpgradeListener;
  /** The streams that are open now may go on for `graceMs`. Resolves when they have ended. Followed logs are not waited for, and end then. */
  drain(graceMs: number): Promise<void>;
}

/** The end of the primary. Its path is PEER_STREAMS_PATH. */
export function openPeerStreamsListener(given: ListenerDeps): PeerStreamsListener {
  // Anyone can connect, so the log lines of an address are limited.
  const deps = { ...given, log: throttledLog(given.log, given.clock) };
  const accept = openOnce({ ageMsMax: AGE_MS_MAX, knownMax: KNOWN_MAX });
  const openStreams = new Set<Duplex>();
  const openLogs = new Set<Duplex>();

  const onUpgrade: UpgradeListener = ({ request, head, clientIp, proven }) => {
    const { socket } = request;
    let asks: PeerRequest['asks'];
    try {
      ({ asks } = provenRequest(request, deps, accept));
    } catch (error) {
      deps.log.warn(
        { client_ip: clientIp, reason: messageOf(error) },
        'a request for a stream of another control plane was refused',
      );
      return refuse(socket, '403 Forbidden');
    }
    proven();
    const among = isLog(asks) ? openLogs : openStreams;
    void serve(asks, { socket, head, among }, deps);
  };
  const drain = async (graceMs: number): Promise<void> => {
    const left = [...openStreams];
    const cancel = deps.clock.after(graceMs, () => left.forEach((stream) => stream.destroy()));
    await Promise.all(left.map((stream) => new Promise<void>((resolve) => void stream.once('close', resolve))));
    cancel();
    for (const followed of openLogs) followed.destroy();
  };
  return { onUpgrade, drain };
}

/** @throws Error if the request is not that of another control plane to this one, if its time is over, or if it was accepted before */
function provenRequest(
  incoming: IncomingMessage,
  { sealing, clock, member }: ListenerDeps,
  accept: (of: Dated, nowMs: number) => boolean,
): PeerRequest {
  const { upgrade, authorization = '' } = incoming.headers;
  const isForUs = incoming.method === 'GET' && incoming.url === PEER_STREAMS_PATH && upgrade === PEER_PROTOCOL;
  if (!isForUs) throw new Error('it asks for no stream');
  const sealed = authorization.slice(SCHEME.length);
  if (!authorization.startsWith(SCHEME) || sealed.length > SEALED_CHARS_MAX) throw new Error('it has nothing sealed');
  const request = openRequest(sealing, member, sealed);
  const nowMs = clock.now();
  if (Math.abs(nowMs - request.at_ms) > AGE_MS_MAX) throw new Error('it is old, or our clocks differ');
  if (!accept({ id: request.id, atMs: request.at_ms }, nowMs)) throw new Error('it was repeated');
  return request;
}

function isLog(asks: PeerRequest['asks']): boolean {
  return 'target' in asks && asks.target.kind === 'logs';
}

/** A control plane that has proven itself. Its stream is in `among` while it is open. */
interface Asking {
  socket: Socket;
  /** Bytes that have arrived together with the request. */
  head: Buffer;
  among: Set<Duplex>;
}

/** Answers the request, with a stream if there is one. The promise never rejects. */
async function serve(asks: PeerRequest['asks'], asking: Asking, deps: ListenerDeps): Promise<void> {
  try {
    await connect(asks, asking, deps);
  } catch (error) {
    const fields = 'target' in asks ? { machine_id: asks.machine_id } : { instance_id: asks.instance_id };
    const isExpected = error instanceof StreamError;
    if (!isExpected) deps.log.error({ ...fields, err: error }, 'a stream for another control plane failed');
    const refusal: PeerRefusal = isExpected ? { leg: error.leg, detail: error.message } : UNEXPECTED;
    refuse(asking.socket, '502 Bad Gateway', JSON.stringify(refusal));
  }
}

/** @throws StreamError if there is no stream */
async function connect(
  asks: PeerRequest['asks'],
  { socket, head, among }: Asking,
  deps: Pick<ListenerDeps, 'openStream' | 'openPort'>,
): Promise<void> {
  // The wire is not there yet, and would never see an end that comes before it.
  const onEarlyEnd = (): void => void socket.destroy();
  socket.once('end', onEarlyEnd);
  const toWorkload = await streamTo(asks, socket, deps);
  if (socket.destroyed) return void toWorkload.destroy();
  socket.off('end', onEarlyEnd);
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${PEER_PROTOCOL}\r\n\r\n`);
  const toSecondary = streamOver(socket, { dialled: false, head });
  among.add(toSecondary);
  toSecondary.once('close', () => among.delete(toSecondary));
  splice(toSecondary, toWorkload);
}

/** @throws StreamError */
async function streamTo(
  asks: PeerRequest['asks'],
  socket: Socket,
  { openStream, openPort }: Pick<ListenerDeps, 'openStream' | 'openPort'>,
): Promise<Duplex> {
  if ('target' in asks) return openStream(asks.machine_id, asks.workload_id, asks.target);
  const stream = await openPort(asks, closeSignal(socket));
  if (stream === undefined) throw new StreamError('refused', 'nobody may connect to this port now');
  return stream;
}
