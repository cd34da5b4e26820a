// The customers of the metering bench: some connections that each ask for the balance, wait a little and ask again.
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';
import { percentile, timeMs } from '../measure.ts';
import { type Answer, type Order, serveOrders } from '../side.ts';

const CONNECTIONS = 8;
/** A loop without it would measure how long the requests wait for each other. */
const PAUSE_MS = 10;

let running: { waitsMs: number[]; stop(): Promise<void> } | undefined;

serveOrders(async (order): Promise<Answer> => {
  if (order.kind === 'start') {
    running = start(order);
    return {};
  }
  await running?.stop();
  const waitsMs = running?.waitsMs ?? [];
  return {
    count: waitsMs.length,
    p50Ms: percentile(waitsMs, 0.5),
    p99Ms: percentile(waitsMs, 0.99),
    maxMs: Math.max(...waitsMs),
  };
});

function start({ origin, key }: Order): NonNullable<typeof running> {
  const pool = new Pool(String(origin), { connections: CONNECTIONS, pipelining: 1 });
  const headers = { authorization: `Bearer ${String(key)}` };
  const waitsMs: number[] = [];
  let isOver = false;
  const ask = async (): Promise<void> => {
    const answer = await pool.request({ method: 'GET', path: '/v1/balance', headers });
    const text = await answer.body.text();
    if (answer.statusCode !== 200) throw new Error(`GET /v1/balance: ${answer.statusCode} ${text}`);
  };
  const caller = async (): Promise<void> => {
    while (!isOver) {
      waitsMs.push(await timeMs(ask));
      await sleep(PAUSE_MS);
    }
  };
  const ended = Promise.all(Array.from({ length: CONNECTIONS }, caller));
  return {
    waitsMs,
    stop: async () => {
      isOver = true;
      await ended;
      await pool.close();
    },
  };
}
