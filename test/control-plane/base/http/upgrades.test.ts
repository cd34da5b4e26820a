// Connections that leave HTTP behind: Node watches over them no more, so we must.
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { openBench } from './fixture.ts';

test('a caller who resets its connection while an upgrade is refused ends nothing but that', async () => {
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  process.on('uncaughtExceptionMonitor', note);
  const own = await openBench();
  const answered = Promise.withResolvers<void>();
  own.http.onUpgrade('/agent/', (_request, socket) => {
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
