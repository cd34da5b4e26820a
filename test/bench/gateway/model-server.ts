// The model server of a gateway bench: answers at once with a fixed text, whole, as a burst of events, or paced like a real model.
import { createServer, type ServerResponse } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { DONE, HELLO_EVENTS, say, stop, usage } from '../../kit/stream-chunks.ts';
import { type Answer, serveOrders } from '../side.ts';

/** The length of an answer. */
const TOKENS = 50;
const PACE_MS = 20;
/** Text in a request that selects this kind of answer. */
const [STREAM, PACED] = ['"stream":true', 'paced'];

const content = 'word '.repeat(TOKENS);
const counted = { prompt_tokens: 6, completion_tokens: TOKENS, total_tokens: 6 + TOKENS };
const message = { role: 'assistant', content };
const WHOLE = JSON.stringify({
  id: 'cmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'm',
  choices: [{ index: 0, message, finish_reason: 'stop' }],
  usage: counted,
});
const text = (event: object | string): string =>
  typeof event === 'string' ? event : `data: ${JSON.stringify(event)}\n\n`;
const EVENTS = [
  ...HELLO_EVENTS.slice(0, 1),
  ...Array.from({ length: TOKENS }, () => say('word ')),
  stop(),
  usage(6, TOKENS),
  DONE,
].map(text);

serveOrders(serve);

async function serve(): Promise<Answer> {
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (piece: string) => (body += piece));
    request.on('end', () => void answer(body, response));
  });
  server.keepAliveTimeout = 600_000;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: (server.address() as AddressInfo).port };
}

async function answer(body: string, response: ServerResponse): Promise<void> {
  if (!body.includes(STREAM)) {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(WHOLE) });
    return void response.end(WHOLE);
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const isPaced = body.includes(PACED);
  for (const event of EVENTS) {
    response.write(event);
    if (isPaced) await sleep(PACE_MS);
  }
  response.end();
}
