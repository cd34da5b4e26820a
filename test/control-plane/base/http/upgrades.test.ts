// Connections that leave HTTP. Node no longer handles their errors, so we must.
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { Upgrade } from '../../../../control-plane/base/http/upgrades.ts';
import { isForgotten } from '../../../kit/garbage.ts';
import { openBench } from './fixture.ts';
import { exchange } from './two-control-planes.ts';

test('a caller who resets its connection while an upgrade is refused closes only that connection', async () => {
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  process.on('uncaughtExceptionMonitor', note);
  const own = await openBench();
  const answered = Promise.withResolvers<void>();
  own.http.onUpgrade('/agent/', ({ socket }) => {
    socket.once('close', answered.resolve);
    socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
  });
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const caller = connect(port, '127.0.0.1', () => {
    caller.write('GET /agent/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n');
    caller.resetAndDestroy();
  });
  await answered.promise;
  expect((await fetch(`http://127.0.0.1:${port}/healthz`)).status).toBe(200);
  process.off('uncaughtExceptionMonitor', note);
  expect(uncaught).toEqual([]);
  await own.close();
});

test('the request of an upgrade is not kept in memory for as long as its connection lasts', async () => {
  const own = await openBench();
  const served = Promise.withResolvers<Pick<Upgrade, 'socket' | 'proven'> & { request: WeakRef<object> }>();
  own.http.onUpgrade('/agent/', ({ request, socket, proven }) =>
    served.resolve({ request: new WeakRef(request), socket, proven }),
  );
  const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
  const caller = connect(port, '127.0.0.1');
  caller.write('GET /agent/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n');
  const { request, socket, proven } = await served.promise;
  expect(await isForgotten(request)).toBe(true);
  proven();
  socket.destroy();
  await own.close();
});

describe('upgrades count against the rate of their address', () => {
  const rateLimits = {
    perKeyPerSecond: 1,
    perIpPerSecond: 1,
    burst: 2,
    inference: { perKeyPerSecond: 1, burst: 1, perOrgPerSecond: 1, orgBurst: 1 },
  };
  const upgrade = (forwarded?: string): string =>
    `GET /agent/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n${
      forwarded === undefined ? '' : `X-Forwarded-For: ${forwarded}\r\n`
    }\r\n`;

  test('a caller that proves nothing is refused after the burst, with the time to wait', async () => {
    const own = await openBench({ http: { rateLimits } });
    let served = 0;
    own.http.onUpgrade('/agent/', ({ socket }) => {
      served += 1;
      socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
    });
    const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
    for (let i = 0; i < 2; i += 1) expect(await exchange(port, upgrade())).toContain('404');
    const refused = await exchange(port, upgrade());
    expect(refused).toContain('HTTP/1.1 429');
    expect(refused.toLowerCase()).toContain('retry-after: 1');
    expect(refused).toContain('rate_limit_exceeded');
    expect(served).toBe(2);
    await own.close();
  });

  test('a caller who has proven itself costs its address nothing', async () => {
    const own = await openBench({ http: { rateLimits } });
    own.http.onUpgrade('/agent/', ({ socket, proven }) => {
      proven();
      socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
    });
    const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
    for (let i = 0; i < 10; i += 1) expect(await exchange(port, upgrade())).toContain('101');
    await own.close();
  });

  test('behind a trusted proxy each client has its own rate, and cannot claim the address of another', async () => {
    const own = await openBench({ http: { rateLimits, trustProxy: ['127.0.0.1'] } });
    const seen: string[] = [];
    own.http.onUpgrade('/agent/', ({ socket, clientIp }) => {
      seen.push(clientIp);
      socket.end('HTTP/1.1 404 Not Found\r\n\r\n');
    });
    const { port } = await own.http.listen({ host: '127.0.0.1', port: 0 });
    // The value that the client itself wrote comes before the value that the proxy added.
    for (const forged of ['192.0.2.1', '192.0.2.2', '192.0.2.3'])
      await exchange(port, upgrade(`${forged}, 198.51.100.7`));
    expect(seen).toEqual(['198.51.100.7', '198.51.100.7']);
    expect(await exchange(port, upgrade('198.51.100.8'))).toContain('404');
    await own.close();
  });
});
