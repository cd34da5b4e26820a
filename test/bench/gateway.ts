// The delay that the gateway adds to a chat, and its throughput. The service checks, holds and bills each chat durably. The peers only pass
// chats on to the same model server: nginx, the fastest program that Node can be, and Portkey, a gateway of the same kind.
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import Database from 'better-sqlite3';
import { MODEL, openStage, type Stage, type Way } from './gateway/stage.ts';
import { installMissing } from '../kit/setup.ts';
import { median, report, shuffled, type Target } from './measure.ts';
import { processorUs, residentMb } from './processes.ts';
import type { Answer } from './side.ts';

const ROUNDS = 3;
const COMMITS = 200;
/** The limit for what is added to its two commits. */
const CHAT_ADDED_MS_MAX = 0.6;
const FIRST_EVENT_ADDED_MS_MAX = 5;
const OPEN_STREAMS = 1_000;
const OPEN_STREAMS_MB_MAX = 200;
const PACED_EVENTS_PER_PROCESSOR_SECOND_MIN = 20_000;
/** The number of events in a paced answer. */
const EVENTS = 50;

interface Work {
  what: string;
  /** A chat whose text the model server knows. */
  stream: boolean;
  text: string;
  connections: number;
  count: number;
  /** Chats before the measured ones. A service is at work for weeks, and its first thousands run code that is not compiled yet. */
  warmUp: number;
  peers: readonly Way[];
  /** Chats a second, against these peers. */
  targets?: Partial<Record<Way, Target>>;
}

const WHOLE = { stream: false, text: 'hi' };
const PASSERS = ['nginx', 'bare Node'] as const;
const ONE: Work = {
  ...WHOLE,
  what: 'whole answers, one after another',
  connections: 1,
  count: 200,
  warmUp: 50,
  peers: PASSERS,
};
const MANY: Work = {
  ...WHOLE,
  what: 'whole answers, 32 connections',
  connections: 32,
  count: 2_000,
  warmUp: 4_000,
  peers: [...PASSERS, 'Portkey'],
  targets: { 'bare Node': { rule: 'at least', ratio: 0.6 }, Portkey: { rule: 'at least', ratio: 3 } },
};
const BURSTS: Work = {
  what: 'streams of 50 events at once, 32 connections',
  stream: true,
  text: 'hi',
  connections: 32,
  count: 640,
  warmUp: 1_000,
  // Portkey fails on streams with the versions of Node that we run on.
  peers: PASSERS,
  targets: { 'bare Node': { rule: 'at least', ratio: 0.5 } },
};
const PACED: Work = {
  what: 'streams of 50 events in a second, 20 connections',
  stream: true,
  text: 'paced',
  connections: 20,
  count: 20,
  warmUp: 20,
  peers: PASSERS,
};

export async function benchGateway(): Promise<void> {
  const missing = installMissing(['nginx', 'openssl'], console.log);
  if (missing.length > 0) return console.log(`gateway: not measured, ${missing.join(', ')} is missing here`);
  const stage = await openStage();
  try {
    // The busy loads come first: they compile what the single chats run.
    for (const work of [MANY, BURSTS]) compare(work, await measure(stage, work));
    const commitsMs = 2 * bareCommitMs(stage.dir);
    const added = addedMs(await measure(stage, ONE), 'p50Ms');
    reportMost('added to one chat beyond its two commits, p50', added - commitsMs, CHAT_ADDED_MS_MAX, 'ms');
    const first = addedMs(await measure(stage, PACED), 'firstP50Ms');
    reportMost('added to the first event of 20 paced streams, p50', first, FIRST_EVENT_ADDED_MS_MAX, 'ms');
    await benchOpenStreams(stage);
  } finally {
    await stage.close();
  }
}

type Figures = Record<string, Record<string, number>>;

/** The medians of some rounds, for each way. */
async function measure(stage: Stage, work: Work): Promise<Figures> {
  const ways: Way[] = ['direct', 'gateway', ...work.peers];
  const answers = new Map<Way, Answer[]>(ways.map((way) => [way, []]));
  for (const way of ways) await load(stage, way, { ...work, count: work.warmUp });
  for (let round = 0; round < ROUNDS; round += 1)
    for (const way of shuffled(ways)) answers.get(way)?.push(await load(stage, way, work));
  const figures = ['perSecond', 'p50Ms', 'p99Ms', 'firstP50Ms', 'processorUs'];
  const medians = (all: readonly Answer[]): [string, number][] =>
    figures.map((name) => [name, median(all.map((answer) => answer[name] ?? Number.NaN))]);
  return Object.fromEntries([...answers].map(([way, all]) => [way, Object.fromEntries(medians(all))]));
}

function addedMs(figures: Figures, name: string): number {
  for (const [way, each] of Object.entries(figures)) console.log(`  ${way}: ${each[name]?.toFixed(2)} ms`);
  return (figures['gateway']?.[name] ?? Number.NaN) - (figures['direct']?.[name] ?? Number.NaN);
}

function compare({ what, peers, targets = {} }: Work, figures: Figures): void {
  for (const peer of peers) {
    const of = (way: Way): number => figures[way]?.['perSecond'] ?? Number.NaN;
    const target = targets[peer];
    const compared = { what, ours: of('gateway'), peer: of(peer), peerName: peer, unit: '/s' };
    report(target === undefined ? compared : { ...compared, target });
  }
  const used = Object.entries(figures).map(([way, { processorUs: us = Number.NaN }]) => `${way} ${us.toFixed(0)}`);
  console.log(
    `  microseconds of processor for each: ${used.join(', ')}; p99 ${figures['gateway']?.['p99Ms']?.toFixed(1)} ms`,
  );
}

/** Memory while many streams are open, and what an event of a slow stream costs. */
async function benchOpenStreams(stage: Stage): Promise<void> {
  const pid = stage.pids.gateway;
  let memoryMb = residentMb(pid);
  const watch = setInterval(() => (memoryMb = Math.max(memoryMb, residentMb(pid))), 100);
  const streams = { ...PACED, connections: OPEN_STREAMS, count: OPEN_STREAMS };
  const { processorUs: us = Number.NaN } = await load(stage, 'gateway', streams);
  clearInterval(watch);
  reportMost(`memory with ${OPEN_STREAMS} open streams`, memoryMb, OPEN_STREAMS_MB_MAX, 'MB');
  report({
    what: `events of ${OPEN_STREAMS} paced streams for each second of processor`,
    ours: (EVENTS * 1e6) / us,
    peer: PACED_EVENTS_PER_PROCESSOR_SECOND_MIN,
    peerName: 'the required',
    unit: '/s',
    target: { rule: 'at least', ratio: 1 },
  });
}

function reportMost(what: string, ours: number, most: number, unit: string): void {
  report({ what, ours, peer: most, peerName: 'the allowed', unit, target: { rule: 'at most', ratio: 1 } });
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

async function load(stage: Stage, way: Way, { stream, text, connections, count }: Work): Promise<Answer> {
  const { client, key, origins, pids, headers } = stage;
  const messages = [{ role: 'user', content: text }];
  const body = JSON.stringify({ model: MODEL, messages, max_tokens: 100, ...(stream ? { stream } : {}) });
  const chats = { path: '/v1/chat/completions', key, body, connections, count, headers: JSON.stringify(headers) };
  const beforeUs = processorUs(pids[way]);
  const answer = await client.ask({ kind: 'POST', origin: origins[way], ...chats, status: 200 });
  return { ...answer, processorUs: (processorUs(pids[way]) - beforeUs) / count };
}
