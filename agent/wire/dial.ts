// Dials a data stream that the control plane has requested.
import { createHash } from 'node:crypto';
import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Duplex } from 'node:stream';
import { STREAM_DIAL_MS_MAX, TCP_KEEP_ALIVE_MS } from '../../shared/limits.ts';
import { streamDuplex } from '../../shared/protocol/stream.ts';
import { acceptOf } from '../../shared/protocol/websocket.ts';

/** `url` is ws: or wss:. Rejects if the control plane does not accept the stream. */
export function dialStream({ url, ca }: { url: string; ca: string | null }): Promise<Duplex> {
  // The key need not be secret, only differ per stream, and the URL contains a token that is used once.
  const key = createHash('sha256').update(url).digest().subarray(0, 16).toString('base64');
  const target = new URL(url.replace(/^ws/, 'http'));
  const dial = target.protocol === 'https:' ? requestHttps : requestHttp;
  return new Promise((resolve, reject) => {
    const request = dial(target, {
      agent: false,
      timeout: STREAM_DIAL_MS_MAX,
      headers: { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': key },
      ...(ca === null ? {} : { ca }),
    });
    request.once('timeout', () => request.destroy(new Error('the control plane did not answer in time')));
    request.once('error', reject);
    request.once('response', (response) => {
      response.destroy();
      reject(new Error(`the control plane answered ${response.statusCode} to a stream`));
    });
    request.once('upgrade', (response, socket, head) => {
      if (response.headers['sec-websocket-accept'] !== acceptOf(key)) {
        socket.destroy();
        return reject(new Error('the server that answered is not a WebSocket server'));
      }
      socket.setTimeout(0);
      socket.setNoDelay(true);
      // The stream sends no pings. Without this, a control plane that has vanished would leave the stream open for ever.
      socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
      resolve(streamDuplex(socket, { dialled: true, head }));
    });
    request.end();
  });
}
