// Streams for a control plane that has no links: it asks the one that has them, the primary, for a stream into a workload.
//
//   secondary                                        primary                                      host
//     | --- GET /peer/v1/streams, sealed request ---> |                                             |
//     |                                               |  opens the seal, looks at its time and id   |
//     |                                               | --- `openStream` of link.ts --------------> |
//     | <---- 101, or 502 with the leg that failed -- | <-------------------------- dials back ---- |
//     | <=================== both directions of the stream, spliced ==============================> |
//
// The request names the machine, the workload and the target, or the instance whose public port somebody has connected to. It is sealed with the
// secret that the control planes of one database share. Nobody else can ask. A sealed request can be copied by who reads the network, so it is
// valid for a minute, for one process and for one stream.
//
// After the 101, each end speaks the stream wire of shared/protocol/stream.ts, as hosts do. Bare bytes would not do: the connection of a primary
// that is killed ends like that of a stream that is complete, so half an answer would look whole.
//
// What must never happen: a stranger opens a stream, or costs more than one attempt to open a seal; one side of a stream ends and the other stays;
// a client that has left keeps a connection to the primary.
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { HEADER_BYTES_MAX, STREAM_DIAL_MS_MAX, TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import { parseJson } from '../../../shared/json.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { OpenTarget } from '../../../shared/protocol/link.ts';
import { streamDuplex } from '../../../shared/protocol/stream.ts';
import { breakIfReplaced, type Peer } from '../../base/http/peers.ts';
import { closeSignal } from '../../base/http/relaying.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import type { UpgradeListener } from '../../base/http/upgrades.ts';
import { readText } from '../../base/outbound/outbound.ts';
import type { Link } from './link.ts';
import { type Dated, openOnce } from './once.ts';
import { refuse, splice, StreamError } from './streams.ts';

/** Path of the primary at which other control planes open streams. */
export const PEER_STREAMS_PATH = '/peer/v1/streams';

const PROTOCOL = 'svc-stream';
const SCHEME = 'Bearer ';
/** The largest difference between the time of a request and the clock of the primary. */
const AGE_MS_MAX = 60_000;
/** Limits how many ids of requests are kept in memory, at about a hundred bytes each. */
const KNOWN_MAX = 100_000;
const ID_BYTES = 12;
/** The primary waits for the host. The rest is for the way to the primary and back. */
const OPEN_MS_MAX = STREAM_DIAL_MS_MAX + 5_000;
/** Longest sealed request. The other headers have some hundred bytes. */
const SEALED_CHARS_MAX = HEADER_BYTES_MAX - 1024;
/** Longest refusal: the words of a host have at most some hundred characters. */
const REFUSAL_BYTES_MAX = 16 * 1024;

/** Most names and values of a request or a refusal. */
const VALUES_MAX = 1_000;

const REFUSED = 403;
/** What a 403 most likely means. The primary gives no reason, because anyone can ask. */
const CLOCKS = 'the wall clocks of the two may differ by more than a minute';

/** A connection to a public port of an instance. The primary reads who may log in: the keys could be too long for a request. */
const PeerPort = z.strictObject({
  instance_id: z.string(),
  /** The port of the application; null: SSH. */
  app_port: z.int().nullable(),
  client_ip: z.string(),
});
export type PeerPort = z.infer<typeof PeerPort>;

const Opening = z.strictObject({
  /** New for each request. */
  id: z.string().max(64),
  /** Time of the request, on the clock of the control plane that asks. */
  at_ms: z.int(),
  asks: z.union([z.strictObject({ machine_id: z.string(), workload_id: z.string(), target: OpenTarget }), PeerPort]),
});
type Opening = z.infer<typeof Opening>;

const Refusal = z.object({ leg: z.enum(['link', 'dial', 'refused']), detail: z.string() });
type Refusal = z.infer<typeof Refusal>;

interface PeerStreamsDeps {
  sealing: Sealing;
  clock: Pick<Clock, 'now' | 'after'>;
  ids: Pick<Ids, 'secret'>;
  /** The primary; undefined while no other control plane is it. */
  primary(): Peer | undefined;
}

export interface PeerStreams extends Pick<Link, 'openStream'> {
  /**
   * Relays a connection to a public port through the primary. `gone` aborts once the client has left.
   * @throws StreamError as `openStream`; also if nobody may connect, or if the client has left
   */
  openPort(port: PeerPort, gone: AbortSignal): Promise<Duplex>;
}

/** The end that asks. Its `openStream` does what that of `Link` does, through the primary. */
export function openPeerStreams({ sealing, clock, ids, primary }: PeerStreamsDeps): PeerStreams {
  const ask = async (asks: Opening['asks'], gone?: AbortSignal): Promise<Duplex> => {
    const to = primary();
    if (to === undefined) throw new StreamError('link', 'no control plane has the links at the moment');
    const opening: Opening = { id: ids.secret(ID_BYTES), at_ms: clock.now(), asks };
    const sealed = sealing.seal(placeOf(to.id), JSON.stringify(opening));
    if (sealed.length > SEALED_CHARS_MAX) throw new StreamError('link', 'the target is too long for a request');
    const stream = await dial(new URL(PEER_STREAMS_PATH, to.url), { sealed, gone }, clock);
    breakIfReplaced(stream, () => primary()?.id === to.id, clock);
    return stream;
  };
  return {
    openStream: (machineId, workloadId, target) => ask({ machine_id: machineId, workload_id: workloadId, target }),
    openPort: ask,
  };
}

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
export function openPeerStreamsListener({ log: plain, ...given }: ListenerDeps): PeerStreamsListener {
  const [open, openLogs] = [new Set<Duplex>(), new Set<Duplex>()];
  // Anyone can connect, so the log lines of an address are limited.
  const deps = { ...given, open, openLogs, log: throttledLog(plain, given.clock) };
  const accept = openOnce({ ageMsMax: AGE_MS_MAX, knownMax: KNOWN_MAX });
  const onUpgrade: UpgradeListener = ({ request, head, clientIp, proven }) => {
    const { socket } = request;
    let opening: Opening;
    try {
      opening = openingOf(request, { ...deps, accept });
    } catch (error) {
      deps.log.warn(
        { client_ip: clientIp, reason: messageOf(error) },
        'a request for a stream of another control plane was refused',
      );
      return refuse(socket, '403 Forbidden');
    }
    proven();
    void serve(opening, { socket, head }, deps);
  };
  const drain = async (graceMs: number): Promise<void> => {
    const left = [...open];
    const cancel = given.clock.after(graceMs, () => left.forEach((stream) => stream.destroy()));
    await Promise.all(left.map((stream) => new Promise<void>((resolve) => void stream.once('close', resolve))));
    cancel();
    for (const log of openLogs) log.destroy();
  };
  return { onUpgrade, drain };
}

function dial(
  url: URL,
  { sealed, gone }: { sealed: string; gone: AbortSignal | undefined },
  clock: PeerStreamsDeps['clock'],
): Promise<Duplex> {
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const headers = { connection: 'Upgrade', upgrade: PROTOCOL, authorization: `${SCHEME}${sealed}` };
    const request = send(url, { agent: false, headers });
    const leave = (): void => {
      reset(request.socket);
      fail(new StreamError('link', 'the client has left'));
    };
    const settle = (): void => {
      cancel();
      gone?.removeEventListener('abort', leave);
    };
    const fail = (error: StreamError): void => {
      settle();
      reject(error);
      request.destroy();
    };
    gone?.addEventListener('abort', leave);
    const cancel = clock.after(OPEN_MS_MAX, () =>
      fail(new StreamError('link', 'the control plane that has the links did not answer in time')),
    );
    request.once('upgrade', (response, socket, head) => {
      if (response.headers.upgrade !== PROTOCOL) return fail(unusable('speaks another protocol'));
      settle();
      resolve(wireOf(socket, { dialled: true, head }));
    });
    request.once('response', (response) => void refusalOf(response).then(fail));
    request.on('error', (error) => fail(unusable(`cannot be reached: ${messageOf(error)}`)));
    request.end();
  });
}

