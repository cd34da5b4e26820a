// The life of a request to a model: it takes a slot, holds money, is answered, and is settled exactly once.
//
//   serve ──► slot ──► hold + receipt `open` ──► answer ──► close ──► receipt `settled` or `released`, hold gone, slot free
//              │        (one transaction)          │          (one transaction)
//              └─ full: stream_limit_exceeded      └─ throws: closed here, free of charge
//
// 1. Slot. The number of open requests is limited for each API key, and for all keys of an organisation. Slots are counted in memory. So
//    the limits hold in each process: with three control planes on one database, a key may have three times its limit open.
// 2. Hold. The most that the request can cost (`boundUcents`, see price.ts) is set aside in the ledger before a model server is asked.
//    If the balance does not cover it, the request is refused with `insufficient_balance` and nothing was computed. Nobody waits for the
//    disk here: a crash that takes the hold back ends the request too.
// 3. Receipt. Its row is written in the transaction of the hold, with state `open` and the id of this process. The ids of hold and charge
//    derive from its id.
// 4. Answer. The caller of `serve` asks the server and streams. No transaction is open meanwhile.
// 5. Close. `closeReceipt` (states.ts) moves the receipt, gives the hold back and posts the charge, in one transaction:
//      settled   Something is charged, never more than was held.
//      released  Nothing is charged: refused, failed, left before the answer began, or lost with its process.
//    The README of the room says who pays for each ending.
//
// Example in microcents: a prompt of at most 1 000 tokens at 50 and an answer of at most 500 tokens at 200 hold
// 1 000 * 50 + 500 * 200 = 150 000. The server counts 800 and 120 tokens: 800 * 50 + 120 * 200 = 64 000 are charged, 86 000 are free again.
//
// Sweep. A process may die between 3 and 5. Its receipts stay `open` and would hold money for ever. Several control planes may serve requests
// (base/db/members.ts), and each receipt names its own. `living` has the receipts that this process serves. `sweep`, which only the primary
// runs, closes an open receipt free of charge with the ending `process_ended` in two cases:
//      own      The receipt is of this process, and not in `living`. Its close has failed, because the database was away.
//      foreign  Its process is not among those that may write now, so that process cannot charge for it any more.
// The sweep reads all rows first, and then `living` and the other members. A request enters `living` before its row is written, and a process
// is a member before it writes its first receipt. So the server of each row that was read is found, if it lives. In the other order, a process
// that starts in between would lose its requests.
//
// Shutdown. `close` waits for open requests, then aborts the rest with `unavailable`, and waits until each of them is closed.
//
// What must never happen: a server is asked without a hold; a receipt is closed twice with two charges (`close` keeps its first promise, and
// `closeReceipt` changes only an `open` row); more is charged than was held; the sweep closes a request that is being served.
import type { Metadata } from '../../../shared/api/receipt.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail, ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import { openRing, type Ring } from '../../../shared/ring.ts';
import type { Db } from '../../base/db/db.ts';
import type { Members } from '../../base/db/members.ts';
import type { Caller } from '../../base/http/route.ts';
import { wallet } from '../../money/ledger/accounts.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import type { Callable } from '../catalog/catalog.ts';
import { type Attempts, openAttempts } from './attempts.ts';
import type { Counts } from './counts.ts';
import { failedOutcome, freeOutcome, closeReceipt, type OpenReceipt, openReceipt, type Outcome } from './states.ts';
import * as store from './store.ts';

export interface NewRequest {
  caller: Caller;
  requestId: string;
  gone: AbortSignal;
  callable: Callable;
  /** The most that the request can cost, in microcents. It is held until the request is closed. */
  boundUcents: bigint;
  /** The longest answer of a chat, in tokens, which `boundUcents` pays for. */
  maxTokens?: number;
  /** What the caller has written into its body for the receipt. */
  body: { user?: string | undefined; safety_identifier?: string | undefined; metadata?: Metadata | undefined };
}

export interface OpenRequest {
  /** The id of its receipt. */
  id: string;
  /** Aborts if the caller has left, or, with a ServiceError as reason, if this process stops. */
  signal: AbortSignal;
  /** Aborts, with a ServiceError as reason, only if this process stops. */
  stopping: AbortSignal;
  /** The servers that are asked for it. */
  attempts: Attempts;
  /** Settles the receipt or releases its hold, once. Later calls wait for the first one. */
  close(outcome: Outcome): Promise<void>;
}

