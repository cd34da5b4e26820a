// Ledger postings a second, durable before the answer: many callers at once against single commits in the same run.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { migrate } from '../../control-plane/base/db/migrate.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import type { Db } from '../../control-plane/base/db/db.ts';
import { funding, wallet } from '../../control-plane/money/ledger/accounts.ts';
import { type Ledger, openLedger } from '../../control-plane/money/ledger/ledger.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { systemClock } from '../../shared/clock.ts';
import { median, percentile, report, timeMs } from './measure.ts';

const POSTINGS = { 1: 400, 64: 8_000, 256: 16_000 } as const;
const ROUNDS = 3;
const ACCOUNTS = 1000;

export async function benchLedger(): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'bench-ledger-'));
  const clock = systemClock();
  const db = openSqlite(join(dir, 'ledger.db'), { clock });
  await migrate(db, SCHEMA, { clock });
  const ledger = openLedger({ clock });
  let serial = 0;
  const post = (): Promise<void> => postOne(db, ledger, (serial += 1));
  await run(post, 64, 2_000);
  const rates = new Map<number, number[]>();
  const waits: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const callers of [1, 64, 256] as const) {
      const { perSecond, waitsMs } = await run(post, callers, POSTINGS[callers]);
      rates.set(callers, [...(rates.get(callers) ?? []), perSecond]);
      if (callers === 256) waits.push(...waitsMs);
    }
  }
  const single = median(rates.get(1) ?? []);
  const compare = (callers: number): void =>
    report({
      what: `ledger postings, ${callers} callers`,
      ours: median(rates.get(callers) ?? []),
      peer: single,
      peerName: 'one commit each',
      unit: '/s',
      ...(callers === 256 ? { target: { rule: 'at least', ratio: 12 } as const } : {}),
    });
  compare(64);
  compare(256);
  console.log(
    `  256 callers wait ${percentile(waits, 0.5).toFixed(1)} ms p50, ${percentile(waits, 0.99).toFixed(1)} ms p99`,
  );
  await db.close();
  rmSync(dir, { recursive: true });
}

async function postOne(db: Db, ledger: Ledger, serial: number): Promise<void> {
  const id = `bench:${serial}`;
  const credit = wallet(`org${serial % ACCOUNTS}`);
  const transfer = { id, debit: funding, credit, amountUcents: 1n, kind: 'bench', subjectId: id, effectiveMs: serial };
  await db.tx('bench', (tx) => ledger.post(tx, id, [transfer]));
}

/** `callers` loops that each wait for their posting to be durable before the next. */
async function run(
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
