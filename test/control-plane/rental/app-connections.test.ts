// How long connections to applications are kept for reuse.
import { once } from 'node:events';
import { request as sendRequest } from 'node:http';
import { duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { openAppConnections } from '../../../control-plane/rental/edge/app-connections.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

test('a connection that is idle for four seconds is closed', async () => {
  const clock = virtualClock();
  const connections = openAppConnections(clock);
  const [near, far] = duplexPair();
  far.once('data', () => far.write(ANSWER));
  const { agent, release } = connections.lend('i', async () => near);
  const outgoing = sendRequest({ agent }).end();
  const [answer] = await once(outgoing, 'response');
  expect(await text(answer)).toBe('ok');
  release();
  await clock.advance(3_999);
  expect(near.destroyed).toBe(false);
  await clock.advance(1);
  expect(near.destroyed).toBe(true);
});