export interface Requests {
  /**
   * Opens a request and calls `answer`, which must close it (a stream may close it later). If `answer` throws, the request is closed here, free
   * of charge.
   * @throws ServiceError `stream_limit_exceeded`, `insufficient_balance`, and what `answer` throws
   */
  serve<T>(request: NewRequest, answer: (open: OpenRequest) => Promise<T>): Promise<T>;
  /** Closes, free of charge, the open receipts that no process serves any more. Returns how many it has closed. */
  sweep(signal: AbortSignal): Promise<number>;
  /** How many requests are open. */
  open(): number;
  /** Waits up to `graceMs` for open requests, aborts the rest, and waits until all are closed. */
  close(graceMs: number): Promise<void>;
}

/** How many requests may be open at once in this process. */
export interface OpenMax {
  perKey: number;
  /** All keys of an organisation share this limit. */
  perOrg: number;
}

export interface RequestsDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  ledger: Ledger;
  members: Members;
  openMax(): OpenMax;
  /** Refuses a key that was revoked or has expired since the request was authenticated. */
  refuseKey(principalId: string): never;
  counts: Counts;
}

/** Headers that name the receipt of this answer. */
export function receiptHeader({ id }: OpenRequest): Record<string, string> {
  return { 'x-receipt-id': id };
}

/**
 * Calls `act` when the signal aborts, or at once if it has. The returned function ends that. AbortSignal.any would cost a request as much as a
 * statement of the database.
 */
export function onAbort(signal: AbortSignal, act: () => void): () => void {
  if (signal.aborted) act();
  else signal.addEventListener('abort', act);
  return () => signal.removeEventListener('abort', act);
}

/** Logged if another process has closed the receipt because it took this process for dead, or if the disk did not store the receipt. */
const UNCHARGED = 'an answered request was not open any more, so nothing was charged for it';
/** Number of rows that the sweep reads with one statement. */
const SWEEP_ROWS = 200;

export function openRequests(deps: RequestsDeps): Requests {
  const { clock, db, ids, ledger, members } = deps;
  const slots = openSlots(deps.openMax);
  let stopped: ServiceError | undefined;
  const living = openRing<Living>();

  const begin = async (request: NewRequest): Promise<OpenRequest> => {
    const { caller, callable, boundUcents } = request;
    const id = ids.prefixed('rcp');
    const receipt = { ...receiptOf(id, request, clock.now()), member: members.id };
    const { signal, stopping, leave } = enter(id, request, { living, slots, stopped });
    try {
      const opened = await db.hot(openReceipt(receipt));
      if (opened === 'not_covered') await ledger.refuse(db.read, wallet(caller.orgId), boundUcents, shorterOf(request));
      if (opened === 'key_ended') deps.refuseKey(caller.principalId);
    } catch (error) {
      leave();
      throw error;
    }
    const attempts = openAttempts(clock);
    let closed: Promise<void> | undefined;
    const close = (outcome: Outcome): Promise<void> =>
      db
        .hot(closeReceipt(receipt, outcome, { nowMs: clock.now(), attempts: attempts.list() }))
        .then((wasOpen) => {
          if (!wasOpen) deps.log.error({ receipt: id }, UNCHARGED);
          deps.counts.ended(callable.model.id, outcome.ending);
        })
        .finally(leave);
    return {
      id,
      attempts,
      signal,
      stopping,
      close: (outcome) => {
        closed ??= close(outcome);
        return closed;
      },
    };
  };

  return {
    serve: async (request, answer) => {
      const open = await begin(request);
      try {
        return await answer(open);
      } catch (error) {
        await open.close(failedOutcome(error, open.signal));
        throw error;
      }
    },
    sweep: (signal) => sweep(living, signal, deps),
    open: () => living.size,
    close: async (graceMs) => {
      const closed = (): Promise<unknown> => Promise.all(living.list().map(({ over }) => over));
      const over = new AbortController();
      // The timer would keep a command alive that has opened the rooms for itself.
      if (graceMs > 0) await Promise.race([closed(), clock.sleep(graceMs, over.signal)]).finally(() => over.abort());
      stopped = new ServiceError('unavailable', { detail: 'The service restarts. Send the request again.' });
      for (const each of living.list()) each.stop(stopped);
      await closed();
    },
  };
}

interface Entrance {
  living: Ring<Living>;
  slots: Slots;
  /** The error for all requests once this process stops; undefined before. */
  stopped: ServiceError | undefined;
}

