// Bounds on what is given away: credits for uncharged time and payments for our own outages are granted up to a bound. The operator decides
// about the rest.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import { accruedUcents, dollarText } from '../../../shared/money.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { earnedByKind } from '../ledger/suppliers.ts';
import {
  areEnough,
  type Bound,
  BOUND_WINDOW_MS,
  FLAG_WINDOW_MS,
  isSuspect,
  type LossBounds,
  splitAt,
} from './bounds.ts';
import { outageOf } from './outages.ts';
import { OWN_OUTAGE_PAYMENT, decisionOf, holdingOf } from './posting.ts';
import * as store from './store.ts';

export interface NewFreeTime {
  /** Id of the rental. */
  subjectId: string;
  orgId: string;
  supplierId: string;
  machineId: string;
  cause: store.FreeTime['cause'];
  rateUcentsPerHour: bigint;
  supplierBps: number;
  fromMs: number;
  /** The part of the time until now that would have been charged. */
  countedMs: number;
  /** The proof of the outage. */
  evidence: string;
}

export interface OwnOutagePayment {
  /** Id of the transfer. It is deterministic, so the payment is posted once. */
  id: string;
  subjectId: string;
  orgId: string;
  supplierId: string;
  supplierBps: number;
  amountUcents: bigint;
  fromMs: number;
  untilMs: number;
  evidence: string;
}

export interface Credits {
  /** The rental is not charged from now until `end`. */
  begin(tx: Tx, time: NewFreeTime): Promise<void>;
  /** The rental is charged again from `untilMs` on, or has ended. The worth of the time above the bounds is charged and held. */
  end(tx: Tx, subjectId: string, untilMs: number): Promise<void>;
  /** The wall clock was set forward by this much. Current uncharged time must not become longer because of it. */
  skip(tx: Tx, stepMs: number): Promise<void>;
  /** Pays a supplier for an outage of our own, from our revenue. The amount above the bound is held. */
  payOwnOutage(tx: Tx, payment: OwnOutagePayment): Promise<void>;
  /**
   * The customer gets the credit, or the supplier gets the payment. @throws ServiceError `not_found`, `conflict` if it is decided already
   */
  release(id: string, note: string): Promise<store.HeldCredit>;
  /** The customer gets nothing back for the time, or the supplier gets no payment. @throws ServiceError as `release` */
  refuse(id: string, note: string): Promise<store.HeldCredit>;
  /**
   * Removes the flag. Outages before this moment do not count any more. @throws ServiceError `not_found` for an organisation that is not
   * flagged
   */
  trust(orgId: string, note: string): Promise<store.CreditFlag>;
}

interface CreditsDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  ledger: Ledger;
  events: Events;
  bounds: LossBounds;
  /** Machines on which rentals of other organisations were charged for at least an hour since `sinceMs`. */
  servedOthers(query: Query, orgId: string, sinceMs: number): Promise<ReadonlySet<string>>;
}

export function openCredits(deps: CreditsDeps): Credits {
  const { db } = deps;
  return {
    begin: (tx, time) => begin(tx, time, deps),
    end: (tx, subjectId, untilMs) => end(tx, subjectId, untilMs, deps),
    skip: (tx, stepMs) => store.shortenFreeTimes(tx, stepMs),
    payOwnOutage: (tx, payment) => payOwnOutage(tx, payment, deps),
    release: (id, note) => decide(id, { state: 'released', note }, deps),
    refuse: (id, note) => decide(id, { state: 'refused', note }, deps),
    trust: (orgId, note) =>
      db.tx('credits.trust', async (tx) => {
        await tx.lock('org', orgId);
        return trust(tx, orgId, note, deps);
      }),
  };
}

async function begin(tx: Tx, time: NewFreeTime, { ids, clock }: CreditsDeps): Promise<void> {
  const nowMs = clock.now();
  const row = {
    id: ids.prefixed('free'),
    subject_id: time.subjectId,
    org_id: time.orgId,
    supplier_id: time.supplierId,
    machine_id: time.machineId,
    cause: time.cause,
    rate_ucents_per_hour: time.rateUcentsPerHour,
    supplier_bps: time.supplierBps,
    from_ms: time.fromMs,
    counted_ms: time.countedMs,
    counted_at_ms: nowMs,
    ended_ms: null,
    free_ms: null,
    granted_ucents: 0n,
    held_ucents: 0n,
    evidence: time.evidence,
  };
  const outageId = await outageOf(tx, row, { newId: ids.prefixed('out'), nowMs });
  await store.beginFreeTime(tx, { ...row, outage_id: outageId });
}

