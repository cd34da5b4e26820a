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

/** Minutes after the beginning of an hour. What was due half a minute before the first tick is posted; at the second, every instance is due. */
const TICK_MINUTE = 15;
const BEHIND_MINUTE = TICK_MINUTE + 77;
const BEHIND_MS_MAX = 20_000;
/** The postings of an hour fall due within half an hour. */
const DUE_PER_SECOND = INSTANCES / 1_800;

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
    const ticked = async (minute: number, forMs: number): Promise<Figures> => {
      let tick: Answer = {};
      const answers = await load(async () => (tick = await service.ask({ kind: 'tick', minute, forMs })));
      return { tick, answers, idle };
    };
    const what = `${INSTANCES.toLocaleString('en')} instances, ${engine}`;
    reportTick(`metering tick, ${what}`, await ticked(TICK_MINUTE, 10 * TICK_MS_MAX));
    reportBehind(`postings of a tick that is an hour behind, ${what}`, await ticked(BEHIND_MINUTE, BEHIND_MS_MAX));
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

type Figures = Record<'tick' | 'answers' | 'idle', Answer>;

function reportTick(what: string, figures: Figures): void {
  const allowed = { peerName: 'the allowed', unit: 'ms', target: AT_MOST };
  report({ what, ours: of(figures.tick, 'ms'), peer: TICK_MS_MAX, ...allowed });
  const p99 = { what: '  p99 of GET /v1/balance meanwhile', ours: of(figures.answers, 'p99Ms') };
  report({ ...p99, peer: P99_MS_MAX, ...allowed });
  reportIdle(figures);
}

function reportBehind(what: string, figures: Figures): void {
  const perSecond = (of(figures.tick, 'posted') / of(figures.tick, 'ms')) * 1000;
  report({
    what,
    ours: perSecond,
    peer: DUE_PER_SECOND,
    peerName: 'what falls due',
    unit: '/s',
    target: { rule: 'at least', ratio: 2 },
  });
  reportIdle(figures);
}

function reportIdle({ tick, answers, idle }: Figures): void {
  const p99 = { what: '  p99 of GET /v1/balance', ours: of(answers, 'p99Ms'), peer: of(idle, 'p99Ms'), unit: 'ms' };
  report({ ...p99, peerName: 'without a tick' });
  const [posted, exhausted] = [of(tick, 'posted'), of(tick, 'exhausted')];
  const maxMs = of(answers, 'maxMs').toFixed(1);
  console.log(
    `  ${posted} posted, ${exhausted} without money; ${of(answers, 'count')} answers, the slowest took ${maxMs} ms`,
  );
}

function of(answer: Answer, name: string): number {
  return answer[name] ?? Number.NaN;
}