/** Takes a slot and protects the receipt from the sweep. `leave` undoes both, also if the close has failed. */
function enter(
  id: string,
  { caller, gone }: NewRequest,
  { living, slots, stopped }: Entrance,
): { signal: AbortSignal; stopping: AbortSignal; leave(): void } {
  const letGo = slots.take(caller);
  const over = Promise.withResolvers<void>();
  const ending = new AbortController();
  const stopping = new AbortController();
  const stop = (reason: ServiceError): void => {
    stopping.abort(reason);
    ending.abort(reason);
  };
  const forget = onAbort(gone, () => ending.abort(gone.reason));
  if (stopped !== undefined) stop(stopped);
  const depart = living.add({ id, over: over.promise, stop });
  const leave = (): void => {
    forget();
    depart();
    letGo();
    over.resolve();
  };
  return { signal: ending.signal, stopping: stopping.signal, leave };
}

/** A receipt that this process serves. */
interface Living {
  id: string;
  /** Resolves when the receipt is closed. */
  over: Promise<void>;
  stop(reason: ServiceError): void;
}

function receiptOf(
  id: string,
  { caller, requestId, callable, boundUcents, body }: NewRequest,
  nowMs: number,
): Omit<store.NewReceipt, 'member'> {
  return {
    id,
    org_id: caller.orgId,
    api_key_id: caller.principalId,
    request_id: requestId,
    model_id: callable.model.id,
    tier: callable.tier,
    end_user: body.user ?? body.safety_identifier ?? null,
    metadata: body.metadata ?? null,
    held_ucents: boundUcents,
    opened_ms: nowMs,
  };
}

/** How a chat needs less. Without a limit of its own, it is held at the longest answer of the model. */
function shorterOf({ maxTokens }: NewRequest): string | undefined {
  if (maxTokens === undefined) return undefined;
  return `It is for an answer of at most ${maxTokens} tokens: a smaller max_tokens (or max_completion_tokens) lowers it.`;
}

async function sweep(living: Ring<Living>, signal: AbortSignal, deps: RequestsDeps): Promise<number> {
  const { db, clock, log } = deps;
  const close = (receipt: OpenReceipt): Promise<boolean> =>
    db.hot(closeReceipt(receipt, freeOutcome('process_ended'), { nowMs: clock.now(), attempts: [] }));
  const dead = await deadReceipts(living, signal, deps);
  // A request that has ended in order since its row was read does not count.
  const count = (await Promise.all(dead.map(close))).filter(Boolean).length;
  if (count > 0) log.warn({ receipts: count }, 'closed the requests of a process that died, free of charge');
  return count;
}

async function deadReceipts(
  living: Ring<Living>,
  signal: AbortSignal,
  { db, members }: RequestsDeps,
): Promise<OpenReceipt[]> {
  const open = await allOpen(db, signal);
  const served = new Set(living.list().map(({ id }) => id));
  const others = await members.others();
  return open.filter(({ id, member }) => {
    if (member === members.id) return !served.has(id);
    return !others.has(member);
  });
}

async function allOpen(db: Db, signal: AbortSignal): Promise<store.OpenRow[]> {
  const all: store.OpenRow[] = [];
  let afterId: string | undefined = '';
  while (afterId !== undefined && !signal.aborted) {
    const open: store.OpenRow[] = await store.openReceipts(db.read, afterId, SWEEP_ROWS);
    all.push(...open);
    afterId = open.at(-1)?.id;
  }
  return all;
}

interface Slots {
  /** @throws ServiceError `stream_limit_exceeded` */
  take(caller: Pick<Caller, 'principalId' | 'orgId'>): () => void;
}

function openSlots(maxNow: () => OpenMax): Slots {
  const keys = openCounter();
  const orgs = openCounter();
  return {
    take: ({ principalId, orgId }) => {
      const { perKey, perOrg } = maxNow();
      if (keys.of(principalId) >= perKey) failFull(`This API key may have ${perKey} inference requests`);
      if (orgs.of(orgId) >= perOrg)
        failFull(`This organisation may have ${perOrg} inference requests of all its API keys`);
      keys.add(principalId, 1);
      orgs.add(orgId, 1);
      return () => {
        keys.add(principalId, -1);
        orgs.add(orgId, -1);
      };
    },
  };
}

function failFull(limit: string): never {
  return fail('stream_limit_exceeded', {
    detail: `${limit} open at once. Send it again when one of them has ended.`,
    retryAfterSeconds: 1,
  });
}

function openCounter(): { of(name: string): number; add(name: string, more: number): void } {
  const counts = new Map<string, number>();
  const of = (name: string): number => counts.get(name) ?? 0;
  return {
    of,
    add: (name, more) => {
      const count = of(name) + more;
      if (count === 0) counts.delete(name);
      else counts.set(name, count);
    },
  };
}
