// What the operator decides about a deposit: credit it, refuse it, note that it was sent back, or look at a transaction again.
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { rewindMarks } from './accounts-store.ts';
import { findChain, rewind } from './chains-store.ts';
import { isCredited, isOpen } from './plan.ts';
import { releaseOf, returnOf } from './posting.ts';
import { screenAll } from './screening.ts';
import { move } from './states.ts';
import { addCredit, book, credit, refuse, type StepDeps, suspend } from './steps.ts';
import { type Deposit, findDeposit, setDue, wake } from './store.ts';
import { depositsAbove, orphanUnbooked, type Transfer, transfersOf, upsertTransfer } from './transfers-store.ts';
import type { DepositChain } from '../../../shared/api/deposit.ts';

export interface Decisions {
  /** Credits a deposit whose senders could not be checked, or its transfers in suspense. @throws ServiceError `not_found`, `conflict` */
  credit(id: string, reason: string): Promise<Deposit>;
  /** Cancels an open deposit, or refuses tokens whose senders could not be checked. @throws as `credit` does */
  reject(id: string, reason: string): Promise<Deposit>;
  /** Notes that what a transaction brought, and what is in suspense, was sent back. @throws as `credit` does */
  returned(id: string, note: Returned): Promise<Deposit>;
  /** Finds the transfers of a transaction that no watcher has seen. @throws as `credit` does, and `deposits_unavailable` */
  rescan(id: string, txHash: string): Promise<Deposit>;
  /**
   * Has the chain read again from after the block, and takes back what is not booked above it.
   * @throws ServiceError `conflict`, `deposits_unavailable`
   */
  rewind(chain: DepositChain, blockNumber: number): Promise<Rewound>;
}

export interface Returned {
  /** The transaction that brought the tokens. */
  txHash: string;
  reason: string;
}

/** What a rewind has found above the block. */
export interface Rewound {
  /** How many transfers have lost their block. They count again if the chain has them when it is read again. */
  orphaned: number;
  /** The deposits whose transfers are in the books. The rewind changes nothing of them. */
  booked: string[];
}

export type DecisionDeps = StepDeps & { ids: Ids; nudge(): void };

export function openDecisions(deps: DecisionDeps): Decisions {
  const { db, nudge } = deps;
  const decide = async (
    id: string,
    name: string,
    body: (tx: Tx, deposit: Deposit, transfers: Transfer[]) => Promise<void>,
  ): Promise<Deposit> => {
    await existing(db, id);
    await db.tx(`deposits.${name}`, async (tx) => {
      await tx.lock('deposit', id);
      const deposit = await findDeposit(tx, id);
      if (deposit !== undefined) await body(tx, deposit, await transfersOf(tx, id));
    });
    nudge();
    return existing(db, id);
  };
  return {
    credit: async (id, reason) => {
      const checked = await checkSenders(id, deps);
      return decide(id, 'credit', (tx, deposit, transfers) =>
        creditNow(tx, deposit, { transfers, reason, checked }, deps),
      );
    },
    reject: (id) => decide(id, 'reject', (tx, deposit, transfers) => rejectNow(tx, deposit, transfers, deps)),
    returned: (id, note) =>
      decide(id, 'returned', (tx, deposit, transfers) => returnedNow(tx, deposit, { transfers, ...note }, deps)),
    rescan: (id, txHash) => rescan(id, txHash, deps),
    rewind: (chain, blockNumber) => rewindTo(chain, blockNumber, deps),
  };
}

async function existing(db: Db, id: string): Promise<Deposit> {
  return (await findDeposit(db.read, id)) ?? fail('not_found', `There is no deposit ${id}.`);
}

/**
 * Checks the senders of what could be credited now, and returns them. The operator may credit a deposit whose senders could not be checked, but
 * never one with a sender that is known to be sanctioned. Transfers that were sent back do not count any more.
 */
