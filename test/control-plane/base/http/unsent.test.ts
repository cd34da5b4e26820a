// Answers that callers do not read: their connections are closed, and those of callers who wait or read are not.
import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openUnsent, type Unsent } from '../../../../control-plane/base/http/unsent.ts';
import { createLog, throttledLog } from '../../../../shared/log.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

/** More than the network takes from a caller that does not read. */
const LARGE = Buffer.alloc(32 * 1_048_576);
const PAUSE_BYTES = 4 * 1_048_576;

let server: Server;
let lines: string[];
let onRequest: (response: ServerResponse) => unknown;
beforeEach(async () => {
  lines = [];
  server = createServer((_request, response) => void onRequest(response));
  await once(server.listen(0, '127.0.0.1'), 'listening');
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const open = (limits: { bytesMax?: number; stalledMs?: number }): Unsent => {
  const log = createLog('test', 'warn', { write: (line) => void lines.push(line) });
  return openUnsent(log, { bytesMax: 1e9, stalledMs: 1e9, ...limits });
};
/** Asks, and reads nothing of the answer yet. */
async function ask(): Promise<IncomingMessage> {
  const { port } = server.address() as AddressInfo;
  const asked = request({ port, host: '127.0.0.1', agent: false }).end();
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  return answer.on('error', () => undefined);
}
async function bytesOf(answer: IncomingMessage): Promise<number> {
  let bytes = 0;
  for await (const piece of answer as AsyncIterable<Buffer>) bytes += piece.length;
  return bytes;
}

describe('a connection', () => {
  test('is closed if its caller takes nothing of an answer', async () => {
    const unsent = open({ stalledMs: 50 });
    let closed: Promise<unknown> | undefined;
    onRequest = (response) => {
      unsent.watch(response);
      closed = once(response, 'close');
      response.end(LARGE);
    };
    await ask();
    await closed;
  });

  test('stays open while its caller waits for the answer, or reads it slowly', async () => {
    const unsent = open({ stalledMs: 1_000 });
    onRequest = async (response) => {
      unsent.watch(response);
      response.flushHeaders();
      await wait(1_200);
      response.end(LARGE);
    };
    const answer = await ask();
    let bytes = 0;
    for await (const piece of answer as AsyncIterable<Buffer>) {
      const before = bytes;
      bytes += piece.length;
      if (Math.floor(bytes / PAUSE_BYTES) > Math.floor(before / PAUSE_BYTES)) await wait(10);
    }
    expect(bytes).toBe(LARGE.length);
  });
});

describe('large answers that wait', () => {
  test('cost the oldest its connection if they are above the limit together', async () => {
    const unsent = open({ bytesMax: 2 * LARGE.length });
    const ended: number[] = [];
    let count = 0;
    onRequest = (response) => {
      const nth = (count += 1);
      response.once('close', () => void (response.writableFinished || ended.push(nth)));
      unsent.hold(response, LARGE.length);
      response.end(LARGE);
    };
    const answers = [await ask(), await ask()];
    expect(ended).toEqual([]);
    // A caller that has read its answer counts no more.
    expect(await bytesOf(answers[1] ?? (await ask()))).toBe(LARGE.length);
    answers.push(await ask());
    expect(ended).toEqual([]);
    answers.push(await ask());
    await expect.poll(() => ended).toEqual([1]);
    expect(lines.map((line) => (JSON.parse(line) as { waiting: number }).waiting)).toEqual([3]);
    for (const answer of answers.slice(2)) expect(await bytesOf(answer)).toBe(LARGE.length);
  });

  test('do not count below a mebibyte', async () => {
    const unsent = open({ bytesMax: 0 });
    onRequest = (response) => {
      unsent.hold(response, 1_048_575);
      response.end('x');
    };
    expect(await bytesOf(await ask())).toBe(1);
  });

  test.each([
    ['its answer was there', 1],
    ['the answer to its request before was sent', 2],
  ])('do not count for a caller that has left before %s', async (_what, atOnce) => {
    const unsent = open({ bytesMax: LARGE.length });
    const held = Promise.withResolvers<void>();
    let left = atOnce;
    onRequest = async (response) => {
      left -= 1;
      if (left > 0) return;
      await once(response.req.socket, 'close');
      unsent.hold(response, LARGE.length);
      response.end();
      held.resolve();
    };
    const { port } = server.address() as AddressInfo;
    const socket = connect(port, '127.0.0.1');
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(atOnce));
    const [arrived] = (await once(server, 'request')) as [IncomingMessage];
    await expect.poll(() => left).toBe(0);
    socket.destroy();
    await held.promise;
    expect(arrived.socket.destroyed).toBe(true);
    onRequest = (response) => {
      unsent.hold(response, LARGE.length);
      response.end(LARGE);
    };
    expect(await bytesOf(await ask())).toBe(LARGE.length);
    expect(lines).toEqual([]);
  });

  test('of one address write no line for each of their many requests', async () => {
    const log = createLog('test', 'warn', { write: (line) => void lines.push(line) });
    const unsent = openUnsent(throttledLog(log, virtualClock()), { bytesMax: 0, stalledMs: 1e9 });
    onRequest = (response) => unsent.hold(response, LARGE.length);
    for (let i = 0; i < 100; i += 1) await expect(ask()).rejects.toThrow('socket hang up');
    expect(lines).toHaveLength(30);
    expect(lines[0]).toContain('"client_ip":"127.0.0.1"');
  });
});
