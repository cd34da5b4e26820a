// The connection under a data stream that a holder dials.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import { dialStream } from '../../../agent/wire/dial.ts';
import { TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import { acceptStream } from '../../../shared/protocol/stream.ts';

afterEach(() => vi.restoreAllMocks());

test('a stream asks the kernel to notice a control plane that has vanished', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  server.once('upgrade', (request, _socket, head) => acceptStream(request, request.socket, head));
  const keepAlive = vi.spyOn(Socket.prototype, 'setKeepAlive');
  const { port } = server.address() as AddressInfo;
  const stream = await dialStream({ url: `ws://127.0.0.1:${port}/`, ca: null });
  expect(keepAlive.mock.calls).toEqual([[true, TCP_KEEP_ALIVE_MS]]);
  expect(keepAlive.mock.contexts).toEqual([expect.objectContaining({ remotePort: port })]);
  stream.destroy();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
