// A scripted model server over real HTTP: it answers, stalls, cuts or refuses as a test sets it, and counts callers who leave.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../shared/clock.ts';

export interface FakeAnswer {
  status?: number;
  headers?: Record<string, string>;
  /** Sent as JSON; a string as it is. */
  body?: object | string;
  /** Server-sent events instead of a body; a string as it is. */
  events?: (object | string)[];
  /** The pause between two events, in real time, for those who watch. */
  pauseMs?: number;
  /** The same as bytes, each piece in a packet of its own. */
  pieces?: Uint8Array[];
  /** It waits for this before each piece. */
  between?(): Promise<unknown>;
  /** What follows the last words: the end, silence, or a cut connection. */
  ending?: 'end' | 'stall' | 'cut';
  /** Time in silence before the answer. */
  after?: Promise<unknown>;
}

export interface Asked {
  path: string;
  headers: IncomingMessage['headers'];
  body: Record<string, unknown>;
}

export interface FakeUpstream {
  /** It ends with /v1. */
  baseUrl: string;
  asked: Asked[];
  /** The next requests get these answers, one each. After them it is `usual` again. */
  next(...answers: FakeAnswer[]): void;
  usual: (asked: Asked) => FakeAnswer;
  /** The answer to health checks, which do not count in `asked`. */
  health: FakeAnswer;
  looks: number;
  /** Resolves when `count` requests in total have arrived. */
  came(count: number): Promise<void>;
  /** Resolves when callers have left `count` requests in total before the answer was complete. */
  wereLeft(count: number): Promise<void>;
  /** Requests that callers have left so far. */
  left(): number;
  /** Sends one more event to the request with this number. The first request has the number 1. */
  say(nth: number, event: object): void;
  /** Connections up to now. */
  connections(): number;
  close(): Promise<void>;
}

/** Says hello: 6 tokens of prompt, 3 of answer. */
export const HELLO = {
  id: 'cmpl-of-the-server',
  object: 'chat.completion',
  created: 1,
  model: 'upstream/secret-name',
  system_fingerprint: 'b1-secret',
  timings: { prompt_n: 6 },
  choices: [
    { index: 0, message: { role: 'assistant', content: 'Hello there.' }, finish_reason: 'stop', logprobs: null },
  ],
  usage: { prompt_tokens: 6, completion_tokens: 3, total_tokens: 9, prompt_tokens_details: { cached_tokens: 2 } },
};

/** An answer that says this text every second, without an end. */
export function dripping(clock: Pick<Clock, 'sleep'>, text: string, more: FakeAnswer = {}): FakeAnswer {
  const piece = Buffer.from(text);
  const pieces = Array.from({ length: 1_000 }, () => piece);
  return { pieces, between: () => clock.sleep(1_000), ending: 'stall', ...more };
}

export async function openFakeUpstream(): Promise<FakeUpstream> {
  const planned: FakeAnswer[] = [];
  const sockets = new Set<Socket>();
  const counts = openCounts();
  const responses: ServerResponse[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      if (request.url === '/health') {
        upstream.looks += 1;
        return speak(response, upstream.health, cut);
      }
      const asked = await read(request);
      upstream.asked.push(asked);
      response.once('close', () => {
        if (!response.writableFinished && response.errored === null && !cut.has(response)) counts.add('left');
      });
      responses.push(response);
      counts.add('came');
      await speak(response, planned.shift() ?? upstream.usual(asked), cut);
    })();
  });
  /** Those that it has ended itself. */
  const cut = new WeakSet<ServerResponse>();
  server.on('connection', (socket) => {
    counts.add('connections');
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const upstream: FakeUpstream = {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked: [],
    next: (...answers) => void planned.push(...answers),
    usual: () => ({}),
    health: { body: {} },
    looks: 0,
    came: (count) => counts.reached('came', count),
    wereLeft: (count) => counts.reached('left', count),
    left: () => counts.of('left'),
    say: (nth, event) => void responses[nth - 1]?.write(`data: ${JSON.stringify(event)}\n\n`),
    connections: () => counts.of('connections'),
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return upstream;
}

/** A response that it ends itself goes into `cut`. */
async function speak(response: ServerResponse, answer: FakeAnswer, cut: WeakSet<ServerResponse>): Promise<void> {
  await answer.after;
  if (response.destroyed) return;
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  const { events, pieces = [], body = HELLO, ending = 'end' } = answer;
  const isStream = events !== undefined || answer.pieces !== undefined;
  if (ending !== 'stall' || isStream) {
    const type = isStream ? 'text/event-stream' : 'application/json';
    response.writeHead(answer.status ?? 200, { 'content-type': type, ...answer.headers });
    response.flushHeaders();
  }
  for (const [index, event] of (events ?? []).entries()) {
    // The format allows both forms, and some servers leave the space out.
    const member = index % 2 === 0 ? 'data:' : 'data: ';
    const text = typeof event === 'string' ? event : `${member}${JSON.stringify(event)}\n\n`;
    if (answer.pauseMs !== undefined) await sleep(answer.pauseMs);
    if (gone.signal.aborted) return;
    if (!response.write(text)) await once(response, 'drain', { signal: gone.signal }).catch(() => undefined);
  }
  for (const piece of pieces) {
    await answer.between?.();
    if (gone.signal.aborted) return;
    response.write(piece);
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (ending === 'stall') return;
  if (ending === 'cut') {
    cut.add(response);
    // What was said goes out before.
    await new Promise((resolve) => response.write('', resolve));
    response.destroy();
    return;
  }
  response.end(isStream ? '' : typeof body === 'string' ? body : JSON.stringify(body));
}

async function read(request: IncomingMessage): Promise<Asked> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  const body = JSON.parse(Buffer.concat(pieces).toString()) as Record<string, unknown>;
  return { path: request.url ?? '', headers: request.headers, body };
}

interface Counts {
  add(what: string): void;
  of(what: string): number;
  reached(what: string, count: number): Promise<void>;
}

function openCounts(): Counts {
  const counts = new Map<string, number>();
  let waiting: { what: string; count: number; resolve: () => void }[] = [];
  const of = (what: string): number => counts.get(what) ?? 0;
  return {
    of,
    add: (what) => {
      counts.set(what, of(what) + 1);
      for (const { resolve } of waiting.filter((each) => of(each.what) >= each.count)) resolve();
      waiting = waiting.filter((each) => of(each.what) < each.count);
    },
    reached: (what, count) =>
      of(what) >= count
        ? Promise.resolve()
        : new Promise((resolve) => {
            waiting.push({ what, count, resolve });
          }),
  };
}
