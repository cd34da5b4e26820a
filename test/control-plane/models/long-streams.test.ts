// Streams over a real connection: events arrive one by one as the server sends them, and a long stream needs no more memory than a short one.
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Api, openApi } from '../../contract/api.ts';
import { type FakeAnswer, type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { collectGarbage } from '../../kit/garbage.ts';
import { someModels } from '../../kit/models.ts';
import { BEGIN, dataOf, DONE, say, stop, usage } from '../../kit/stream-chunks.ts';

let upstream: FakeUpstream;
let api: Api;
beforeEach(async () => {
  upstream = await openFakeUpstream();
  const upstreams = [{ base_url: upstream.baseUrl, model: 'm', engine: 'vllm' }];
  api = await openApi({ settings: { models: someModels(undefined, { upstreams }) } });
});
afterEach(async () => {
  await api.close();
  await upstream.close();
});

async function open(answer: FakeAnswer): Promise<IncomingMessage> {
  upstream.next(answer);
  const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
  const { key } = await api.account();
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const asking = request({ host: '127.0.0.1', port, path: '/v1/chat/completions', method: 'POST', headers });
  asking.end(JSON.stringify({ model: 'small', messages: [{ role: 'user', content: 'hi' }], stream: true }));
  const [response] = (await once(asking, 'response')) as [IncomingMessage];
  return response;
}

test('each event of a paced stream arrives before the server sends the next one', async () => {
  const response = await open({ events: [BEGIN], ending: 'stall' });
  let text = '';
  response.on('data', (piece: Buffer) => (text += piece.toString()));
  const received = async (count: number): Promise<void> => {
    while (dataOf(text).length < count) await once(response, 'data');
  };
  // The first chunk has the role.
  await received(1);
  for (let i = 1; i <= 50; i += 1) {
    upstream.say(1, say(`word ${i}`));
    await received(1 + i);
    expect(text).toContain(`word ${i}"`);
  }
  response.destroy();
  await upstream.wereLeft(1);
});

/** Bytes of live JavaScript objects and of buffers. */
async function memory(): Promise<number> {
  collectGarbage();
  await setImmediate();
  collectGarbage();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

/** Numbers of events. */
const MEASURED_AT = [1_000, 9_000];

test('a stream of 10,000 events needs no more memory near its end than after 1,000 of them', async () => {
  const counted = { usage: { prompt_tokens: 6, completion_tokens: 2 } };
  // One object for all, so that the server itself needs no memory for them.
  const event = say('x'.repeat(2_000), counted);
  const long = Array.from({ length: 10_000 }, () => event);
  const response = await open({ events: [BEGIN, ...long, stop(), usage(6, 3), DONE] });
  const measured: number[] = [];
  let bytes = 0;
  for await (const piece of response) {
    bytes += (piece as Buffer).length;
    if (bytes > (MEASURED_AT[measured.length] ?? Infinity) * 2_000) measured.push(await memory());
  }
  expect(bytes).toBeGreaterThan(10_000 * 2_000);
  const [early = 0, late = Infinity] = measured;
  // The text between is 16 MB.
  expect(late - early).toBeLessThan(8_000_000);
});
