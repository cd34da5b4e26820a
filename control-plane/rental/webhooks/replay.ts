// A replay: deliveries that were given up get a whole new schedule. There may be very many. So the request revives only one piece, and the runs
// of the courier revive the rest, one piece of an endpoint at a time. The endpoint's row stores how far a replay is, so a kill between two pieces
// loses nothing.
import type { Clock } from '../../../shared/clock.ts';
import { WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX } from '../../../shared/limits.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { reviveDead } from './delivery-store.ts';
import { makeDue, probeNow, type Replay, replayOf, replaying, setReplay } from './endpoint-store.ts';
import { DELIVERY_MS_MAX, urgentFrom } from './schedule.ts';

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

/** Revives the next piece of each replay that has begun. */
export async function continueReplays(deps: ReplayDeps & { db: Db }): Promise<void> {
  const { db } = deps;
  for (const id of await replaying(db.read, ENDPOINTS_PER_RUN_MAX)) {
    await db.tx('webhooks.replay', async (tx) => {
      await tx.lock('webhook_endpoint', id);
      const replay = await replayOf(tx, id);
      if (replay !== undefined) await goOn(tx, id, replay, deps);
    });
  }
}

async function goOn(tx: Tx, endpointId: string, replay: Replay, { clock, maxAttempts }: ReplayDeps): Promise<void> {
  const nowMs = clock.now();
  const deadlineMs = nowMs + DELIVERY_MS_MAX;
  const urgentMs = urgentFrom({ deadlineMs, left: maxAttempts, scheduled: maxAttempts });
  const ceiling = WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX;
  const revival = { attempts: maxAttempts, ceiling, nowMs, urgentMs, deadlineMs };
  const revived = await reviveDead(tx, { endpointId, ...replay, limit: REPLAY_PIECE }, revival);
  const isOver = revived.count < REPLAY_PIECE;
  await setReplay(tx, endpointId, isOver ? null : { ...replay, sinceMs: revived.lastCreatedMs });
  if (revived.count === 0) return;
  await probeNow(tx, endpointId);
  await makeDue(tx, [endpointId], { nowMs, urgentMs });
}
