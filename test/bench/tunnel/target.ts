// The service behind a tunnel: sends, takes or echoes bytes, as each connection asks.
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { decodeRequest, READY, REQUEST_BYTES, writeBytes } from './load.ts';
import { serveOrders } from '../side.ts';

const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => socket.destroy());
  socket.once('readable', () => {
    const request: Buffer | null = socket.read(REQUEST_BYTES);
    // The client only checked that somebody listens.
    if (request === null) socket.destroy();
    else serve(socket, request);
  });
});
server.listen(0, '127.0.0.1', () => serveOrders(async () => ({ port: (server.address() as AddressInfo).port })));

function serve(socket: Socket, request: Buffer): void {
  const { task, bytes } = decodeRequest(request);
  switch (task) {
    case 'send':
      return writeBytes(socket, bytes);
    case 'echo':
      socket.on('data', (data) => socket.write(data));
      return;
    case 'take': {
      let left = bytes;
      socket.write(READY);
      socket.on('data', (data) => {
        left -= data.length;
        if (left <= 0) socket.end(READY);
      });
    }
  }
}
