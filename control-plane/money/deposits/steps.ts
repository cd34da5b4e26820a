// Drives one deposit: reads its facts, plans, asks the network, and applies the plan if it is still the same under the lock of the deposit.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { isBehind } from './accounts-store.ts';
import { centsOfUnits, tokenText } from './chains.ts';
import { findChain } from './chains-store.ts';
import { doubtAbout, type NodesOf } from './confirm.ts';
import { creditedState, type Facts, isCredited, type Plan, planOf, sumOf } from './plan.ts';
import { creditOf, moreOf, suspenseOf } from './posting.ts';
import { type Screen, screenAll, type Verdict } from './screening.ts';
import { DEPOSIT_STATES, mayMove } from '../../../shared/states.ts';
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
const UNCHECKED = 'nobody could check the sender of a further transfer';

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
    const again = planOf('transfers' in plan ? { ...now, transfers: onlyKnown(now.transfers, facts) } : now);
    // The facts have changed. The deposit stays due, and the next drive plans with the new facts.
    if (!isSame(plan, again)) return;
    await apply(tx, now.deposit, { plan: again, answer, nowMs: clock.now() }, deps);
  });
}

type CreditDeps = Pick<StepDeps, 'events' | 'ledger' | 'clock' | 'toleranceUnits'>;

/** Credits the counted transfers, because the operator or the verdict about the senders allows it. */
export async function credit(
  tx: Tx,
  deposit: Deposit,
  transfers: readonly Transfer[],
  deps: CreditDeps,
): Promise<void> {
  const { events, ledger, clock, toleranceUnits } = deps;
  const nowMs = clock.now();
  const units = sumOf(transfers);
  const to = creditedState(deposit, units, toleranceUnits);
  const cents = Number(centsOfUnits(units));
  await book(tx, transfers, { from: null, to: 'wallet' });
  const patch = { due_ms: nowMs, credited_units: units, credited_cents: cents };
  await move(tx, deposit, { to, patch, data: { credited_cents: cents, amount: tokenText(units) } }, events);
  await ledger.post(tx, `deposit:${deposit.id}:credit`, creditOf(deposit, transfers, nowMs));
}

/** Adds transfers to what was credited before, and moves the deposit. The caller posts them. */
export async function addCredit(
  tx: Tx,
  deposit: Deposit,
  { transfers, from }: { transfers: readonly Transfer[]; from: 'suspense' | null },
  { events, clock, toleranceUnits }: CreditDeps,
): Promise<void> {
  const { status, credited_units: unitsBefore, credited_cents: centsBefore } = deposit;
  const units = sumOf(transfers);
  const totalUnits = (unitsBefore ?? 0n) + units;
  const cents = (centsBefore ?? 0) + Number(centsOfUnits(units));
  const fits = creditedState(deposit, totalUnits, toleranceUnits);
  // The tolerance may have been changed since the deposit was complete. More tokens never make it incomplete again.
  const to = mayMove(DEPOSIT_STATES, status, fits) ? fits : status;
  const patch = { due_ms: clock.now(), credited_units: totalUnits, credited_cents: cents };
  await book(tx, transfers, { from, to: 'wallet' });
  await move(tx, deposit, { to, patch, data: { credited_cents: cents, amount: tokenText(units) } }, events);
}

/** Puts the counted transfers into suspense, because a sender is sanctioned or the operator does not trust it. They are never credited. */
export async function refuse(
  tx: Tx,
  deposit: Deposit,
  transfers: readonly Transfer[],
  { events, ledger, clock }: Pick<StepDeps, 'events' | 'ledger' | 'clock'>,
): Promise<void> {
  const nowMs = clock.now();
  await move(tx, deposit, { to: 'failed_screening', patch: { due_ms: nowMs } }, events);
  // After a rewind, nothing may be left of what was counted.
  if (transfers.length === 0) return;
  await book(tx, transfers, { from: null, to: 'suspense' });
  await ledger.post(tx, `deposit:${deposit.id}:refused`, suspenseOf(deposit, transfers, nowMs));
}

