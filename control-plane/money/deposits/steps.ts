// Drives one deposit: reads its facts, plans, asks the network, and applies the plan if it is still the same under the lock of the deposit.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { centsOfUnits, tokenText } from './chains.ts';
import { findChain } from './chains-store.ts';
import { doubtAbout, type NodesOf } from './confirm.ts';
import { creditedState, type Facts, type Plan, planOf, sumOf } from './plan.ts';
import { creditOf, suspenseOf } from './posting.ts';
import { type Screen, screenAll, type Verdict } from './screening.ts';
import { move } from './states.ts';
import { type Deposit, findDeposit, setDue } from './store.ts';
import { setBooking, setCounted, type Transfer, transfersOf } from './transfers-store.ts';

export interface StepDeps {
  db: Db;
  clock: Clock;
  log: Log;
  ledger: Pick<Ledger, 'post'>;
  events: Events;
  nodesOf: NodesOf;
  screen: Screen;
  toleranceUnits: bigint;
}

/** A node that does not confirm a transfer is asked again after this time. */
const CONFIRM_RETRY_MS = 30_000;
/** If nobody could check the senders, they are checked again after this time. */
const SCREEN_RETRY_MS = 5 * 60_000;

/** What the nodes and the check of the senders have answered about a plan. */
interface Answer {
  doubt?: string | undefined;
  verdict?: Verdict | undefined;
}

export async function driveDeposit(id: string, deps: StepDeps): Promise<void> {
  const { db, log, clock } = deps;
  const facts = await factsOf(db.read, id, deps);
  if (facts === undefined) return;
  const plan = planOf(facts);
  const answer = await askAbout(plan, facts.deposit, deps);
  if (answer.doubt !== undefined)
    log.error(
      { deposit_id: id, detail: answer.doubt },
      'a transfer is not confirmed; its deposit waits and is tried again',
    );
  await db.tx('deposits.drive', async (tx) => {
    await tx.lock('deposit', id);
    const now = await factsOf(tx, id, deps);
    if (now === undefined) return;
    const again = planOf(now);
    // The facts have changed. The deposit stays due, and the next drive plans with the new facts.
    if (!isSame(plan, again)) return;
    await apply(tx, now.deposit, { plan: again, answer, nowMs: clock.now() }, deps);
  });
}

/** Credits the counted transfers, because the operator or the verdict about the senders allows it. */
export async function credit(
  tx: Tx,
  deposit: Deposit,
  transfers: readonly Transfer[],
  { events, ledger, clock, toleranceUnits }: Pick<StepDeps, 'events' | 'ledger' | 'clock' | 'toleranceUnits'>,
): Promise<void> {
  const nowMs = clock.now();
  const units = sumOf(transfers);
  const to = creditedState(deposit, units, toleranceUnits);
  const cents = Number(centsOfUnits(units));
  await book(tx, transfers, { from: null, to: 'wallet' });
  const patch = { due_ms: nowMs, credited_units: units, credited_cents: cents };
  await move(tx, deposit, { to, patch, data: { credited_cents: cents, amount: tokenText(units) } }, events);
  await ledger.post(tx, `deposit:${deposit.id}:credit`, creditOf(deposit, transfers, nowMs));
}

/** Puts the counted transfers into suspense, because a sender is sanctioned or the operator does not trust it. They are never credited. */
export async function refuse(
  tx: Tx,
  deposit: Deposit,
  transfers: readonly Transfer[],
  { events, ledger, clock }: Pick<StepDeps, 'events' | 'ledger' | 'clock'>,
): Promise<void> {
  const nowMs = clock.now();
  await book(tx, transfers, { from: null, to: 'suspense' });
  await move(tx, deposit, { to: 'failed_screening', patch: { due_ms: nowMs } }, events);
  await ledger.post(tx, `deposit:${deposit.id}:refused`, suspenseOf(deposit, transfers, nowMs));
}

/** @throws Error if the booking of a transfer has changed, which rolls the transaction back */
export async function book(
  tx: Tx,
  transfers: readonly Transfer[],
  change: Parameters<typeof setBooking>[2],
): Promise<void> {
  const ids = transfers.map(({ id }) => id);
  const changed = await setBooking(tx, ids, change);
  if (changed !== ids.length) throw new Error(`transfers of a deposit were booked twice: ${ids.join(', ')}`);
}

async function factsOf(query: Query, id: string, { toleranceUnits }: StepDeps): Promise<Facts | undefined> {
  const deposit = await findDeposit(query, id);
  if (deposit === undefined) return undefined;
  const transfers = await transfersOf(query, id);
  return { deposit, transfers, chain: await findChain(query, deposit.chain), toleranceUnits };
}

async function askAbout(plan: Plan, deposit: Deposit, { nodesOf, screen }: StepDeps): Promise<Answer> {
  if (plan.kind === 'settle') return { doubt: await doubtAbout(deposit, plan.transfers, nodesOf) };
  if (plan.kind !== 'screen') return {};
  const senders = [...new Set(plan.transfers.map((transfer) => transfer.from_address))];
  return {
    verdict: await screenAll(
      screen,
      senders.map((address) => ({ chain: deposit.chain, address })),
    ),
  };
}

function isSame(plan: Plan, again: Plan): boolean {
  const textOf = (each: Plan): string =>
    JSON.stringify(
      'transfers' in each ? [each.kind, each.transfers.map(({ id, block_hash: hash }) => [id, hash])] : each,
    );
  return textOf(plan) === textOf(again);
}

async function apply(
  tx: Tx,
  deposit: Deposit,
  { plan, answer, nowMs }: { plan: Plan; answer: Answer; nowMs: number },
  deps: StepDeps,
): Promise<void> {
  const { events, ledger } = deps;
  switch (plan.kind) {
    case 'wait':
      return setDue(tx, deposit.id, null, deposit.note);
    case 'move':
      return move(tx, deposit, { to: plan.to, patch: { due_ms: nowMs, tx_hash: plan.txHash } }, events);
    case 'suspend':
      await book(tx, plan.transfers, { from: null, to: 'suspense' });
      await setDue(tx, deposit.id, nowMs, deposit.note);
      return ledger.post(
        tx,
        `deposit:${deposit.id}:suspense:${plan.transfers[0]?.id}`,
        suspenseOf(deposit, plan.transfers, nowMs),
      );
    case 'settle':
      if (answer.doubt !== undefined) return setDue(tx, deposit.id, nowMs + CONFIRM_RETRY_MS, answer.doubt);
      await setCounted(
        tx,
        plan.transfers.map(({ id }) => id),
      );
      return move(
        tx,
        deposit,
        { to: 'settled', patch: { due_ms: nowMs, tx_hash: plan.transfers[0]?.tx_hash ?? null } },
        events,
      );
    case 'screen':
      if (answer.verdict === 'hit') return refuse(tx, deposit, plan.transfers, deps);
      if (answer.verdict === 'clear') return credit(tx, deposit, plan.transfers, deps);
      if (deposit.status === 'held_screening') return setDue(tx, deposit.id, nowMs + SCREEN_RETRY_MS, null);
      return move(tx, deposit, { to: 'held_screening', patch: { due_ms: nowMs + SCREEN_RETRY_MS } }, events);
  }
}
