// A socket of the agent that cannot accept a connection, for example because the process has no free file descriptor: the process goes on.
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { mkdtempSync, rmSync } from 'node:fs';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createListeners } from '../../agent/guest/connections.ts';
import { openGuests } from '../../agent/holder/guest-connection.ts';
import { openStatusSocket, hasListener } from '../../agent/host/status-socket.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { seededRng } from '../../shared/rng.ts';
import { virtualClock } from '../kit/virtual-clock.ts';

const FULL = Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' });
/** Node tells here of each server that listens. */
const LISTENS = 'tracing:net.server.listen:asyncEnd';

let dir: string;
let servers: Server[];
const onListens = (message: unknown): void => void servers.push((message as { server: Server }).server);
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'accept-'));
  servers = [];
  subscribe(LISTENS, onListens);
});
afterEach(() => {
  unsubscribe(LISTENS, onListens);
  rmSync(dir, { recursive: true });
});

test('the socket of a holder for its guest goes on, and the log says so once a minute', async () => {
  const lines: string[] = [];
  const clock = virtualClock();
  const log = createLog('test', 'error', { write: (line) => void lines.push(line) });
  const path = join(dir, 'guest.sock');
  const guests = await openGuests(path, {
    clock,
    ids: createIds(clock, seededRng(1)),
    log,
    onChange: () => undefined,
  });
  expect(servers).toHaveLength(1);
  for (const server of [...servers, ...servers, ...servers]) server.emit('error', FULL);
  expect(lines).toEqual([expect.stringContaining('could not be accepted')]);
  expect(await hasListener(path)).toBe(true);
  await guests.close();
});

test('the socket of the supervisor for its operator goes on', async () => {
  const socket = await openStatusSocket(dir, () => undefined);
  expect(servers).toHaveLength(1);
  for (const server of [...servers, ...servers, ...servers]) server.emit('error', FULL);
  expect(await hasListener(join(dir, 'agent.sock'))).toBe(true);
  await socket.close();
});

test('a port that a client forwards to itself stays open', async () => {
  const path = join(dir, 'session.sock');
  const sessions = createServer().listen(path);
  const client = connect(path);
  const [session] = (await once(sessions, 'connection')) as [Socket];
  await once(client, 'connect');
  createListeners(virtualClock()).listen(session, 0);
  await once(client, 'data');
  const forwarded = servers.filter((server) => server !== sessions);
  expect(forwarded).toHaveLength(1);
  for (const server of [...forwarded, ...forwarded]) server.emit('error', FULL);
  expect([forwarded.map(({ listening }) => listening), session.writable]).toEqual([[true], true]);
  client.destroy();
  await Promise.all(forwarded.map((server) => once(server, 'close')));
  sessions.close();
});
