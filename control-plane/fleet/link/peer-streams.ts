// Streams for a control plane that has no links: it asks the primary, which has them. `peer-wire.ts` explains the request and the answers.
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { parseJson } from '../../../shared/json.ts';
import { STREAM_DIAL_MS_MAX } from '../../../shared/limits.ts';
import { breakIfReplaced, type Peer } from '../../base/http/peers.ts';
import type { Sealing } from '../../base/http/sealing.ts';
import { readText } from '../../base/outbound/outbound.ts';
import type { Link } from './link.ts';
import {
  PEER_PROTOCOL,
  PEER_STREAMS_PATH,
  type PeerPort,
  PeerRefusal,
  type PeerRequest,
  SCHEME,
  SEALED_CHARS_MAX,
  sealRequest,
  streamOver,
  VALUES_MAX,
} from './peer-wire.ts';
import { StreamError } from './streams.ts';

const ID_BYTES = 12;
/** The primary waits for the host. The rest is for the way to the primary and back. */
const OPEN_MS_MAX = STREAM_DIAL_MS_MAX + 5_000;
/** Longest refusal: the words of a host have at most some hundred characters. */
const REFUSAL_BYTES_MAX = 16 * 1024;

const REFUSED = 403;
/** What a 403 most likely means. The primary gives no reason, because anyone can ask. */
const CLOCKS = 'the wall clocks of the two may differ by more than a minute';

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
  const ask = async (asks: PeerRequest['asks'], gone?: AbortSignal): Promise<Duplex> => {
    const to = primary();
    if (to === undefined) throw new StreamError('link', 'no control plane has the links at the moment');
    const sealed = sealRequest(sealing, to.id, { id: ids.secret(ID_BYTES), at_ms: clock.now(), asks });
    if (sealed.length > SEALED_CHARS_MAX) throw new StreamError('link', 'the target is too long for a request');
    const stream = await dial(to, sealed, gone, clock);
    breakIfReplaced(stream, () => primary()?.id === to.id, clock);
    return stream;
  };
  return {
    openStream: (machineId, workloadId, target) => ask({ machine_id: machineId, workload_id: workloadId, target }),
    openPort: ask,
  };
}

/**
 * Sends a sealed request to the primary, and waits for the stream.
 * @throws StreamError if the primary refuses, cannot be reached, is no control plane or takes longer than OPEN_MS_MAX, or once `gone` aborts
 */
function dial(
  to: Peer,
  sealed: string,
  gone: AbortSignal | undefined,
  clock: PeerStreamsDeps['clock'],
): Promise<Duplex> {
  const url = new URL(PEER_STREAMS_PATH, to.url);
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
  const headers = { connection: 'Upgrade', upgrade: PEER_PROTOCOL, authorization: `${SCHEME}${sealed}` };
  return new Promise((resolve, reject) => {
    const request = send(url, { agent: false, headers });
    const cancelTimeout = clock.after(OPEN_MS_MAX, () =>
      fail(new StreamError('link', 'the control plane that has the links did not answer in time')),
    );
    const onGone = (): void => {
      reset(request.socket);
      fail(new StreamError('link', 'the client has left'));
    };
    const stopWaiting = (): void => {
      cancelTimeout();
      gone?.removeEventListener('abort', onGone);
    };
    const fail = (error: StreamError): void => {
      stopWaiting();
      reject(error);
      request.destroy();
    };
    gone?.addEventListener('abort', onGone);
    request.once('upgrade', (response, socket, head) => {
      if (response.headers.upgrade !== PEER_PROTOCOL) return fail(unusable('speaks another protocol'));
      stopWaiting();
      resolve(streamOver(socket, { dialled: true, head }));
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
    const { leg, detail } = PeerRefusal.parse(parseJson(await readText(response, REFUSAL_BYTES_MAX), VALUES_MAX));
    return new StreamError(leg, detail);
  } catch {
    return unusable(status === REFUSED ? `answered ${status}: ${CLOCKS}` : `answered ${status}`);
  }
}
