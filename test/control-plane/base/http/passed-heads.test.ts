// The longest head of a request is the same through the primary and through a secondary, which adds headers of its own.
import { once } from 'node:events';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { HEADER_BYTES_MAX } from '../../../../shared/limits.ts';
import { begin, openPlanes, type Planes } from './two-control-planes.ts';

let planes: Planes;
beforeEach(async () => {
  planes = await openPlanes();
  planes.primary.http.onUpgrade('/agent/', ({ socket }) => void socket.end(AGREED));
  planes.secondary.http.onUpgrade('/agent/', ({ socket }) => void socket.end('HTTP/1.1 418 Here\r\n\r\n'));
});
afterEach(() => planes.close());

const AGREED = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n';

/** `bytes`: the path, the names and the values of the headers together, as the limit counts them. */
function headOf(bytes: number, path: string, headers: Record<string, string>): string {
  const known = [path, 'X-Long', ...Object.entries(headers).flat()].join('').length;
  const all = Object.entries({ ...headers, 'X-Long': 'x'.repeat(bytes - known) });
  return `GET ${path} HTTP/1.1\r\n${all.map((pair) => `${pair.join(': ')}\r\n`).join('')}\r\n`;
}

const request = (bytes: number): string => headOf(bytes, '/v1/who', { Host: 'x', Connection: 'close' });
const upgrade = (bytes: number): string =>
  headOf(bytes, '/agent/v1', { Host: 'x', Connection: 'Upgrade', Upgrade: 'echo' });

test.each([
  ['a request that has the longest head', request(HEADER_BYTES_MAX), '200'],
  ['a request whose head is a byte longer', request(HEADER_BYTES_MAX + 1), '431'],
  ['an upgrade that has the longest head', upgrade(HEADER_BYTES_MAX), '101'],
  ['an upgrade whose head is a byte longer', upgrade(HEADER_BYTES_MAX + 1), '431'],
])('%s gets the same status through both', async (_what, head, status) => {
  const statuses: unknown[] = [];
  for (const port of [planes.primaryPort, planes.port]) {
    const { socket } = begin(port, head);
    const [first] = (await once(socket, 'data')) as [Buffer];
    statuses.push(String(first).split(' ', 2)[1]);
    socket.destroy();
  }
  expect(statuses).toEqual([status, status]);
});