/** After an ordinary close, the port would stay taken for a minute. Strangers who connect and leave could take all 28,000. */
function reset(socket: Socket | null): void {
  if (socket !== null && !(socket instanceof TLSSocket)) socket.resetAndDestroy();
}

function unusable(why: string): StreamError {
  return new StreamError('link', `the control plane that has the links ${why}`);
}

/** The reason of an answer that is no stream. */
async function refusalOf(response: IncomingMessage): Promise<StreamError> {
  const { statusCode: status } = response;
  try {
    const { leg, detail } = Refusal.parse(parseJson(await readText(response, REFUSAL_BYTES_MAX), VALUES_MAX));
    return new StreamError(leg, detail);
  } catch {
    return unusable(status === REFUSED ? `answered ${status}: ${CLOCKS}` : `answered ${status}`);
  }
}

/** @throws Error if the request is not that of another control plane to this one, if its time is over, or if it was accepted before */
function openingOf(
  { method, url, headers: { upgrade, authorization = '' } }: IncomingMessage,
  {
    sealing,
    clock,
    member,
    accept,
  }: Pick<ListenerDeps, 'sealing' | 'clock' | 'member'> & { accept(of: Dated, nowMs: number): boolean },
): Opening {
  if (method !== 'GET' || url !== PEER_STREAMS_PATH || upgrade !== PROTOCOL) throw new Error('it asks for no stream');
  const sealed = authorization.slice(SCHEME.length);
  if (!authorization.startsWith(SCHEME) || sealed.length > SEALED_CHARS_MAX) throw new Error('it has nothing sealed');
  const opening = Opening.parse(parseJson(sealing.open(placeOf(member), sealed), VALUES_MAX));
  const { id, at_ms: atMs } = opening;
  const nowMs = clock.now();
  if (Math.abs(nowMs - atMs) > AGE_MS_MAX) throw new Error('it is old, or our clocks differ');
  if (!accept({ id, atMs }, nowMs)) throw new Error('it was repeated');
  return opening;
}

