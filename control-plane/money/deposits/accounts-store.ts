// The SQL of token accounts: how far each was read, on a chain that is read account by account.
import { z } from 'zod';
import type { DepositChain } from '../../../shared/api/deposit.ts';
import { int, text, ucents } from '../../base/db/columns.ts';
import { type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Family } from './chains.ts';
import type { AccountMark } from './reader.ts';

const AccountRow = z.object({
  account: text,
  owner: text,
  units: ucents.nullable(),
  read_to: int,
  before_tx: text.nullable(),
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
    sql`select a.account, a.owner, a.units, a.read_to, a.before_tx from deposits d join deposit_accounts a on a.owner = d.address
        where d.family = ${family} and d.watched_until_ms >= ${chainMs} and a.chain = ${chain} order by a.read_to, a.account`,
  );
  return rows.map(({ account, owner, units, read_to: readTo, before_tx: before }) => ({
    account,
    owner,
    units,
    readTo,
    before,
  }));
}

export async function setMark(
  tx: Tx,
  chain: DepositChain,
  { account, owner, units, readTo, before }: AccountMark,
): Promise<void> {
  await tx.run(
    sql`insert into deposit_accounts (chain, account, owner, units, read_to, before_tx)
        values (${chain}, ${account}, ${owner}, ${units}, ${readTo}, ${before})
        on conflict (chain, account) do update set units = excluded.units, read_to = excluded.read_to, before_tx = excluded.before_tx`,
  );
}

/** All accounts are read again from after the block. */
export async function rewindMarks(tx: Tx, chain: DepositChain, number: number): Promise<void> {
  await tx.run(
    sql`update deposit_accounts set units = null, before_tx = null, read_to = case when read_to > ${number} then ${number} else read_to end
        where chain = ${chain}`,
  );
}
