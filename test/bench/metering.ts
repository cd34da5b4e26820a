// One metering tick over 100,000 running instances, and how long GET /v1/balance takes over a socket meanwhile, on both databases.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startPostgres } from '../kit/postgres.ts';
import { installMissing } from '../kit/setup.ts';
import { createDatabase } from './database.ts';
import { report, type Target } from './measure.ts';
import { type Answer, type Order, type Side, startSide } from './side.ts';

const INSTANCES = 100_000;
const TICK_MS_MAX = 10_000;
const P99_MS_MAX = 50;
const IDLE_MS = 3_000;
const SERVICE = new URL('./metering/service.ts', import.meta.url);
const CLIENT = new URL('./metering/client.ts', import.meta.url);
const AT_MOST: Target = { rule: 'at most', ratio: 1 };

/** Minutes of the hour at which the ticks run. Everything up to half a minute before the first one is posted. */
const TICKS = [
  { what: 'a tick', minute: 15 },
  // All instances are due, as after an hour in which no tick ran: each is posted, and its hold renewed.
  { what: 'a tick that posts every instance', minute: 15 + 77 },
] as const;

export async function benchMetering(): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-metering-'));
  try {
    await measure('SQLite', join(dir, 'metering.db'));
  } finally {
    rmSync(dir, { recursive: true });
  }
  const missing = installMissing(['initdb'], console.log);
  if (missing.length > 0)
    return console.log(`metering: PostgreSQL is not measured, ${missing.join(', ')} is missing here`);
  const server = await startPostgres({ durable: true });
  try {
    await measure('PostgreSQL', await createDatabase(server.url, 'metering'));
  } finally {
    await server.stop();
  }
}

async function measure(engine: string, url: string): Promise<void> {
  let key = '';
  const onNews = (news: Order): void => void (key = String(news['key']));
  const service = await startSide(SERVICE, { onNews });
  const client = await startSide(CLIENT);
  try {
    await service.ask({ kind: 'open', url, instances: INSTANCES });
    const { port } = await service.ask({ kind: 'listen' });
    const origin = `http://127.0.0.1:${port}`;
    const load = (work: () => Promise<unknown>): Promise<Answer> => underLoad(client, { origin, key }, work);
    await load(() => sleep(IDLE_MS));
    const idle = await load(() => sleep(IDLE_MS));
    for (const { what, minute } of TICKS) {
      let tick: Answer = {};
      const answers = await load(async () => (tick = await service.ask({ kind: 'tick', minute })));
      reportTick(`${what}, ${INSTANCES.toLocaleString('en')} instances, ${engine}`, { tick, answers, idle });
    }
    await service.ask({ kind: 'close' });
  } finally {
    await service.stop();
    await client.stop();
  }
}

async function underLoad(client: Side, order: Omit<Order, 'kind'>, work: () => Promise<unknown>): Promise<Answer> {
  await client.ask({ ...order, kind: 'start' });
  await work();
  return client.ask({ kind: 'stop' });
}

function reportTick(what: string, { tick, answers, idle }: Record<'tick' | 'answers' | 'idle', Answer>): void {
  const of = (answer: Answer, name: string): number => answer[name] ?? Number.NaN;
  const allowed = { peerName: 'the allowed', unit: 'ms', target: AT_MOST };
  report({ what, ours: of(tick, 'ms'), peer: TICK_MS_MAX, ...allowed });
  report({ what: '  p99 of GET /v1/balance meanwhile', ours: of(answers, 'p99Ms'), peer: P99_MS_MAX, ...allowed });
  report({
    what: '  p99',
    ours: of(answers, 'p99Ms'),
    peer: of(idle, 'p99Ms'),
    peerName: 'without a tick',
    unit: 'ms',
  });
  const [count, maxMs] = [of(answers, 'count'), of(answers, 'maxMs')];
  console.log(
    `  ${of(tick, 'posted')} posted, ${of(tick, 'exhausted')} without money; ${count} answers, at most ${maxMs.toFixed(1)} ms`,
  );
}
