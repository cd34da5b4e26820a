// kill -9 while money moves, on both databases, and of the database server itself: every acknowledged posting is in the books once, and what
// was not acknowledged is there once after it is repeated.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, inject, test } from 'vitest';
import { migrate } from '../../control-plane/base/db/migrate.ts';
import { insertSupplier } from '../../control-plane/fleet/supply/store.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { freeOutcome, closeReceipt, openReceipt } from '../../control-plane/models/gateway/states.ts';
import { receiptHoldFaults, receiptProof } from '../../control-plane/models/gateway/verify.ts';
import { correctionFaults } from '../../control-plane/money/corrections/verify.ts';
import { CREDIT_PROOFS } from '../../control-plane/money/credits/verify.ts';
import { DEPOSIT_PROOFS } from '../../control-plane/money/deposits/verify.ts';
import { payable, revenue, wallet } from '../../control-plane/money/ledger/accounts.ts';
import { openBooks, type Proofs } from '../../control-plane/money/ledger/books.ts';
import { meteringProof } from '../../control-plane/money/metering/verify.ts';
import { PAYOUT_PROOFS, payoutFaults } from '../../control-plane/money/payouts/verify.ts';
import { UCENTS_PER_CENT } from '../../shared/money.ts';
import { type Rng, seededRng, systemRng } from '../../shared/rng.ts';
import { createDatabase } from '../kit/databases.ts';
import { noteRead, payDeposit } from '../kit/deposits.ts';
import {
  EFFECT_CENTS,
  type MoneyAlone,
  openMoneyAlone,
  type Operation,
  perform,
  postedByKey,
} from '../kit/money-operations.ts';
import type { Order } from '../kit/money-writer.ts';
import { makePayers, newReceipt, type Payer } from '../kit/payers.ts';
import { type PostgresServer, startPostgres } from '../kit/postgres.ts';
import { startProgram } from '../kit/processes.ts';

const IS_SOAK = process.env['SOAK'] === '1';
const ROUNDS = IS_SOAK ? 30 : 2;
const PAYERS = 3;
const EACH = IS_SOAK ? 25 : 12;
const SUPPLIER_ID = 's1';
/** More than all payouts, refunds and deductions of all rounds. */
const PLENTY_UCENTS = 10n ** 12n;
/** One cent of a token. */
const CENT_UNITS = 10_000n;

const PROOFS: Proofs[] = [
  { charges: meteringProof },
  { charges: receiptProof },
  { invariants: [receiptHoldFaults, correctionFaults, payoutFaults] },
  { pages: [...CREDIT_PROOFS, ...DEPOSIT_PROOFS, ...PAYOUT_PROOFS] },
];

async function withMoney<T>(database: string, work: (money: MoneyAlone) => Promise<T>): Promise<T> {
  const money = openMoneyAlone(database);
  try {
    return await work(money);
  } finally {
    await money.deposits.close();
    await money.core.db.close();
  }
}

/** Who pays, and a receipt of each that can be refunded. */
type Payers = { payer: Payer; refundedId: string }[];

async function prepare(money: MoneyAlone): Promise<Payers> {
  const { core, ledger } = money;
  const { db, clock, ids } = core;
  await migrate(db, SCHEMA, { clock });
  const payers = await makePayers(PAYERS, { db, clock, ids, ledger });
  const times = { created_ms: 1, updated_ms: 1 };
  const supplier = { id: SUPPLIER_ID, org_id: payers[0]?.orgId ?? '', status: 'active' as const, ...times };
  const earned = { id: 'earned', debit: revenue, credit: payable(SUPPLIER_ID), amountUcents: PLENTY_UCENTS };
  await db.tx('test.supplier', async (tx) => {
    await insertSupplier(tx, supplier);
    await ledger.post(tx, 'earned', [{ ...earned, kind: 'test', subjectId: 'i-1', effectiveMs: 1 }]);
  });
  await noteRead(core, 'ethereum');
  const refundable = async (payer: Payer): Promise<string> => {
    const facts = { id: ids.prefixed('rcp'), held_ucents: PLENTY_UCENTS, opened_ms: clock.now() };
    const receipt = newReceipt(payer, facts);
    await db.hot(openReceipt(receipt));
    const outcome = { ...freeOutcome('completed'), charged_ucents: PLENTY_UCENTS };
    await db.hot(closeReceipt(receipt, outcome, { nowMs: clock.now(), attempts: [] }));
    return receipt.id;
  };
  return Promise.all(payers.map(async (payer) => ({ payer, refundedId: await refundable(payer) })));
}

/** What a round does, in a random order. */
async function operationsOf(round: number, payers: Payers, { money, rng }: Stage): Promise<Operation[]> {
  const { core, deposits } = money;
  const { db, ids } = core;
  const deposit = async (orgId: string): Promise<string> => {
    const made = await db.tx('test.deposit', async (tx) => {
      await tx.lock('org', orgId);
      return deposits.create(tx, orgId, { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 1 });
    });
    await payDeposit(core, made, { units: CENT_UNITS });
    return made.id;
  };
  const keyOf = async (kind: Operation['do'], i: number, { orgId }: Payer): Promise<string> => {
    if (kind === 'ask') return ids.prefixed('rcp');
    if (kind === 'rent') return ids.instance();
    return kind === 'deposit' ? deposit(orgId) : `${kind}-${round}-${i}`;
  };
  const operations = (Object.keys(EFFECT_CENTS) as Operation['do'][]).flatMap((kind) =>
    Array.from({ length: EACH }, async (_, i): Promise<Operation> => {
      const each = payers[i % PAYERS];
      if (each === undefined) throw new Error('there is no payer');
      return { do: kind, key: await keyOf(kind, i, each.payer), supplierId: SUPPLIER_ID, ...each };
    }),
  );
  return shuffled(await Promise.all(operations), rng);
}

