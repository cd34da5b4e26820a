// Ledger postings a second, durable before the answer, on both databases: many callers at once, against a hand-written group commit and
// against one transaction for each posting, with the same row changes in the same run.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Db } from '../../control-plane/base/db/db.ts';
import { openLedger } from '../../control-plane/money/ledger/ledger.ts';
import { systemClock } from '../../shared/clock.ts';
import { startPostgres } from '../kit/postgres.ts';
import { installMissing } from '../kit/setup.ts';
import { createDatabase, openBenchDb, openMigrated } from './database.ts';
import { openPostgresPeer, openSqlitePeer } from './ledger/peers.ts';
import { CHARGES, DEPOSITS, makeWallets, type Work } from './ledger/works.ts';
import { median, percentile, report, shuffled, type Target, timeMs } from './measure.ts';

const CALLERS = [1, 64, 256] as const;
const POSTINGS = { 1: 400, 64: 8_000, 256: 16_000 } as const;
/** One transaction for each posting is slower, and hardly faster with more callers. */
const SINGLE_MAX = 2_000;
const WARM_UP = 2_000;
const ROUNDS = 3;
/** The driver of the service has as many for transactions. */
const POOL = 16;
const OF_GROUPED: Target = { rule: 'at least', ratio: 0.8 };
const OF_SINGLE: Record<Db['dialect'], Target> = {
  sqlite: { rule: 'at least', ratio: 7 },
  postgres: { rule: 'at least', ratio: 5 },
};

export async function benchLedger(): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-ledger-'));
  let databases = 0;
  const name = (): string => `ledger_${(databases += 1)}`;
  try {
    await compare('sqlite', async () => join(dir, name()));
  } finally {
    rmSync(dir, { recursive: true });
  }
  const missing = installMissing(['initdb'], console.log);
  if (missing.length > 0)
    return console.log(`ledger: PostgreSQL is not measured, ${missing.join(', ')} is missing here`);
  const server = await startPostgres({ durable: true });
  try {
    await compare('postgres', () => createDatabase(server.url, name()));
  } finally {
    await server.stop();
  }
}

interface Way {
  name: string;
  /** Postings of one run, at most. */
  postingsMax: number;
  /** The target of the service, at 256 callers. */
  target?: Target;
  open(url: string, work: Work): Promise<Poster>;
}

interface Poster {
  post(serial: number): Promise<void>;
  close(): Promise<void>;
}

const SERVICE: Way = { name: 'service', postingsMax: Number.POSITIVE_INFINITY, open: openService };

const PEERS: Record<Db['dialect'], Way[]> = {
  sqlite: [
    byHand('a hand-written group commit', 'grouped', { target: OF_GROUPED }),
    byHand('one transaction for each', 'single', { target: OF_SINGLE.sqlite }),
  ],
  postgres: [
    byHand('a hand-written group commit', 'grouped', { target: OF_GROUPED }),
    byHand('one transaction for each', 'single', { target: OF_SINGLE.postgres }),
    byHand(`one transaction for each, ${POOL} connections`, 'single', { connections: POOL }),
  ],
};

/** Every way has a database of its own, and all begin with the same rows. */
async function compare(dialect: Db['dialect'], newUrl: () => Promise<string>): Promise<void> {
  for (const work of [DEPOSITS, CHARGES]) {
    const peers = PEERS[dialect];
    const runs = await Promise.all([SERVICE, ...peers].map(async (way) => openRun(way, work, await newUrl())));
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const callers of CALLERS) for (const run of shuffled(runs)) await run.measure(callers);
    }
    const [service, ...others] = runs;
    for (const callers of CALLERS) {
      for (const [i, run] of others.entries()) {
        const { name, target } = peers[i] ?? SERVICE;
        const what = `${work.name}, ${dialect}, ${callers} callers`;
        const figures = { ours: service?.perSecond(callers) ?? Number.NaN, peer: run.perSecond(callers), unit: '/s' };
        // What the service posts in volume is charges: the target is theirs on PostgreSQL, where only those share commits.
        const isBound = callers === 256 && (dialect === 'sqlite' || work === CHARGES) && target !== undefined;
        report({ what, ...figures, peerName: name, ...(isBound ? { target } : {}) });
      }
    }
    const waitsMs = service?.waitsMs ?? [];
    const [p50, p99] = [percentile(waitsMs, 0.5), percentile(waitsMs, 0.99)];
    console.log(`  256 callers of the service wait ${p50.toFixed(1)} ms p50, ${p99.toFixed(1)} ms p99`);
    for (const run of runs) await run.close();
  }
}

interface Run {
  measure(callers: (typeof CALLERS)[number]): Promise<void>;
  /** The median of the rounds. */
  perSecond(callers: number): number;
  /** How long each of 256 callers waited. */
  waitsMs: number[];
  close(): Promise<void>;
}

async function openRun(way: Way, work: Work, url: string): Promise<Run> {
  const countOf = (postings: number): number => Math.min(postings, way.postingsMax);
  const ofRound = CALLERS.reduce((sum, callers) => sum + countOf(POSTINGS[callers]), 0);
  const db = await openMigrated(url);
  await makeWallets(db);
  await work.prepare(db, countOf(WARM_UP) + ROUNDS * ofRound);
  await db.close();
  const poster = await way.open(url, work);
  let serial = 0;
  const post = (): Promise<void> => poster.post((serial += 1));
  await load(post, 64, countOf(WARM_UP));
  const rates = new Map<number, number[]>();
  const allWaitsMs: number[] = [];
  return {
    measure: async (callers) => {
      const { perSecond, waitsMs } = await load(post, callers, countOf(POSTINGS[callers]));
      rates.set(callers, [...(rates.get(callers) ?? []), perSecond]);
      if (callers === 256) for (const ms of waitsMs) allWaitsMs.push(ms);
    },
    perSecond: (callers) => median(rates.get(callers) ?? []),
    waitsMs: allWaitsMs,
    close: () => poster.close(),
  };
}

async function openService(url: string, work: Work): Promise<Poster> {
  const db = await openBenchDb(url);
  const ledger = openLedger({ clock: systemClock() });
  return { post: (serial) => work.post(db, ledger, serial), close: () => db.close() };
}

function byHand(
  name: string,
  how: 'single' | 'grouped',
  { target, connections = 1 }: { target?: Target; connections?: number },
): Way {
  return {
    name,
    postingsMax: how === 'single' ? SINGLE_MAX : Number.POSITIVE_INFINITY,
    ...(target === undefined ? {} : { target }),
    open: async (url, work) => {
      const dialect = url.startsWith('postgres:') ? 'postgres' : 'sqlite';
      const peer = dialect === 'postgres' ? await openPostgresPeer(url, connections) : openSqlitePeer(url);
      return { post: (serial) => peer[how](work.raw(dialect, serial)), close: () => peer.close() };
    },
  };
}

/** `callers` loops that each wait for their posting to be durable before the next. */
async function load(
  post: () => Promise<void>,
  callers: number,
  count: number,
): Promise<{ perSecond: number; waitsMs: number[] }> {
  let left = count;
  const waitsMs: number[] = [];
  const caller = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      waitsMs.push(await timeMs(post));
    }
  };
  const ms = await timeMs(() => Promise.all(Array.from({ length: callers }, caller)));
  return { perSecond: (count / ms) * 1000, waitsMs };
}