async function checkSenders(id: string, { db, screen }: DecisionDeps): Promise<ReadonlySet<string>> {
  const waiting = (await transfersOf(db.read, id)).filter(
    ({ status, booking }) => status === 'final' && (booking === null || booking === 'suspense'),
  );
  const senders = waiting.map(({ chain, from_address: address }) => ({ chain, address }));
  if ((await screenAll(screen, senders)) === 'hit')
    fail(
      'conflict',
      `A sender of ${id} is sanctioned. Nothing was credited: ask your counsel what to do with the tokens.`,
    );
  return new Set(waiting.map(senderOf));
}

function senderOf({ chain, from_address: from }: Transfer): string {
  return `${chain} ${from}`;
}

/** Tokens may have come from somebody else while the senders were checked. Such tokens must not be credited without a check. */
function assertChecked(id: string, transfers: readonly Transfer[], checked: ReadonlySet<string>): void {
  if (transfers.every((transfer) => checked.has(senderOf(transfer)))) return;
  fail(
    'conflict',
    `Further tokens came for ${id} while its senders were checked. Nothing was credited: look at it again (admin deposit show), then repeat.`,
  );
}

interface Decision {
  transfers: Transfer[];
  reason: string;
}

async function creditNow(
  tx: Tx,
  deposit: Deposit,
  { transfers, reason, checked }: Decision & { checked: ReadonlySet<string> },
  deps: DecisionDeps,
): Promise<void> {
  const { id, status } = deposit;
  const pending = pendingOf(transfers);
  if (status === 'held_screening' && pending.length > 0) {
    assertChecked(id, pending, checked);
    return credit(tx, deposit, pending, deps);
  }
  if (status === 'failed_screening' || status === 'failed')
    fail(
      'conflict',
      `The deposit ${id} is ${status}, and is never credited. Send its tokens back, then note it with admin deposit returned.`,
    );
  const waiting = await inSuspense(tx, deposit, transfers, deps);
  if (waiting.length === 0 || !(isCredited(status) || status === 'expired_received'))
    fail('conflict', `The deposit ${id} is ${status}, and nothing of it waits to be credited.`);
  assertChecked(id, waiting, checked);
  await addCredit(tx, deposit, { transfers: waiting, from: 'suspense' }, deps);
  const nowMs = deps.clock.now();
  const batch = `deposit:${id}:release:${waiting[0]?.id}`;
  await deps.ledger.post(tx, batch, releaseOf(deposit, waiting, { reason, nowMs }));
}

/**
 * A refusal never notes that tokens were sent back. Otherwise the books would say so if the operator repeated a refusal whose answer was lost, or
 * if the sender was found to be sanctioned just before the refusal.
 */
async function rejectNow(tx: Tx, deposit: Deposit, transfers: Transfer[], deps: DecisionDeps): Promise<void> {
  const { id, status } = deposit;
  const nowMs = deps.clock.now();
  if (isOpen(status)) return move(tx, deposit, { to: 'failed', patch: { due_ms: nowMs } }, deps.events);
  if (status === 'held_screening') return refuse(tx, deposit, pendingOf(transfers), deps);
  const pending = isCredited(status) ? pendingOf(transfers) : [];
  if (pending.length > 0) {
    await suspend(tx, deposit, pending, deps);
    return setDue(tx, id, nowMs, null);
  }
  const isRefused = transfers.some(({ booking }) => booking === 'suspense');
  const why = isRefused
    ? 'its tokens in suspense are refused already. Once you have sent them back, note it with admin deposit returned.'
    : 'nothing of it waits for a decision.';
  fail('conflict', `The deposit ${id} is ${status}, and ${why}`);
}

/** Further tokens may have come since the operator has sent these back. So the operator names the transaction that brought them. */
async function returnedNow(
  tx: Tx,
  deposit: Deposit,
  { transfers, txHash, reason }: Decision & Returned,
  { clock, ledger }: DecisionDeps,
): Promise<void> {
  const { id } = deposit;
  const nowMs = clock.now();
  const brought = transfers.filter(({ tx_hash: hash }) => hash === txHash);
  if (brought.length === 0)
    fail('conflict', `The transaction ${txHash} brought nothing to ${id}. See those that did: admin deposit show.`);
  const waiting = brought.filter(({ booking }) => booking === 'suspense');
  if (waiting.length === 0) {
    const todo = pendingOf(brought).length > 0 ? ' If its tokens are to go back, use reject first.' : '';
    fail('conflict', `Nothing of the transaction ${txHash} is in suspense.${todo}`);
  }
  await book(tx, waiting, { from: 'suspense', to: 'returned' });
  await ledger.post(tx, `deposit:${id}:returned:${waiting[0]?.id}`, returnOf(deposit, waiting, { reason, nowMs }));
  await setDue(tx, id, nowMs, null);
}

