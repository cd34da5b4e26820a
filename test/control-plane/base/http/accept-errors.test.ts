// A listener that cannot accept a connection, for example because the process has no free file descriptor: it goes on, and the log says so.
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer, type Server } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { logAcceptErrors } from '../../../../shared/accept-errors.ts';
import { openPublicPorts } from '../../../../control-plane/rental/edge/public-ports.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { createLog, type Log } from '../../../../shared/log.ts';
import { freePort } from '../../../kit/ports.ts';
import { openBench } from './fixture.ts';
import { openProxiedApp } from '../../rental/proxied-app.ts';

const NOT_ACCEPTED = 'a connection could not be accepted; if the reason is EMFILE, raise LimitNOFILE of this service';
const FULL = Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' });
/** Node tells here of each server that listens. */
const LISTENS = 'tracing:net.server.listen:asyncEnd';

let servers: Server[];
const onListens = (message: unknown): void => void servers.push((message as { server: Server }).server);
beforeEach(() => {
  servers = [];
  subscribe(LISTENS, onListens);
});
afterEach(() => void unsubscribe(LISTENS, onListens));

const logOf = (lines: string[]): Log => createLog('test', 'info', { write: (line) => void lines.push(line) });

describe('a connection that cannot be accepted ends nothing', () => {
  test('on a public port', async () => {
    const [port, lines] = [await freePort(), [] as string[]];
    const ports = openPublicPorts({
      clock: systemClock(),
      log: logOf(lines),
      host: '127.0.0.1',
      trustProxy: [],
      db: { read: { all: async () => [], one: async () => undefined } },
      endpoints: { openEndpoints: async () => [{ instance_id: 'i', ssh_port: port, tcp_ports: [] }] },
      streams: { ask: async () => undefined },
    });
    await ports.sync();
    const open = servers.filter(({ listening }) => listening);
    expect(open).toHaveLength(1);
    for (const server of [...open, ...open]) server.emit('error', FULL);
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      expect.objectContaining({ port, instance_id: 'i', msg: NOT_ACCEPTED }),
    ]);
    expect(ports.listens('i')).toBe(true);
    await ports.close(0);
  });

  test('on the listener of the API', async () => {
    const lines: string[] = [];
    const bench = await openBench({ log: logOf(lines) });
    const { port } = await bench.http.listen({ host: '127.0.0.1', port: 0 });
    expect(servers).toHaveLength(1);
    for (const server of servers) server.emit('error', FULL);
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual([
      expect.objectContaining({ port, msg: NOT_ACCEPTED }),
    ]);
    await bench.close();
  });

  test('on the listener of the applications', async () => {
    const proxied = await openProxiedApp();
    const front = servers.filter((server) => server !== proxied.app);
    expect(front).toHaveLength(1);
    for (const server of front) server.emit('error', FULL);
    expect(proxied.lines).toEqual([expect.stringContaining(NOT_ACCEPTED)]);
    await proxied.close();
  });
});

test('errors of one listener write a line a minute, which says how many there were', () => {
  const lines: string[] = [];
  let nowMs = 0;
  const server = createServer();
  logAcceptErrors(server, { port: 1 }, { log: logOf(lines), clock: { monotonicMs: () => nowMs } });
  for (const atMs of [0, 1, 59_999, 60_000]) {
    nowMs = atMs;
    server.emit('error', FULL);
  }
  expect(lines.map((line) => (JSON.parse(line) as { suppressed_lines?: number }).suppressed_lines)).toEqual([0, 2]);
});
