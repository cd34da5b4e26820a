// The proof that deposits, the transfers on their chains, and the ledger agree.
import type { Query } from '../../base/db/db.ts';
import { accountId, depositClearing, depositSuspense } from '../ledger/accounts.ts';
import { lastOf, type PagedProof } from '../ledger/charges.ts';
import { postedOf } from '../ledger/proof-store.ts';
import { depositsPosted, depositsPostedAfter } from '../ledger/wallets.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { ucentsOfUnits } from './chains.ts';
import { sumOf } from './plan.ts';
import { KIND } from './posting.ts';
import { depositsAfter, type Deposit, knownDeposits } from './store.ts';
import { bookedUnits, type Transfer, transfersByDeposit } from './transfers-store.ts';

/** Compares each deposit with its transfers and the ledger. The first page also compares the platform's accounts. */
const proveDeposits: PagedProof = async (query, afterId, limit) => {
  const rows = await depositsAfter(query, afterId, limit);
  const ids = rows.map(({ id }) => id);
  const posted = await depositsPosted(query, ids);
  const transfers = await transfersByDeposit(query, ids);
  return {
    faults: [
      ...(afterId === '' ? await accountFaults(query) : []),
      ...rows.flatMap((row) => faultsOf(row, transfers.get(row.id) ?? [], posted.get(row.id))),
    ],
    lastId: lastOf(ids, limit),
  };
};

/** Each deposit in the ledger must have a row. */
const provePosted: PagedProof = async (query, afterId, limit) => {
  const ids = await depositsPostedAfter(query, afterId, limit);
  const known = await knownDeposits(query, ids);
  const rowless = ids.filter((id) => !known.has(id));
  return { faults: rowless.map((id) => `${id}: the ledger has a deposit without a row`), lastId: lastOf(ids, limit) };
};

export const DEPOSIT_PROOFS: readonly PagedProof[] = [proveDeposits, provePosted];

/** Compares the platform's accounts of deposits with the sums of the booked transfers. */
async function accountFaults(query: Query): Promise<string[]> {
  const booked = await bookedUnits(query);
  const faults: string[] = [];
  const compare = async (account: string, units: bigint): Promise<void> => {
    const is = await postedOf(query, account);
    if (is !== units) faults.push(`${account}: the ledger has ${is}, the transfers of the chains ${units}`);
  };
  for (const [pair, rows] of Map.groupBy(booked, ({ chain, asset }) => `${chain} ${asset}`)) {
    const [chain = '', asset = ''] = pair.split(' ');
    const kept = rows.filter(({ booking }) => booking !== 'returned');
    // Received tokens are debits of the clearing account, so its balance is negative.
    await compare(accountId(depositClearing(chain, asset)), -ucentsOfUnits(sumOf(kept)));
  }
  const waiting = booked.filter(({ booking }) => booking === 'suspense');
  await compare(accountId(depositSuspense), ucentsOfUnits(sumOf(waiting)));
  return faults;
}

function faultsOf(
  deposit: Deposit,
  transfers: readonly Transfer[],
  posted: ReadonlyMap<string, bigint> = new Map(),
): string[] {
  const of = (...kinds: (keyof typeof KIND)[]): bigint =>
    kinds.reduce((sum, kind) => sum + (posted.get(KIND[kind]) ?? 0n), 0n);
  const booked = (where: Transfer['booking']): bigint =>
    ucentsOfUnits(sumOf(transfers.filter(({ booking }) => booking === where)));
  const { credited_cents: cents, credited_units: units } = deposit;
  const pairs: [what: string, row: bigint, ledger: bigint][] = [
    ['credited in cents', BigInt(cents ?? 0) * UCENTS_PER_CENT, of('credit', 'release')],
    ['credited in tokens', ucentsOfUnits(units ?? 0n), booked('wallet')],
    ['taken for the wallet', booked('wallet'), of('credit', 'rounding', 'release', 'releaseRounding')],
    ['in suspense', booked('suspense'), of('suspense') - of('release', 'releaseRounding', 'returned')],
    ['returned', booked('returned'), of('returned')],
  ];
  return pairs.flatMap(([what, row, is]) =>
    row === is ? [] : [`${deposit.id}: ${what}: ${row}, and the books have ${is}`],
  );
}