/** The place of the seal of a request to the control plane with this id. */
function placeOf(id: string): string {
  return `peer/stream/${id}`;
}

/** Answers a caller that has proven itself. The promise never rejects. */
async function serve(
  { asks }: Opening,
  { socket, head }: { socket: Socket; head: Buffer },
  deps: Pick<ListenerDeps, 'openStream' | 'openPort' | 'log'> & { open: Set<Duplex>; openLogs: Set<Duplex> },
): Promise<void> {
  // The wire is not there yet, and would never see an end that came before it.
  const leave = (): void => void socket.destroy();
  socket.once('end', leave);
  try {
    const stream = await streamOf(asks, socket, deps);
    if (socket.destroyed) return void stream.destroy();
    socket.off('end', leave);
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${PROTOCOL}\r\n\r\n`);
    const wire = wireOf(socket, { dialled: false, head });
    const among = 'target' in asks && asks.target.kind === 'logs' ? deps.openLogs : deps.open;
    among.add(wire);
    wire.once('close', () => among.delete(wire));
    splice(wire, stream);
  } catch (error) {
    const of = 'target' in asks ? { machine_id: asks.machine_id } : { instance_id: asks.instance_id };
    if (!(error instanceof StreamError))
      deps.log.error({ ...of, err: error }, 'a stream for another control plane failed');
    const refusal: Refusal = error instanceof StreamError ? { leg: error.leg, detail: error.message } : UNEXPECTED;
    refuse(socket, '502 Bad Gateway', JSON.stringify(refusal));
  }
}

/** @throws StreamError */
async function streamOf(
  asks: Opening['asks'],
  socket: Socket,
  { openStream, openPort }: Pick<ListenerDeps, 'openStream' | 'openPort'>,
): Promise<Duplex> {
  if ('target' in asks) return openStream(asks.machine_id, asks.workload_id, asks.target);
  const stream = await openPort(asks, closeSignal(socket));
  if (stream === undefined) throw new StreamError('refused', 'nobody may connect to this port now');
  return stream;
}

const UNEXPECTED: Refusal = { leg: 'link', detail: 'the control plane that has the links has failed' };

function wireOf(socket: Socket, end: { dialled: boolean; head: Buffer }): Duplex {
  socket.setNoDelay(true);
  // The streams send no pings. A control plane without power would leave them open for ever.
  socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  return streamDuplex(socket, end);
}
