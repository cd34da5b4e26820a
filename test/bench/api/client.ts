// The customers of an API bench: connections that each send their next request when the last was answered.
import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { Pool } from 'undici';
import { percentile, timeMs } from '../measure.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';

serveOrders(load);

/**
 * Sends `count` equal requests over `connections`; every one must be answered with `status`. The connections share the keys. `headers` are
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
  let characters = 0;
  const send = async (startMs: number, caller: number): Promise<void> => {
    const authorization = `Bearer ${keys[caller % keys.length]}`;
    const headers = { authorization, 'idempotency-key': randomUUID(), ...more };
    const post = { body, headers: { ...headers, 'content-type': 'application/json' } };
    const answer = await pool.request({ method: order.kind, path, headers, ...(body === '' ? {} : post) });
    let text = '';
    for await (const piece of answer.body) {
      if (text === '') firstsMs.push(performance.now() - startMs);
      text += String(piece);
    }
    characters += text.length;
    if (answer.statusCode !== status) throw new Error(`${order.kind} ${path}: ${answer.statusCode} ${text}`);
  };
  const call = async (_: unknown, caller: number): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const startMs = performance.now();
      await send(startMs, caller);
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
    characters: characters / waitsMs.length,
  };
}

function texts(order: Order): Record<'origin' | 'path' | 'key' | 'body' | 'headers', string> {
  const text = (name: string): string => String(order[name] ?? '');
  return { origin: text('origin'), path: text('path'), key: text('key'), body: text('body'), headers: text('headers') };
}
