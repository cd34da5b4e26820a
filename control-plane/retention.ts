// What is forgotten, and when. Money never is: neither transfers nor segments of metered time have an age.
import { inPieces } from './base/db/pieces.ts';
import { forgetEvents } from './base/events/forget.ts';
import { forgetOperations } from './base/operations/forget.ts';
import type { Config } from './config.ts';
import { forgetWorkloads } from './fleet/workloads/forget.ts';
import { forgetReceipts } from './models/gateway/forget.ts';
import type { Core, Rooms } from './rooms.ts';

const DAY_MS = 86_400_000;
/** Of one run: far less than what counts as hanging. What is left goes with the next. */
const RUN_MS_BUDGET = 60_000;

interface RetentionDeps {
  core: Pick<Core, 'db' | 'clock' | 'log'>;
  webhooks: Pick<Rooms['webhooks'], 'purge'>;
  purgeIdempotencyKeys(signal: AbortSignal): Promise<number>;
  keep: Config['retention'];
}

/** One run. Each kind in pieces, so no writer waits long, and a run that is cut off has done no harm. */
export async function forgetOld(stopping: AbortSignal, deps: RetentionDeps): Promise<void> {
  const { db, clock, log } = deps.core;
  const {
    events_days: events,
    operations_days: operations,
    workloads_days: workloads,
    receipts_days: receipts,
  } = deps.keep;
  const spent = new AbortController();
  const cancel = clock.after(RUN_MS_BUDGET, () => spent.abort());
  const signal = AbortSignal.any([stopping, spent.signal]);
  const before = (days: number): number => clock.now() - days * DAY_MS;
  try {
    await deps.webhooks.purge(signal);
    const forgotten = {
      idempotency_keys: await deps.purgeIdempotencyKeys(signal),
      events: await inPieces(before(events), (piece) => forgetEvents(db, piece), signal),
      operations: await inPieces(before(operations), (piece) => forgetOperations(db, piece), signal),
      workloads: await inPieces(before(workloads), (piece) => forgetWorkloads(db, piece), signal),
      receipts: await inPieces(before(receipts), (piece) => forgetReceipts(db, piece), signal),
    };
    log.debug(forgotten, 'what is old is forgotten');
  } finally {
    cancel();
  }
}
