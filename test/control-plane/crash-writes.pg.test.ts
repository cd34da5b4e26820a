// kill -9 under load, on both databases: every charge that was acknowledged is in the books once, what was open is released, and every key
// whose revocation was acknowledged is refused.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, inject, test } from 'vitest';
import { z } from 'zod';
import { openAccountsAlone } from '../kit/accounts.ts';
import { int, text, ucents } from '../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../control-plane/base/db/db.ts';
import { migrate } from '../../control-plane/base/db/migrate.ts';
import { openPostgres } from '../../control-plane/base/db/postgres.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { freeOutcome, closeReceipt } from '../../control-plane/models/gateway/states.ts';
import { openReceipts } from '../../control-plane/models/gateway/store.ts';
import { receiptHoldFaults, receiptProof } from '../../control-plane/models/gateway/verify.ts';
import { openBooks } from '../../control-plane/money/ledger/books.ts';
import { openLedger } from '../../control-plane/money/ledger/ledger.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';
import { CHARGED_UCENTS } from '../kit/crash-writer.ts';
import { createDatabase } from '../kit/databases.ts';
import { makePayers, type Payer } from '../kit/payers.ts';
import { startProgram } from '../kit/processes.ts';

const PAYERS = 4;
const ROUNDS = process.env['SOAK'] === '1' ? 40 : 3;
/** How many charges are acknowledged before the kill. Each round ends at another moment of a batch. */
const ACKNOWLEDGED = 150;

const clock = systemClock();
const log = createLog('test', 'silent');
const ids = createIds(clock, systemRng());
const ledger = openLedger({ clock });

function open(database: string): Db {
  const isPostgres = database.startsWith('postgres:');
  return isPostgres ? openPostgres(database, { clock, log, rng: systemRng() }) : openSqlite(database, { clock });
}

async function withDb<T>(database: string, work: (db: Db) => Promise<T>): Promise<T> {
  const db = open(database);
  try {
    return await work(db);
  } finally {
    await db.close();
  }
}

async function prepare(db: Db): Promise<Payer[]> {
  await migrate(db, SCHEMA, { clock });
  return makePayers(PAYERS, { db, clock, ids, ledger });
}

interface Acknowledged {
  charges: string[];
  revokedKeys: string[];
}

/** What the program had acknowledged when it was killed. */
async function killUnderLoad(database: string, payers: readonly Payer[]): Promise<Acknowledged> {
  const order = JSON.stringify({ database, payers });
  const writer = startProgram({ command: process.execPath, args: ['test/kit/crash-writer.ts', order] });
  await writer.waitForOutput(new RegExp(`((rcp|apk)_.*\\n){${ACKNOWLEDGED}}`), 30_000);
  await writer.stop('SIGKILL');
  // The last line may have been cut.
  const lines = (pattern: RegExp): string[] => [...writer.output().matchAll(pattern)].map(([, word]) => word ?? '');
  return { charges: lines(/^(rcp_\w{26})$/gm), revokedKeys: lines(/^apk_\w{26} (\S{52})$/gm) };
}

const ReceiptRow = z.object({ id: text, state: text, charged_ucents: ucents });
const CountRow = z.object({ subject_id: text, count: int });

async function check(db: Db, { charges: acknowledged, revokedKeys }: Acknowledged): Promise<void> {
  const accounts = openAccountsAlone({ db, clock, ids });
  for (const key of revokedKeys) expect(await accounts.authenticate(key, { confirmsKey: false })).toBeUndefined();
  const rows = await db.read.all(ReceiptRow, sql`select id, state, charged_ucents from request_receipts`);
  const byId = new Map(rows.map((row) => [row.id, row]));
  const charges = await db.read.all(
    CountRow,
    sql`select subject_id, count(*) as count from transfers where kind = 'inference.charge' group by subject_id`,
  );
  const countOf = new Map(charges.map((row) => [row.subject_id, row.count]));
  for (const id of acknowledged) {
    expect(byId.get(id)).toEqual({ id, state: 'settled', charged_ucents: CHARGED_UCENTS });
    expect(countOf.get(id)).toBe(1);
  }
  // The next process releases what was open.
  for (const receipt of await openReceipts(db.read, '', 1_000))
    await db.hot(closeReceipt(receipt, freeOutcome('process_ended'), { nowMs: clock.now(), attempts: [] }));
  const proofs = () => [{ charges: receiptProof, invariants: [receiptHoldFaults] }];
  expect(await openBooks({ db, clock, log, proofs }).verify()).toEqual([]);
}

test.each(['SQLite', 'PostgreSQL'])(
  '%s',
  async (engine) => {
    const dir = mkdtempSync(join(tmpdir(), 'crash-'));
    const database = engine === 'SQLite' ? join(dir, 'a.db') : await createDatabase(inject('postgresUrl') ?? '');
    const payers = await withDb(database, prepare);
    const all: Acknowledged = { charges: [], revokedKeys: [] };
    for (let round = 0; round < ROUNDS; round += 1) {
      const { charges, revokedKeys } = await killUnderLoad(database, payers);
      all.charges.push(...charges);
      all.revokedKeys.push(...revokedKeys);
      await withDb(database, (db) => check(db, all));
    }
    expect(all.charges.length + all.revokedKeys.length).toBeGreaterThanOrEqual(ROUNDS * ACKNOWLEDGED);
    expect(all.revokedKeys.length).toBeGreaterThan(ROUNDS);
    rmSync(dir, { recursive: true });
  },
  120_000,
);
