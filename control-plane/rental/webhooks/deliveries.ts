// Commands for deliveries: read them, retry one, and replay those that were given up.
//
// A replay gives deliveries a whole new schedule. There may be very many. So the request revives only one piece, and the runs of the courier
// revive the rest, one piece of an endpoint at a time. The endpoint's row stores how far a replay is, so a kill between two pieces loses nothing.
import type { WebhookDelivery, WebhookDeliveryDetail } from '../../../shared/api/webhook.ts';
import { fail } from '../../../shared/errors.ts';
import { WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX } from '../../../shared/limits.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import { openRowFailures } from '../../base/db/row-failures.ts';
import * as store from './delivery-store.ts';
import { makeDue, probeNow, type Replay, replayOf, replaying, setReplay } from './endpoint-store.ts';
import { DELIVERY_MS_MAX, urgentFrom } from './schedule.ts';
import { deliveryDetail, deliveryView } from './view.ts';
import type { Clock } from '../../../shared/clock.ts';

/** Deliveries as a list shows them, each with its last attempts. */
export async function show(query: Query, rows: readonly store.DeliveryRow[]): Promise<WebhookDelivery[]> {
  const attempts = await store.lastAttemptsOf(
    query,
    rows.map(({ id }) => id),
  );
  const of = Map.groupBy(attempts, (attempt) => attempt.delivery_id);
  return rows.map((row) => deliveryView(row, of.get(row.id) ?? []));
}

/** One delivery with what was sent. @throws ServiceError `not_found` */
export async function showOne(query: Query, endpointId: string, id: string): Promise<WebhookDeliveryDetail> {
  const row = await store.findDelivery(query, id);
  if (row?.endpoint_id !== endpointId) return fail('not_found', 'This endpoint has no such delivery.');
  return deliveryDetail(row, await store.attemptsOf(query, [id]));
}

/**
 * Makes one more attempt due at once. A waiting delivery keeps its schedule afterwards. A delivery that was given up gets this one attempt.
 * @throws ServiceError `not_found`, `conflict` if it has succeeded or has had too many attempts
 */
export async function retry(tx: Tx, endpointId: string, id: string, nowMs: number): Promise<WebhookDelivery> {
  const row = await store.findDelivery(tx, id);
  if (row?.endpoint_id !== endpointId) return fail('not_found', 'This endpoint has no such delivery.');
  if (row.status === 'succeeded') return fail('conflict', 'This delivery has succeeded; there is nothing to retry.');
  if (row.attempts >= WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX) {
    fail('conflict', `This delivery was tried ${row.attempts} times; it is not tried again.`);
  }
  if (row.status === 'dead_lettered') {
    const patch = {
      max_attempts: row.attempts + 1,
      next_trigger: 'manual',
      deadline_ms: nowMs + DELIVERY_MS_MAX,
    } as const;
    await store.moveDelivery(tx, row, { to: 'retrying', nextMs: nowMs, urgentMs: nowMs, nowMs, patch });
  } else {
    await store.hurryDelivery(tx, id, nowMs);
  }
  await probeNow(tx, endpointId);
  await makeDue(tx, [endpointId], { nowMs, urgentMs: row.urgent_ms ?? nowMs });
  const [shown] = await show(tx, [(await store.findDelivery(tx, id)) ?? row]);
  return shown ?? deliveryView(row, []);
}

/** Number of deliveries that one transaction revives. */
export const REPLAY_PIECE = 500;
const ENDPOINTS_PER_RUN_MAX = 10;

interface ReplayDeps {
  clock: Clock;
  maxAttempts: number;
}

/** Begins a replay of the deliveries that were made since `sinceMs` and are given up by now. The caller has locked the endpoint. */
export async function beginReplay(tx: Tx, endpointId: string, sinceMs: number, deps: ReplayDeps): Promise<void> {
  const before = await replayOf(tx, endpointId);
  const earliestMs = Math.min(sinceMs, before?.sinceMs ?? sinceMs);
  await goOn(tx, endpointId, { sinceMs: earliestMs, askedMs: deps.clock.now() }, deps);
}

/** Revives the next piece of each replay that has begun. @throws what has failed, after all of them had their turn; DbError at once */
export async function continueReplays(deps: ReplayDeps & { db: Db }): Promise<void> {
  const failures = openRowFailures();
  for (const id of await replaying(deps.db.read, ENDPOINTS_PER_RUN_MAX))
    await failures.note(`the replay of ${id} could not go on`, continueOne(id, deps));
  failures.throwAll();
}

function continueOne(id: string, deps: ReplayDeps & { db: Db }): Promise<void> {
  return deps.db.tx('webhooks.replay', async (tx) => {
    await tx.lock('webhook_endpoint', id);
    const replay = await replayOf(tx, id);
    if (replay !== undefined) await goOn(tx, id, replay, deps);
  });
}

async function goOn(tx: Tx, endpointId: string, replay: Replay, { clock, maxAttempts }: ReplayDeps): Promise<void> {
  const nowMs = clock.now();
  const deadlineMs = nowMs + DELIVERY_MS_MAX;
  const urgentMs = urgentFrom({ deadlineMs, left: maxAttempts, scheduled: maxAttempts });
  const ceiling = WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX;
  const revival = { attempts: maxAttempts, ceiling, nowMs, urgentMs, deadlineMs };
  const revived = await store.reviveDead(tx, { endpointId, ...replay, limit: REPLAY_PIECE }, revival);
  const isOver = revived.count < REPLAY_PIECE;
  await setReplay(tx, endpointId, isOver ? null : { ...replay, sinceMs: revived.lastCreatedMs });
  if (revived.count === 0) return;
  await probeNow(tx, endpointId);
  await makeDue(tx, [endpointId], { nowMs, urgentMs });
}
