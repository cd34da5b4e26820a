// Two ways in which the service posts, and the same row changes for the driver alone.
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { type Db, type HotBody, sql, storedValue } from '../../../control-plane/base/db/db.ts';
import { accountId, funding, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import type { Ledger } from '../../../control-plane/money/ledger/ledger.ts';
import { settleNow, settleParts } from '../../../control-plane/money/ledger/statements.ts';
import type { NewTransfer } from '../../../control-plane/money/ledger/store.ts';
import type { Raw } from './peers.ts';

export interface Work {
  name: string;
  /** Makes what the given number of postings uses up. Their numbers begin with 1. */
  prepare(db: Db, postings: number): Promise<void>;
  post(db: Db, ledger: Ledger, serial: number): Promise<void>;
  /** The same row changes. */
  raw(dialect: Db['dialect'], serial: number): Raw[];
}

const ACCOUNTS = 1000;
const MONEY_UCENTS = 10n ** 15n;
const HELD_UCENTS = 10n;

/** Wallets with money. */
export async function makeWallets(db: Db): Promise<void> {
  const id = sql`'customer_wallet:org' || n`;
  await db.tx('bench.wallets', (tx) =>
    tx.run(
      sql`with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n < ${ACCOUNTS - 1})
          insert into ledger_accounts (id, kind, owner_id, prepaid, credits_ucents, created_ms)
          select ${id}, 'customer_wallet', 'org' || n, 1, ${MONEY_UCENTS}, 1 from numbers`,
    ),
  );
}

/** Money that comes in, as an ordinary transaction. */
export const DEPOSITS: Work = {
  name: 'deposits as ordinary transactions',
  prepare: async () => undefined,
  post: async (db, ledger, serial) => {
    const transfer = transferOf(serial, { debit: funding, credit: walletOf(serial) });
    await db.tx('bench', (tx) => ledger.post(tx, transfer.id, [transfer]));
  },
  raw: (dialect, serial) => {
    const transfer = transferOf(serial, { debit: funding, credit: walletOf(serial) });
    return rawOf(dialect, [
      insertOf(transfer),
      ['update ledger_accounts set credits_ucents = credits_ucents + ? where id = ?', [1n, accountId(transfer.credit)]],
    ]);
  },
};

/** The end of a paid request: its hold is released and its charge posted, as a hot body. */
export const CHARGES: Work = {
  name: 'charges of paid requests',
  prepare: async (db, postings) => {
    const owner = sql`'customer_wallet:org' || (n % ${ACCOUNTS})`;
    await db.tx('bench.holds', async (tx) => {
      await tx.run(
        sql`with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ${postings})
            insert into holds (id, account_id, amount_ucents, updated_ms)
            select 'hold:' || n, ${owner}, ${HELD_UCENTS}, 1 from numbers`,
      );
      await tx.run(
        sql`update ledger_accounts set held_ucents = (select coalesce(sum(amount_ucents), 0) from holds where account_id = ledger_accounts.id)`,
      );
    });
  },
  post: async (db, _, serial) => void (await db.hot(chargeBody(serial))),
  raw: (dialect, serial) => {
    const transfer = chargeOf(serial);
    if (dialect === 'postgres') {
      const { strings, values } = chargeBody(serial).statement();
      return [{ text: strings.reduce((text, next, i) => `${text}$${i}${next}`), values: values.map(storedValue) }];
    }
    const account = accountId(transfer.debit);
    return rawOf(dialect, [
      ['delete from holds where id = ?', [`hold:${serial}`]],
      [
        'update ledger_accounts set held_ucents = held_ucents - ?, debits_ucents = debits_ucents + ? where id = ?',
        [HELD_UCENTS, 1n, account],
      ],
      insertOf(transfer),
    ]);
  },
};

const Done = z.object({ done: int });

function chargeBody(serial: number): HotBody<{ done: number }> {
  const charge = chargeOf(serial);
  const settlement = { id: `hold:${serial}`, account: charge.debit, charge, nowMs: serial };
  return {
    name: 'bench.charge',
    locks: accountId(charge.debit),
    statement: () => sql`with ended as (select 1), ${settleParts(settlement)} select count(*) as done from ended`,
    row: Done,
    runNow: (tx) => {
      settleNow(tx, settlement);
      return { done: 1 };
    },
  };
}

function chargeOf(serial: number): NewTransfer {
  return transferOf(serial, { debit: walletOf(serial), credit: revenue });
}

function walletOf(serial: number): NewTransfer['debit'] {
  return wallet(`org${serial % ACCOUNTS}`);
}

function transferOf(serial: number, sides: Pick<NewTransfer, 'debit' | 'credit'>): NewTransfer {
  const id = `bench:${serial}`;
  return { id, ...sides, amountUcents: 1n, kind: 'bench', subjectId: id, effectiveMs: serial };
}

type Plain = [text: string, values: unknown[]];

function insertOf(transfer: NewTransfer): Plain {
  const { id, debit, credit, amountUcents, kind, subjectId, effectiveMs } = transfer;
  return [
    'insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms) values (?, ?, ?, ?, ?, ?, ?, ?, ?)',
    [id, id, accountId(debit), accountId(credit), amountUcents, kind, subjectId, effectiveMs, effectiveMs],
  ];
}

/** The drivers name parameters differently. */
function rawOf(dialect: Db['dialect'], statements: readonly Plain[]): Raw[] {
  return statements.map(([text, values]) => {
    if (dialect === 'sqlite') return { text, values };
    let count = 0;
    return { text: text.replaceAll('?', () => `$${(count += 1)}`), values };
  });
}
