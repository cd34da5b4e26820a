// How long connections to applications are kept for reuse.
import { once } from 'node:events';
import { type ClientRequest, request as sendRequest } from 'node:http';
import { type Duplex, duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { openAppConnections } from '../../../control-plane/rental/edge/app-connections.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const ANSWER = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

test('requests to one port never wait for each other', async () => {
  const connections = openAppConnections(virtualClock());
  let dials = 0;
  const dial = async (): Promise<Duplex> => {
    dials += 1;
    return duplexPair()[0];
  };
  const sent: ClientRequest[] = [];
  for (let open = 1; open <= 300; open += 1) {
    const outgoing = sendRequest({ agent: connections.lend('i', dial).agent }).end();
    sent.push(outgoing.on('error', () => undefined));
    await expect.poll(() => dials).toBe(open);
  }
  for (const outgoing of sent) outgoing.destroy();
  connections.close();
});

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
