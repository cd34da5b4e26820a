// The delay that the gateway adds to a chat, and its throughput. The service checks, holds and bills each chat durably. The peer is nginx,
// which only passes chats on to the same model server.
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import Database from 'better-sqlite3';
import { MODEL, openStage, type Stage, type Way, WAYS } from './gateway/stage.ts';
import { installMissing } from '../kit/setup.ts';
import { median, report, shuffled } from './measure.ts';
import type { Answer } from './side.ts';

const ROUNDS = 3;
const COMMITS = 200;

interface Work {
  what: string;
  /** A chat whose text the model server knows. */
  stream: boolean;
  text: string;
  connections: number;
  count: number;
  /** The figures to print, in this order. */
  figures: readonly { name: string; what: string; unit: string; isAdded?: boolean }[];
}

const PER_SECOND = { name: 'perSecond', what: 'chats', unit: '/s' };
const WORKS: readonly Work[] = [
  {
    what: 'whole answers, one after another',
    stream: false,
    text: 'hi',
    connections: 1,
    count: 200,
    figures: [{ name: 'p50Ms', what: 'p50', unit: 'ms', isAdded: true }],
  },
  {
    what: 'whole answers, 32 connections',
    stream: false,
    text: 'hi',
    connections: 32,
    count: 1_000,
    figures: [PER_SECOND, { name: 'p99Ms', what: 'p99', unit: 'ms' }],
  },
  {
    what: 'streams of 50 events at once, 32 connections',
    stream: true,
    text: 'hi',
    connections: 32,
    count: 320,
    figures: [PER_SECOND, { name: 'p99Ms', what: 'p99', unit: 'ms' }],
  },
  {
    what: 'streams of 50 events in a second, 20 connections',
    stream: true,
    text: 'paced',
    connections: 20,
    count: 20,
    figures: [{ name: 'firstP50Ms', what: 'first event p50', unit: 'ms', isAdded: true }],
  },
];

export async function benchGateway(): Promise<void> {
  const missing = installMissing(['nginx', 'openssl'], console.log);
  if (missing.length > 0) return console.log(`gateway: not measured, ${missing.join(', ')} is missing here`);
  const stage = await openStage();
  try {
    for (const work of WORKS) await compare(stage, work);
    const commitMs = bareCommitMs(stage.dir);
    console.log(
      `a chat is held and settled durably: two commits of bare SQLite here take ${(2 * commitMs).toFixed(2)} ms`,
    );
  } finally {
    await stage.close();
  }
}

/** Median of a single row, as durable as the service's own. */
function bareCommitMs(dir: string): number {
  const database = new Database(join(dir, 'bare.db'));
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  database.exec('create table rows (id integer)');
  const insert = database.prepare('insert into rows values (?)');
  const times = Array.from({ length: COMMITS }, (_, i) => {
    const startMs = performance.now();
    insert.run(i);
    return performance.now() - startMs;
  });
  database.close();
  return median(times);
}

async function compare(stage: Stage, work: Work): Promise<void> {
  const answers: Record<Way, Answer[]> = { direct: [], nginx: [], gateway: [] };
  for (const way of WAYS) await load(stage, way, { ...work, count: Math.ceil(work.count / 4) });
  for (let round = 0; round < ROUNDS; round += 1)
    for (const way of shuffled(WAYS)) answers[way].push(await load(stage, way, work));
  for (const { name, what, unit, isAdded = false } of work.figures) {
    const of = (way: Way): number => median(answers[way].map((answer) => answer[name] ?? Number.NaN));
    const [ours, peer, direct] = [of('gateway'), of('nginx'), of('direct')];
    report({ what: `${work.what}: ${what}`, ours, peer, peerName: 'nginx', unit });
    if (isAdded)
      console.log(
        `  added to the model server: ${(ours - direct).toFixed(2)} ms, nginx ${(peer - direct).toFixed(2)} ms`,
      );
  }
}

function load({ client, key, origins }: Stage, way: Way, { stream, text, connections, count }: Work): Promise<Answer> {
  const messages = [{ role: 'user', content: text }];
  const body = JSON.stringify({ model: MODEL, messages, max_tokens: 100, ...(stream ? { stream } : {}) });
  const path = '/v1/chat/completions';
  return client.ask({ kind: 'POST', origin: origins[way], path, key, body, connections, count, status: 200 });
}
