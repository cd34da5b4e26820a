// The SQL of token accounts: how far each was read, on a chain that is read account by account.
import { z } from 'zod';
import type { DepositChain } from '../../../shared/api/deposit.ts';
import { countRow, flag, int, text, ucents } from '../../base/db/columns.ts';
import { type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Family } from './chains.ts';
import type { AccountMark } from './reader.ts';

const AccountRow = z.object({
  account: text,
  owner: text,
  units: ucents.nullable(),
  read_to: int,
  behind_to: int.nullable(),
  before_tx: text.nullable(),
  failure: text.nullable(),
  has_failed: flag,
});

/** The accounts of the deposits that are still watched when the time of the chain is `chainMs`, the one that was not read for longest first. */
export async function watchedAccounts(
  query: Query,
  chain: DepositChain,
  family: Family,
  chainMs: number,
): Promise<AccountMark[]> {
  const rows = await query.all(
    AccountRow,
    sql`select a.account, a.owner, a.units, a.read_to, a.behind_to, a.before_tx, a.failure, a.has_failed from deposits d join deposit_accounts a on a.owner = d.address
        where d.family = ${family} and d.watched_until_ms >= ${chainMs} and a.chain = ${chain} order by a.read_to, a.account`,
  );
  return rows.map(({ account, owner, units, read_to: readTo, behind_to: to, before_tx: before, ...failed }) => ({
    account,
    owner,
    units,
    readTo,
    behind: to === null ? null : { to, before, failure: failed.failure, hasFailed: failed.has_failed },
  }));
}

export async function setMark(
  tx: Tx,
  chain: DepositChain,
  { account, owner, units, readTo, behind }: AccountMark,
): Promise<void> {
  const { to, before, failure, hasFailed } = behind ?? { to: null, before: null, failure: null, hasFailed: false };
  await tx.run(
    sql`insert into deposit_accounts (chain, account, owner, units, read_to, behind_to, before_tx, failure, has_failed)
        values (${chain}, ${account}, ${owner}, ${units}, ${readTo}, ${to}, ${before}, ${failure}, ${hasFailed})
        on conflict (chain, account) do update set units = excluded.units, read_to = excluded.read_to, behind_to = excluded.behind_to,
          before_tx = excluded.before_tx, failure = excluded.failure, has_failed = excluded.has_failed`,
  );
}

/** Whether an account of the address is behind its chain. */
export async function isBehind(query: Query, chain: DepositChain, owner: string): Promise<boolean> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from deposit_accounts where chain = ${chain} and owner = ${owner} and behind_to is not null`,
  );
  return (row?.count ?? 0) > 0;
}

/** The number of accounts that are behind, and whose deposits are still watched when the time of the chain is `chainMs`. */
export async function countBehind(query: Query, chain: DepositChain, family: Family, chainMs: number): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from deposit_accounts a cross join deposits d
        where a.behind_to is not null and a.chain = ${chain} and d.address = a.owner and d.family = ${family}
          and d.watched_until_ms >= ${chainMs}`,
  );
  return row?.count ?? 0;
}

/** All accounts are read again from after the block. Those that are behind stay so until they are read. */
export async function rewindMarks(tx: Tx, chain: DepositChain, number: number): Promise<void> {
  await tx.run(
    sql`update deposit_accounts set units = null, before_tx = null, read_to = case when read_to > ${number} then ${number} else read_to end
        where chain = ${chain}`,
  );
}