async function end(tx: Tx, subjectId: string, untilMs: number, deps: CreditsDeps): Promise<void> {
  const time = await store.openFreeTime(tx, subjectId);
  if (time === undefined) return;
  const freeMs = Math.max(0, time.counted_ms + untilMs - time.counted_at_ms);
  const worthUcents = accruedUcents(time.rate_ucents_per_hour, freeMs);
  const nowMs = deps.clock.now();
  // The uncharged time is ended before the bounds are read, because they must count it as one more outage of the organisation.
  await store.endFreeTime(tx, time.id, { endedMs: nowMs, freeMs, grantedUcents: 0n, heldUcents: 0n });
  const { grantedUcents, heldUcents, why } = splitAt(worthUcents, await boundsOf(tx, time, deps));
  await store.endFreeTime(tx, time.id, { endedMs: nowMs, freeMs, grantedUcents, heldUcents });
  if (heldUcents === 0n) return;
  const availableUcents = await deps.ledger.availableNow(tx, wallet(time.org_id));
  const coveredUcents = availableUcents > 0n ? availableUcents : 0n;
  const walletUcents = coveredUcents < heldUcents ? coveredUcents : heldUcents;
  const held = await hold(
    tx,
    {
      kind: 'credit',
      why,
      free_time_id: time.id,
      cause: time.cause,
      subject_id: subjectId,
      org_id: time.org_id,
      supplier_id: time.supplier_id,
      amount_ucents: heldUcents,
      wallet_ucents: walletUcents,
      supplier_bps: time.supplier_bps,
      from_ms: time.from_ms,
      until_ms: untilMs,
      evidence: time.evidence,
    },
    deps,
  );
  await deps.ledger.post(tx, `${held.id}:held`, holdingOf(held));
  await deps.events.append(tx, {
    type: 'instance.credit_held',
    subjectId,
    orgId: time.org_id,
    data: { credit_id: held.id, because: why, reason: heldWords(held) },
  });
}

/** The text for the customer among the events of the instance. */
function heldWords({ id, amount_ucents: ucents, evidence }: store.HeldCredit): string {
  return `$${dollarText(ucents)} for time in which the instance was unreachable stays charged until the operator has decided about the credit ${id}, because more was credited in 24 hours than is granted without a review: ${evidence}`;
}

/** The bounds of a credit for this time. Nobody is suspected if the customer cannot be the cause, as in an outage of our own. */
async function boundsOf(tx: Tx, time: store.FreeTime, deps: CreditsDeps): Promise<[Bound, ...Bound[]]> {
  const sinceMs = deps.clock.now() - BOUND_WINDOW_MS;
  const { orgCreditsUcents, supplierCreditsUcents } = deps.bounds;
  const usedUcents = await store.grantedToOrg(tx, time.org_id, sinceMs);
  const bounds: [Bound, ...Bound[]] = [{ why: 'org_bound', usedUcents, maxUcents: orgCreditsUcents }];
  if (time.cause !== 'own_outage') {
    const lostUcents = await store.grantedOnSupplier(tx, time.supplier_id, sinceMs);
    bounds.push({ why: 'supplier_bound', usedUcents: lostUcents, maxUcents: supplierCreditsUcents });
  }
  const isFlagged = time.cause === 'outage' && (await isUnderSuspicion(tx, time.org_id, deps));
  if (isFlagged) bounds.push({ why: 'flagged', usedUcents: 0n, maxUcents: 0n });
  return bounds;
}

async function isUnderSuspicion(tx: Tx, orgId: string, { clock, log, servedOthers }: CreditsDeps): Promise<boolean> {
  const flag = await store.findFlag(tx, orgId);
  if (flag?.flagged_ms != null) return true;
  const nowMs = clock.now();
  const sinceMs = Math.max(nowMs - FLAG_WINDOW_MS, flag?.trusted_ms ?? 0);
  const machineIds = await store.outagesOfOrg(tx, orgId, sinceMs);
  // Most organisations have few outages. What others did on the machines is much to read, and thousands of outages may end together.
  if (!areEnough(machineIds)) return false;
  const failedOthers = await store.machinesThatFailedOthers(tx, orgId, sinceMs);
  const servedWell = new Set([...(await servedOthers(tx, orgId, sinceMs))].filter((id) => !failedOthers.has(id)));
  if (!isSuspect(machineIds, servedWell)) return false;
  const telling = machineIds.filter((id) => servedWell.has(id));
  const detail = `${telling.length} outages on ${new Set(telling).size} machines that served others well in the same time`;
  await store.writeFlag(tx, { org_id: orgId, flagged_ms: nowMs, trusted_ms: flag?.trusted_ms ?? null, detail });
  log.error(
    { org_id: orgId, detail, machine_ids: [...new Set(telling)] },
    'an organisation fails on machines that serve others well: credits for its outages wait for the operator (admin credit list, admin credit trust)',
  );
  return true;
}