/** The transfers that count and are not in the books yet. Their senders are checked. */
function pendingOf(transfers: readonly Transfer[]): Transfer[] {
  return transfers.filter(({ is_counted: isCounted, booking }) => isCounted && booking === null);
}

/**
 * The transfers that the operator can credit. If the sender of a further transfer could not be checked, the transfer goes into suspense first. So
 * every credit after the first one takes tokens out of suspense.
 */
async function inSuspense(
  tx: Tx,
  deposit: Deposit,
  transfers: readonly Transfer[],
  deps: DecisionDeps,
): Promise<Transfer[]> {
  const pending = isCredited(deposit.status) ? pendingOf(transfers) : [];
  if (pending.length > 0) await suspend(tx, deposit, pending, deps);
  return [...transfers.filter(({ booking }) => booking === 'suspense'), ...pending];
}

async function rescan(id: string, txHash: string, { db, clock, ids, nodesOf, nudge }: DecisionDeps): Promise<Deposit> {
  const { chain, address } = await existing(db, id);
  const reader = nodesOf(chain)?.first ?? fail('deposits_unavailable', `${chain} is not in the configuration.`);
  const found =
    (await reader.transfersOf(txHash, address)) ??
    fail('not_found', `The node of ${chain} does not know the transaction ${txHash}.`);
  const [first] = found;
  if (first === undefined) return fail('conflict', `The transaction ${txHash} brings nothing of ours to ${address}.`);
  await db.tx('deposits.rescan', async (tx) => {
    await tx.lock('deposit_chain', chain);
    const row = await findChain(tx, chain);
    if ((row?.final_number ?? -1) < first.block.number)
      fail('conflict', `The transaction ${txHash} is not final yet. The watcher will find it by itself.`);
    for (const transfer of found) {
      await upsertTransfer(tx, { id: ids.prefixed('deptx'), depositId: id, chain, found: transfer, isFinal: true });
    }
    await wake(tx, { chain, finalMs: row?.final_ms ?? 0, touched: [id] }, clock.now());
  });
  nudge();
  return existing(db, id);
}

async function rewindTo(chain: DepositChain, blockNumber: number, deps: DecisionDeps): Promise<Rewound> {
  const { db, clock, nodesOf, nudge } = deps;
  const reader = nodesOf(chain)?.first ?? fail('deposits_unavailable', `${chain} is not in the configuration.`);
  const block =
    (await reader.block(blockNumber)) ?? fail('conflict', `The node of ${chain} has no block ${blockNumber}.`);
  const rewound = await db.tx('deposits.rewind', async (tx) => {
    await tx.lock('deposit_chain', chain);
    const row = await findChain(tx, chain);
    if (row?.final_number === null || row === undefined || row.final_number < blockNumber)
      fail('conflict', `${chain} was not read up to block ${blockNumber} yet.`);
    // While a deposit is locked, no process books its transfers.
    const ids = await depositsAbove(tx, chain, blockNumber, 'unbooked');
    if (ids.length > 0) await tx.lock('deposit', ...ids);
    const orphans = await orphanUnbooked(tx, chain, blockNumber);
    const nowMs = clock.now();
    for (const id of ids) await setDue(tx, id, nowMs, null);
    // If the node does not know the time of the block, the block is at least older than what was above it.
    const ms = block.ms ?? Math.min(row.final_ms ?? 0, ...orphans.map((each) => each.block_ms));
    await rewind(tx, chain, { ...block, ms }, nowMs);
    await rewindMarks(tx, chain, blockNumber);
    return { orphaned: orphans.length, booked: await depositsAbove(tx, chain, blockNumber, 'booked') };
  });
  nudge();
  return rewound;
}
