// Streams that break before anybody listens for that: with the very first bytes of their host, or before they are spliced.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { duplexPair } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openStreams, splice, type Streams } from '../../../control-plane/fleet/link/streams.ts';
import { createIds } from '../../../shared/ids.ts';
import { STREAMS_PATH } from '../../../shared/protocol/link.ts';
import { seededRng } from '../../../shared/rng.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

let streams: Streams;
let server: Server;
beforeEach(async () => {
  const clock = virtualClock();
  streams = openStreams({ clock, ids: createIds(clock, seededRng(1)) });
  server = createServer();
  server.on('upgrade', (request, socket, head) =>
    streams.onUpgrade({ request, socket, head, clientIp: '127.0.0.1', proven: () => undefined }),
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

test('a stream that its host breaks in the same packet as its handshake is refused: nobody would see it close', async () => {
  const { token, dialled } = streams.expect('m-1');
  const host = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const handshake = [
    `GET ${STREAMS_PATH}${token} HTTP/1.1`,
    'Host: control-plane',
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    `Sec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}`,
  ];
  // A frame whose opcode does not exist.
  host.write(Buffer.concat([Buffer.from(`${handshake.join('\r\n')}\r\n\r\n`), Buffer.of(0x8f, 0x80, 0, 0, 0, 0)]));
  await expect(dialled).rejects.toMatchObject({ leg: 'dial' });
});

test.each(['the one', 'the other'])(
  'a connection of which %s end is gone before it is spliced is closed whole',
  async (which) => {
    const [[one], [other]] = [duplexPair(), duplexPair()];
    const gone = which === 'the one' ? one : other;
    await once(gone.destroy(), 'close');
    splice(one, other);
    expect([one.destroyed, other.destroyed]).toEqual([true, true]);
  },
);