async function payOwnOutage(tx: Tx, payment: OwnOutagePayment, deps: CreditsDeps): Promise<void> {
  const { supplierId, amountUcents } = payment;
  if (amountUcents === 0n) return;
  const sinceMs = deps.clock.now() - BOUND_WINDOW_MS;
  const usedUcents = await earnedByKind(tx, supplierId, { kind: OWN_OUTAGE_PAYMENT.atOnce, sinceMs });
  const maxUcents = deps.bounds.supplierPaymentsUcents;
  const { grantedUcents, heldUcents, why } = splitAt(amountUcents, [{ why: 'supplier_bound', usedUcents, maxUcents }]);
  if (grantedUcents > 0n) {
    const leg = { id: payment.id, ...OWN_OUTAGE_PAYMENT.leg(supplierId), amountUcents: grantedUcents };
    const { subjectId, evidence, untilMs: effectiveMs } = payment;
    const transfer = { ...leg, kind: OWN_OUTAGE_PAYMENT.atOnce, subjectId, evidence, effectiveMs };
    await deps.ledger.post(tx, payment.id, [transfer]);
  }
  if (heldUcents === 0n) return;
  await hold(
    tx,
    {
      kind: 'payment',
      why,
      free_time_id: null,
      cause: 'own_outage',
      subject_id: payment.subjectId,
      org_id: payment.orgId,
      supplier_id: supplierId,
      amount_ucents: heldUcents,
      wallet_ucents: 0n,
      supplier_bps: payment.supplierBps,
      from_ms: payment.fromMs,
      until_ms: payment.untilMs,
      evidence: payment.evidence,
    },
    deps,
  );
}

type NewHeld = Omit<store.HeldCredit, 'id' | 'state' | 'note' | 'created_ms' | 'decided_ms'>;

async function hold(tx: Tx, what: NewHeld, { ids, clock, log }: CreditsDeps): Promise<store.HeldCredit> {
  const row: store.HeldCredit = {
    ...what,
    id: ids.prefixed('crd'),
    state: 'held',
    note: null,
    created_ms: clock.now(),
    decided_ms: null,
  };
  await store.insertHeld(tx, row);
  log.error(
    {
      credit_id: row.id,
      kind: row.kind,
      because: row.why,
      instance_id: row.subject_id,
      org_id: row.org_id,
      supplier_id: row.supplier_id,
      dollars: dollarText(row.amount_ucents),
    },
    'credits or payments exceed the daily bound: the rest waits for the operator (admin credit list)',
  );
  return row;
}

async function decide(
  id: string,
  { state, note }: { state: 'released' | 'refused'; note: string },
  { db, clock, ledger }: CreditsDeps,
): Promise<store.HeldCredit> {
  const orgId = (await store.findHeld(db.read, id))?.org_id ?? '';
  return db.tx(`credits.${state}`, async (tx) => {
    await tx.lock('org', orgId);
    const row = await store.findHeld(tx, id);
    if (row === undefined) return fail('not_found', `There is no held credit ${id}.`);
    if (row.state !== 'held') return fail('conflict', `The credit ${id} was ${row.state} already.`);
    const nowMs = clock.now();
    await ledger.post(tx, `${id}:${state}`, decisionOf(row, state));
    await store.decideHeld(tx, id, { state, note, nowMs });
    return { ...row, state, note, decided_ms: nowMs };
  });
}

async function trust(tx: Tx, orgId: string, note: string, { clock }: CreditsDeps): Promise<store.CreditFlag> {
  const flag = await store.findFlag(tx, orgId);
  if (flag?.flagged_ms == null) return fail('not_found', `The organisation ${orgId} is not flagged.`);
  const row = { org_id: orgId, flagged_ms: null, trusted_ms: clock.now(), detail: `lifted: ${note}` };
  await store.writeFlag(tx, row);
  return row;
}
