// The control plane's part of the data path, on its real code: the SSH endpoint and the streams that hosts dial.
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer, type Server } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { openStreams } from '../../../control-plane/fleet/link/streams.ts';
import { openPortStreams } from '../../../control-plane/rental/edge/port-streams.ts';
import { openPublicPorts } from '../../../control-plane/rental/edge/public-ports.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import { countBuffersWithHeap } from '../../../control-plane/base/systemd/v8.ts';
import { STREAMS_PATH } from '../../../shared/protocol/link.ts';
import { systemRng } from '../../../shared/rng.ts';
import { serveOrders, tellParent, type Answer, type Order } from '../side.ts';

const MACHINE = 'm';

// main.ts does the same.
countBuffersWithHeap();
serveOrders(open);

/** `port` is where users come in; with `cert` and `key` (files) the host dials over TLS. */
async function open(order: Order): Promise<Answer> {
  const clock = systemClock();
  const streams = openStreams({ clock, ids: createIds(clock, systemRng()) });
  const { cert, key } = order;
  const tls = typeof cert === 'string' && typeof key === 'string';
  const server: Server = tls
    ? createHttpsServer({ cert: readFileSync(cert), key: readFileSync(key) })
    : createHttpServer();
  server.on('upgrade', (request, socket, head) =>
    streams.onUpgrade({ request, socket, head, clientIp: '127.0.0.1', proven: () => undefined }),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const endpoints = openPublicPorts({
    clock,
    log: createLog('bench', 'warn'),
    host: '127.0.0.1',
    // The load is many clients, all at one address.
    trustProxy: ['127.0.0.1'],
    db: { read: { all: async () => [], one: async () => undefined } },
    endpoints: { openEndpoints: async () => [{ instance_id: 'i', ssh_port: Number(order['port']), tcp_ports: [] }] },
    streams: openPortStreams({
      clock,
      access: async () => ({ machineId: MACHINE, workloadId: 'w', authorizedKeys: [] }),
      link: {
        isBehind: () => false,
        openStream: async (machineId) => {
          const { token, dialled } = streams.expect(machineId);
          const url = `${tls ? 'wss' : 'ws'}://127.0.0.1:${port}${STREAMS_PATH}${token}`;
          tellParent({ kind: 'dial', url });
          return dialled;
        },
      },
    }),
  });
  await endpoints.sync();
  return {};
}