interface Stage {
  money: MoneyAlone;
  rng: Rng;
}

function shuffled<T>(all: readonly T[], rng: Rng): T[] {
  return all
    .map((value) => ({ value, place: rng.float() }))
    .toSorted((a, b) => a.place - b.place)
    .map(({ value }) => value);
}

/** Kills the program after it has acknowledged the given number of operations. Returns their keys. */
async function killUnderLoad(order: Order, count: number, crash: () => Promise<void>): Promise<string[]> {
  const args = ['test/kit/money-writer.ts', JSON.stringify(order)];
  const writer = startProgram({ command: process.execPath, args });
  await writer.waitForOutput(new RegExp(`(done .*\\n){${count}}`), 30_000);
  await crash();
  await writer.stop('SIGKILL');
  // The last line may have been cut.
  return [...writer.output().matchAll(/^done (.+)\n/gm)].map(([, key = '']) => key);
}

async function expectSound({ core }: MoneyAlone): Promise<void> {
  const { db, clock, log } = core;
  expect(await openBooks({ db, clock, log, proofs: () => PROOFS }).verify()).toEqual([]);
}

/** After the crash, and after everything was repeated. Returns how many operations the crash had left undone. */
async function checkRound(
  money: MoneyAlone,
  operations: readonly Operation[],
  acknowledged: string[],
): Promise<number> {
  const { db } = money.core;
  const known = await postedByKey(db.read);
  expect(acknowledged.filter((key) => known.get(key) !== UCENTS_PER_CENT)).toEqual([]);
  const undone = operations.filter(({ key }) => !known.has(key));
  expect(operations.filter(({ key }) => (known.get(key) ?? 0n) > UCENTS_PER_CENT)).toEqual([]);
  await expectSound(money);
  // The next process does not know what was acknowledged, and repeats all of it.
  await Promise.all(operations.map((operation) => perform(money, operation)));
  const after = await postedByKey(db.read);
  expect(operations.filter(({ key }) => after.get(key) !== UCENTS_PER_CENT)).toEqual([]);
  await expectSound(money);
  return undone.length;
}

async function walletsOf({ core, ledger }: MoneyAlone, payers: Payers): Promise<bigint> {
  let cents = 0n;
  for (const { payer } of payers) {
    const { postedUcents, heldUcents } = await ledger.balance(core.db.read, wallet(payer.orgId));
    expect(heldUcents).toBe(0n);
    cents += postedUcents / UCENTS_PER_CENT;
  }
  return cents;
}

/** A database, and what else ends with the program that writes to it. */
interface Ground {
  database: string;
  crash(): Promise<void>;
  end(): Promise<void>;
}

const nothing = async (): Promise<void> => undefined;
const GROUNDS: Record<string, () => Promise<Ground>> = {
  SQLite: async () => {
    const dir = mkdtempSync(join(tmpdir(), 'crash-'));
    return { database: join(dir, 'a.db'), crash: nothing, end: async () => rmSync(dir, { recursive: true }) };
  },
  PostgreSQL: async () => ({
    database: await createDatabase(inject('postgresUrl') ?? ''),
    crash: nothing,
    end: nothing,
  }),
  'PostgreSQL, whose server is killed too': async () => {
    const server: PostgresServer = await startPostgres({ durable: true });
    return { database: await createDatabase(server.url), crash: server.crash, end: server.stop };
  },
};

test.each(Object.entries(GROUNDS))(
  '%s',
  async (_name, open) => {
    const { database, crash, end } = await open();
    const rng = IS_SOAK ? systemRng() : seededRng(7);
    const { payers, beforeCents } = await withMoney(database, async (money) => {
      const made = await prepare(money);
      return { payers: made, beforeCents: await walletsOf(money, made) };
    });
    let undone = 0;
    let doneCents = 0n;
    for (let round = 0; round < ROUNDS; round += 1) {
      const operations = await withMoney(database, (money) => operationsOf(round, payers, { money, rng }));
      const count = 1 + Math.floor((rng.float() * operations.length) / 2);
      const acknowledged = await killUnderLoad({ database, operations }, count, crash);
      expect(acknowledged.length).toBeGreaterThanOrEqual(count);
      undone += await withMoney(database, (money) => checkRound(money, operations, acknowledged));
      doneCents += operations.reduce((sum, { do: kind }) => sum + EFFECT_CENTS[kind], 0n);
      // No operation has counted twice under another name.
      expect(await withMoney(database, (money) => walletsOf(money, payers))).toBe(beforeCents + doneCents);
    }
    // The kills came in the middle of the work.
    expect(undone).toBeGreaterThan(0);
    await end();
  },
  IS_SOAK ? 1_800_000 : 120_000,
);
