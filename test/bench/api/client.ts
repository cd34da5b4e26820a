// The customers of an API bench: connections that each send their next request when the last was answered.
import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { type Dispatcher, Pool } from 'undici';
import { percentile, timeMs } from '../measure.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';

serveOrders(load);

/**
 * Sends `count` equal requests over `connections`; every one must be answered with `status`. Each request has the next key. `headers` are
 * JSON.
 */
async function load(order: Order): Promise<Answer> {
  const { origin, path, key, body, headers: json } = texts(order);
  const keys = key.split(' ');
  const more = json === '' ? {} : (JSON.parse(json) as Record<string, string>);
  const [connections, count, status] = [order['connections'], order['count'], order['status']].map(Number);
  const pool = new Pool(origin, { connections: connections ?? 1, pipelining: 1 });
  let left = count ?? 0;
  const [waitsMs, firstsMs]: [number[], number[]] = [[], []];
  let bytes = 0;
  let sent = 0;
  const send = async (startMs: number): Promise<void> => {
    const authorization = `Bearer ${keys[sent % keys.length]}`;
    sent += 1;
    const headers = { authorization, 'idempotency-key': randomUUID(), ...more };
    const post = { body, headers: { ...headers, 'content-type': 'application/json' } };
    const answer = await answerOf(pool, { method: order.kind, path, headers, ...(body === '' ? {} : post) });
    if (answer.status !== status) {
      throw new Error(`${order.kind} ${path}: ${answer.status} ${Buffer.concat(answer.pieces).toString()}`);
    }
    for (const piece of answer.pieces) bytes += piece.length;
    if (answer.pieces.length > 0) firstsMs.push(answer.firstMs - startMs);
  };
  const call = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const startMs = performance.now();
      await send(startMs);
      waitsMs.push(performance.now() - startMs);
    }
  };
  const ms = await timeMs(() => Promise.all(Array.from({ length: connections ?? 1 }, call)));
  await pool.close();
  return {
    perSecond: (waitsMs.length / ms) * 1000,
    p50Ms: percentile(waitsMs, 0.5),
    p99Ms: percentile(waitsMs, 0.99),
    firstP50Ms: percentile(firstsMs, 0.5),
    bytes: bytes / waitsMs.length,
  };
}

interface Whole {
  status: number;
  pieces: Buffer[];
  /** When the first piece came. */
  firstMs: number;
}

/** Undici's own streams would take several times as much processor time, and the client shares the processors with what it measures. */
function answerOf(pool: Pool, request: Dispatcher.DispatchOptions): Promise<Whole> {
  const { promise, resolve, reject } = Promise.withResolvers<Whole>();
  const answer: Whole = { status: 0, pieces: [], firstMs: 0 };
  pool.dispatch(request, {
    onRequestStart: () => undefined,
    onResponseStart: (_controller, status) => void (answer.status = status),
    onResponseData: (_controller, piece) => {
      if (answer.pieces.push(piece) === 1) answer.firstMs = performance.now();
    },
    onResponseEnd: () => resolve(answer),
    onResponseError: (_controller, error) => reject(error),
  });
  return promise;
}

function texts(order: Order): Record<'origin' | 'path' | 'key' | 'body' | 'headers', string> {
  const text = (name: string): string => String(order[name] ?? '');
  return { origin: text('origin'), path: text('path'), key: text('key'), body: text('body'), headers: text('headers') };
}
