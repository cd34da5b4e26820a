// Requests to models from being let in to their last byte: one of a key's slots, money set aside durably, and closed exactly once.
import type { Clock } from '../../../shared/clock.ts';
import { fail, ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db } from '../../base/db/db.ts';
import type { Caller } from '../../base/http/route.ts';
import { wallet } from '../../money/ledger/accounts.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import type { Callable } from '../catalog/catalog.ts';
import type { Counts } from './counts.ts';
import { failedOutcome, freeOutcome } from './outcome.ts';
import { closeReceipt, holdId, type Outcome } from './states.ts';
import * as store from './store.ts';

export interface NewRequest {
  caller: Caller;
  requestId: string;
  gone: AbortSignal;
  callable: Callable;
  /** What it costs at most. */
  boundUcents: bigint;
}

export interface OpenRequest {
  /** Of its receipt. */
  id: string;
  /** Aborts where nobody waits for the answer any more; by a ServiceError where it is we who end. */
  signal: AbortSignal;
  /** Settles or gives back, once: later calls wait for the first. */
  close(outcome: Outcome): Promise<void>;
}

export interface Requests {
  /**
   * Lets a request in and has it answered. `answer`, or what it has begun, closes it; where `answer` throws, it is closed here, and costs nothing.
   * @throws ServiceError `stream_limit_exceeded`, `insufficient_balance`, and what `answer` throws
   */
  serve<T>(request: NewRequest, answer: (open: OpenRequest) => Promise<T>): Promise<T>;
  /** Gives back what requests hold that no process answers any more; returns how many those were. */
  sweep(signal: AbortSignal): Promise<number>;
  /** How many are open. */
  open(): number;
  /** Lets what is open end within `graceMs`, gives up the rest, and waits until all of it is closed. */
  close(graceMs: number): Promise<void>;
}

export interface RequestsDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  ledger: Ledger;
  openPerKeyMax(): number;
  counts: Counts;
}

/** Of an answer. */
export function receiptHeader({ id }: OpenRequest): Record<string, string> {
  return { 'x-receipt-id': id };
}

/** Rows of one look. */
const SWEEP_PIECE = 200;

export function openRequests(deps: RequestsDeps): Requests {
  const { clock, db, ids, ledger } = deps;
  const slots = openSlots(deps.openPerKeyMax);
  const stopping = new AbortController();
  /** By receipt: resolves once it is closed. One process serves, so an open receipt that is not here is of one that died. */
  const living = new Map<string, Promise<void>>();

  /** Lets go of the slot, and of what keeps the receipt from the sweep: where the database has failed, that finds it. */
  const enter = (id: string, apiKeyId: string): (() => void) => {
    const letGo = slots.take(apiKeyId);
    const over = Promise.withResolvers<void>();
    living.set(id, over.promise);
    return () => {
      living.delete(id);
      letGo();
      over.resolve();
    };
  };

  const begin = async (request: NewRequest): Promise<OpenRequest> => {
    const { caller, gone, callable, boundUcents } = request;
    const id = ids.prefixed('rcp');
    const leave = enter(id, caller.apiKeyId);
    try {
      await db.tx('inference.open', async (tx) => {
        await ledger.setHold(tx, holdId(id), wallet(caller.orgId), boundUcents);
        await store.insertReceipt(tx, receiptOf(id, request, clock.now()));
      });
    } catch (error) {
      leave();
      throw error;
    }
    let closed: Promise<void> | undefined;
    const close = (outcome: Outcome): Promise<void> =>
      db
        .tx('inference.close', (tx) => closeReceipt(tx, id, outcome, { ledger, nowMs: clock.now() }))
        .then(() => deps.counts.ended(callable.model.id, outcome.ending))
        .finally(leave);
    return {
      id,
      signal: AbortSignal.any([gone, stopping.signal]),
      close: (outcome) => (closed ??= close(outcome)),
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
      const all = Promise.all(living.values());
      if (graceMs > 0) await Promise.race([all, clock.sleep(graceMs)]);
      stopping.abort(new ServiceError('unavailable', { detail: 'The service restarts. Send the request again.' }));
      await Promise.all(living.values());
    },
  };
}

function receiptOf(
  id: string,
  { caller, requestId, callable, boundUcents }: NewRequest,
  nowMs: number,
): store.NewReceipt {
  return {
    id,
    org_id: caller.orgId,
    api_key_id: caller.apiKeyId,
    request_id: requestId,
    model_id: callable.model.id,
    tier: callable.tier,
    held_ucents: boundUcents,
    opened_ms: nowMs,
  };
}

async function sweep(
  living: ReadonlyMap<string, unknown>,
  signal: AbortSignal,
  { db, ledger, clock, log }: RequestsDeps,
): Promise<number> {
  const dead = await deadReceipts(db, living, signal);
  for (const id of dead) {
    await db.tx('inference.sweep', (tx) =>
      closeReceipt(tx, id, freeOutcome('process_ended'), { ledger, nowMs: clock.now() }),
    );
  }
  if (dead.length > 0) log.warn({ receipts: dead.length }, 'requests of a process that died are given back');
  return dead.length;
}

async function deadReceipts(db: Db, living: ReadonlyMap<string, unknown>, signal: AbortSignal): Promise<string[]> {
  const dead: string[] = [];
  let afterId: string | undefined = '';
  while (afterId !== undefined && !signal.aborted) {
    const ids: string[] = await store.openReceipts(db.read, afterId, SWEEP_PIECE);
    // Looked up after the rows were read: what has begun since is living, what has closed since is not open.
    dead.push(...ids.filter((id) => !living.has(id)));
    afterId = ids.at(-1);
  }
  return dead;
}

interface Slots {
  /** @throws ServiceError `stream_limit_exceeded` */
  take(apiKeyId: string): () => void;
}

function openSlots(maxNow: () => number): Slots {
  const taken = new Map<string, number>();
  return {
    take: (apiKeyId) => {
      const [count, max] = [taken.get(apiKeyId) ?? 0, maxNow()];
      if (count >= max) {
        fail('stream_limit_exceeded', {
          detail: `This API key may have ${max} inference requests open at once. Send it again when one of them is over.`,
          retryAfterSeconds: 1,
        });
      }
      taken.set(apiKeyId, count + 1);
      return () => {
        const left = (taken.get(apiKeyId) ?? 1) - 1;
        if (left === 0) taken.delete(apiKeyId);
        else taken.set(apiKeyId, left);
      };
    },
  };
}
