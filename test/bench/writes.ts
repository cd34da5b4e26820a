// Paid requests a second that the database takes, open and close, durable: PostgreSQL with fsync near and far, one process and two, and
// SQLite. The peer is the same work as ordinary transactions, one body each.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startPostgres } from '../kit/postgres.ts';
import { installMissing } from '../kit/setup.ts';
import { median, report, shuffled } from './measure.ts';
import { type Answer, type Side, startSide } from './side.ts';
import { benchLaunches } from './writes/launches.ts';

const ROUNDS = 3;
const FOR_MS = 3_000;
const CALLERS = 64;
/** A round trip of 2 ms, as between two data centres of one region. */
const ONE_WAY_MS = 1;
const PER_SECOND_MIN = 1_000;

const LOAD = new URL('./writes/load.ts', import.meta.url);
const FAR = new URL('./writes/far.ts', import.meta.url);

export async function benchWrites(): Promise<void> {
  await onSqlite();
  const missing = installMissing(['initdb'], console.log);
  if (missing.length > 0)
    return console.log(`writes: PostgreSQL is not measured, ${missing.join(', ')} is missing here`);
  const server = await startPostgres({ durable: true });
  const sides = [await startSide(LOAD), await startSide(LOAD)] as const;
  const far = await startSide(FAR);
  try {
    const port = (await far.ask({ kind: 'listen', port: Number(new URL(server.url).port), oneWayMs: ONE_WAY_MS }))[
      'port'
    ];
    const farUrl = new URL(server.url);
    farUrl.port = String(port);
    await sides[0].ask({ kind: 'open', url: server.url });
    await sides[0].ask({ kind: 'prepare' });
    await compare('PostgreSQL near', [sides[0]]);
    await sides[0].ask({ kind: 'close' });
    for (const side of sides) await side.ask({ kind: 'open', url: farUrl.toString() });
    const one = await compare('PostgreSQL 2 ms away', [sides[0]], PER_SECOND_MIN);
    const two = await compare('PostgreSQL 2 ms away, two processes', sides, PER_SECOND_MIN);
    report({ what: '  two processes', ours: two, peer: one, peerName: 'one', unit: '/s' });
    for (const side of sides) await side.ask({ kind: 'close' });
    await launchesOn({ near: server.url, far: farUrl.toString() });
  } finally {
    for (const side of [...sides, far]) await side.stop();
    await server.stop();
  }
}

async function launchesOn(urls: { near: string; far: string }): Promise<void> {
  const missing = installMissing(['docker-registry', 'busybox', 'openssl'], console.log);
  if (missing.length > 0)
    return console.log(`writes: launches are not measured, ${missing.join(', ')} is missing here`);
  await benchLaunches(urls);
}

async function onSqlite(): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-writes-'));
  const side = await startSide(LOAD);
  await side.ask({ kind: 'open', url: join(dir, 'a.db') });
  await side.ask({ kind: 'prepare' });
  const figures: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) figures.push(sum(await load([side], 'hot'), 'perSecond'));
  const [single] = await load([side], 'hot', 1);
  const peer = single?.['perSecond'] ?? Number.NaN;
  report({
    what: 'paid requests, SQLite, 64 callers',
    ours: median(figures),
    peer,
    peerName: 'one caller',
    unit: '/s',
  });
  await side.ask({ kind: 'close' });
  await side.stop();
  rmSync(dir, { recursive: true });
}

/** Returns the figure of the hot way. */
async function compare(what: string, sides: readonly Side[], perSecondMin?: number): Promise<number> {
  const figures: Record<'hot' | 'plain', Answer[][]> = { hot: [], plain: [] };
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const way of shuffled(['hot', 'plain'] as const)) figures[way].push(await load(sides, way));
  }
  const of = (way: 'hot' | 'plain'): number => median(figures[way].map((answers) => sum(answers, 'perSecond')));
  const [ours, peer] = [of('hot'), of('plain')];
  report({ what: `paid requests, ${what}`, ours, peer, peerName: 'a transaction for each body', unit: '/s' });
  const answers = figures.hot.flat();
  const errors = sum([...answers, ...figures.plain.flat()], 'errors');
  const p99Ms = Math.max(...answers.map((answer) => answer['p99Ms'] ?? Number.NaN));
  console.log(`  ${errors} errors, 99 of 100 requests within ${p99Ms.toFixed(0)} ms`);
  if (perSecondMin === undefined) return ours;
  const required = { peer: perSecondMin, peerName: 'the required', target: { rule: 'at least', ratio: 1 } as const };
  report({ what: `  paid requests, ${what}`, ours, unit: '/s', ...required });
  return ours;
}

function load(sides: readonly Side[], way: 'hot' | 'plain', callers = CALLERS): Promise<Answer[]> {
  return Promise.all(sides.map((side) => side.ask({ kind: 'chats', way, callers, ms: FOR_MS })));
}

function sum(answers: readonly Answer[], name: string): number {
  return answers.reduce((total, answer) => total + (answer[name] ?? Number.NaN), 0);
}