/** Puts transfers into suspense. The deposit stays as it is. */
export async function suspend(
  tx: Tx,
  deposit: Deposit,
  transfers: readonly Transfer[],
  { ledger, clock }: Pick<StepDeps, 'ledger' | 'clock'>,
): Promise<void> {
  await book(tx, transfers, { from: null, to: 'suspense' });
  const batch = `deposit:${deposit.id}:suspense:${transfers[0]?.id}`;
  await ledger.post(tx, batch, suspenseOf(deposit, transfers, clock.now()));
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
  // The chain is read before the accounts that are behind, because the transaction that moves its final block stores those too.
  const chain = await findChain(query, deposit.chain);
  const { head_number, final_ms } = chain ?? { head_number: null, final_ms: null };
  const isOver = final_ms !== null && final_ms > deposit.expires_ms && final_ms <= deposit.watched_until_ms;
  const mustWait = isOver && (await isBehind(query, deposit.chain, deposit.address));
  return { deposit, transfers, chain: { head_number, final_ms: mustWait ? null : final_ms }, toleranceUnits };
}

async function askAbout(plan: Plan, deposit: Deposit, { nodesOf, screen }: StepDeps): Promise<Answer> {
  if (plan.kind === 'settle') return { doubt: await doubtAbout(deposit, plan.transfers, nodesOf) };
  if (plan.kind !== 'screen') return {};
  const senders = plan.transfers.map(({ from_address: address }) => ({ chain: deposit.chain, address }));
  return { verdict: await screenAll(screen, senders) };
}

/** Transfers that came after the plan are left to the next one. Otherwise a stranger who goes on sending tiny ones would make each plan stale. */
function onlyKnown(transfers: readonly Transfer[], before: Facts): Transfer[] {
  const known = new Set(before.transfers.map(({ id }) => id));
  return transfers.filter(({ id }) => known.has(id));
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
  const { id, status, note } = deposit;
  switch (plan.kind) {
    case 'wait':
      return setDue(tx, id, null, note);
    case 'move':
      return move(tx, deposit, { to: plan.to, patch: { due_ms: nowMs, tx_hash: plan.txHash } }, deps.events);
    case 'suspend':
      await suspend(tx, deposit, plan.transfers, deps);
      return setDue(tx, id, nowMs, note);
    case 'settle': {
      if (answer.doubt !== undefined) return setDue(tx, id, nowMs + CONFIRM_RETRY_MS, answer.doubt);
      const ids = plan.transfers.map((transfer) => transfer.id);
      await setCounted(tx, ids);
      if (status !== 'confirming') return setDue(tx, id, nowMs, null);
      const patch = { due_ms: nowMs, tx_hash: plan.transfers[0]?.tx_hash ?? null };
      return move(tx, deposit, { to: 'settled', patch }, deps.events);
    }
    case 'screen': {
      const screened = { transfers: plan.transfers, verdict: answer.verdict };
      return isCredited(status) ? decideMore(tx, deposit, screened, deps) : decideFirst(tx, deposit, screened, deps);
    }
  }
}

interface Screened {
  transfers: readonly Transfer[];
  verdict: Verdict | undefined;
}

/** Applies the verdict about the senders of the first credit. */
async function decideFirst(tx: Tx, deposit: Deposit, { transfers, verdict }: Screened, deps: StepDeps): Promise<void> {
  if (verdict === 'hit') return refuse(tx, deposit, transfers, deps);
  if (verdict === 'clear') return credit(tx, deposit, transfers, deps);
  const retryMs = deps.clock.now() + SCREEN_RETRY_MS;
  if (deposit.status === 'held_screening') return setDue(tx, deposit.id, retryMs, null);
  return move(tx, deposit, { to: 'held_screening', patch: { due_ms: retryMs } }, deps.events);
}

/** Applies the verdict about the sender of transfers that have come in time after the first credit. */
async function decideMore(tx: Tx, deposit: Deposit, { transfers, verdict }: Screened, deps: StepDeps): Promise<void> {
  const { clock, ledger } = deps;
  const nowMs = clock.now();
  if (verdict === 'clear') {
    await addCredit(tx, deposit, { transfers, from: null }, deps);
    const batch = `deposit:${deposit.id}:credit:${transfers[0]?.id}`;
    return ledger.post(tx, batch, moreOf(deposit, transfers, nowMs));
  }
  if (verdict !== 'hit') return setDue(tx, deposit.id, nowMs + SCREEN_RETRY_MS, UNCHECKED);
  await suspend(tx, deposit, transfers, deps);
  return setDue(tx, deposit.id, nowMs, null);
}
