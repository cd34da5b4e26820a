// The host's end of the data path: dials a stream as the holder does and carries its bytes to the target.
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { pipeline } from 'node:stream';
import WebSocket from 'ws';
import { STREAM_MESSAGE_BYTES_MAX } from '../../../shared/limits.ts';
import { STREAM_SOCKET_OPTIONS, streamDuplex } from '../../../shared/protocol/stream.ts';
import { serveOrders } from '../side.ts';

serveOrders(async ({ url, ca, port }) => {
  const socket = new WebSocket(String(url), {
    ...STREAM_SOCKET_OPTIONS,
    maxPayload: STREAM_MESSAGE_BYTES_MAX,
    ...(ca === undefined ? {} : { ca: readFileSync(ca) }),
  });
  socket.once('open', () => {
    const stream = streamDuplex(socket);
    const target = connect({ host: '127.0.0.1', port: Number(port), allowHalfOpen: true, noDelay: true });
    const onEnd = (error: NodeJS.ErrnoException | null): void => {
      if (!error) return;
      stream.destroy();
      target.destroy();
    };
    pipeline(stream, target, onEnd);
    pipeline(target, stream, onEnd);
  });
  await new Promise((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  return {};
});
