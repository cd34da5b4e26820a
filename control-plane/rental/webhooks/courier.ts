// The delivery engine: finds endpoints with due deliveries and posts these, for each endpoint at its own pace.
//
// Attempts in progress are known in memory only. Just the primary control plane runs this loop, so a claim in the database would help
// nobody, and it would have to expire. If a process dies, its rows are still due, and the next process repeats the attempt.
import type { Clock } from '../../../shared/clock.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX } from '../../../shared/limits.ts';
import type { Rng } from '../../../shared/rng.ts';
import type { Db } from '../../base/db/db.ts';
import type { Outbound } from '../../base/outbound/outbound.ts';
import { type Attempt, attempt } from './attempt.ts';
import {
  type DeliveryRow,
  dueDeliveries,
  findDelivery,
  insertAttempt,
  moveDelivery,
  overdueDeliveries,
  type Trigger,
} from './delivery-store.ts';
import { dueEndpoints, type EndpointRow, findEndpoint, refreshDue, setHealth } from './endpoint-store.ts';
import { openLanes } from './lanes.ts';
import { continueReplays, retry } from './deliveries.ts';
import { deliveryAfter, healthAfter, slotsOf, URGENT_AT_ONCE_MAX } from './schedule.ts';
import type { Secrets } from './endpoints.ts';

/** Largest number of attempts in progress for all endpoints. Healthy endpoints need far fewer. */
const UNDER_WAY_MAX = 1_024;
/** Attempts of one organisation among them. With many endpoints that hang, and retries by hand, it would use up all. */
const UNDER_WAY_PER_ORG_MAX = 128;
const OVERDUE_PER_RUN_MAX = 500;
/** Wait after a result that could not be stored. The attempt is repeated, but not in a hot loop. */
const UNRECORDED_WAIT_MS = 30_000;
/** How long attempts in progress may go on when the process ends. */
const FAREWELL_MS = 5_000;

export interface Courier {
  /** Starts what is due and returns. The attempts continue in the background. */
  run(): Promise<void>;
  /** Starts no further attempt. Attempts that do not end soon are cut off, and the next process repeats them. */
  stop(): Promise<void>;
}

export interface CourierDeps {
  db: Db;
  clock: Clock;
  log: Log;
  rng: Rng;
  outbound: Outbound;
  secrets: Secrets;
  /** The number of attempts in a whole schedule. */
  maxAttempts: number;
}

/** A due delivery as it was read, with its endpoint. */
interface DueDelivery {
  id: string;
  delivery: DeliveryRow;
  endpoint: EndpointRow;
}

export function openCourier(given: CourierDeps): Courier {
  // The owner of an endpoint decides how often its health changes, so the lines about that are limited.
  const deps = { ...given, log: throttledLog(given.log, given.clock) };
  const { db, clock, log } = deps;
  const stopping = new AbortController();
  const lanes = openLanes<DueDelivery>({
    max: UNDER_WAY_MAX,
    groupMax: UNDER_WAY_PER_ORG_MAX,
    groupOf: ({ endpoint }) => endpoint.org_id,
    log,
    due: (endpointId, busy) => dueJobs(endpointId, busy, deps),
    carry: async (job) => {
      try {
        await deliver(job, deps, stopping.signal);
      } catch (error) {
        const fields = { delivery_id: job.id, err: error };
        log.error(fields, 'a webhook attempt failed on our side; it is repeated');
        await clock.sleep(UNRECORDED_WAIT_MS, stopping.signal);
      }
    },
  });

  return {
    run: async () => {
      await giveUpOverdue(deps, (row) => lanes.isUnderWay(row.endpoint_id, row.id));
      const limit = lanes.limit();
      const which = { nowMs: clock.now(), limit, withoutOrgs: lanes.fullGroups() };
      for (const endpointId of limit === 0 ? [] : await dueEndpoints(db.read, which)) lanes.check(endpointId);
      // Replays come last, so that one that fails keeps no delivery waiting.
      await continueReplays(deps);
    },
    stop: async () => {
      stopping.abort();
      const ended = new AbortController();
      const all = lanes.stop().then(() => ended.abort());
      await clock.sleep(FAREWELL_MS, ended.signal);
      await deps.outbound.close();
      await all;
    },
  };
}

async function dueJobs(
  endpointId: string,
  busy: number,
  { db, clock }: CourierDeps,
): Promise<{ slots: number; jobs: DueDelivery[] }> {
  const nowMs = clock.now();
  const endpoint = await findEndpoint(db.read, endpointId);
  if (endpoint === undefined || endpoint.status === 'disabled') return { slots: 0, jobs: [] };
  // Deliveries in progress may still be due, so this reads more rows than there are free slots.
  const due = (isUrgent: boolean, slots: number): Promise<DeliveryRow[]> =>
    dueDeliveries(db.read, endpointId, { nowMs, isUrgent, limit: slots + busy });
  const job = (delivery: DeliveryRow): DueDelivery => ({ id: delivery.id, delivery, endpoint });
  const urgent = await due(true, URGENT_AT_ONCE_MAX);
  if (urgent.length > 0) return { slots: URGENT_AT_ONCE_MAX, jobs: urgent.map(job) };
  const slots = slotsOf(endpoint, nowMs);
  if (slots <= busy) return { slots, jobs: [] };
  return { slots, jobs: (await due(false, slots)).map(job) };
}

async function deliver({ delivery, endpoint }: DueDelivery, deps: CourierDeps, stopping: AbortSignal): Promise<void> {
  const isUrgent = (delivery.urgent_ms ?? Infinity) <= deps.clock.now();
  const isProbe = endpoint.status === 'degraded' && delivery.next_trigger === 'schedule' && !isUrgent;
  const trigger: Trigger = isProbe ? 'probe' : delivery.next_trigger;
  const secrets = deps.secrets.inUse(endpoint, deps.clock.now());
  const made = await attempt(delivery, { url: endpoint.url, secrets, trigger }, deps);
  // We cut this attempt off ourselves, so it is no failure of the endpoint.
  if (stopping.aborted && made.outcome.status === null) return;
  await record(delivery, made, deps);
}

async function record(before: DeliveryRow, { row, outcome }: Attempt, deps: CourierDeps): Promise<void> {
  const { db, clock, log, rng, maxAttempts: scheduled } = deps;
  const nowMs = clock.now();
  const recorded = await db.tx('webhooks.record', async (tx) => {
    await tx.lock('webhook_endpoint', before.endpoint_id);
    const delivery = await findDelivery(tx, before.id);
    const endpoint = await findEndpoint(tx, before.endpoint_id);
    // Meanwhile the endpoint was deleted, or another process has recorded an attempt or given the delivery up.
    if (delivery === undefined || endpoint === undefined || delivery.next_attempt_ms === null) return undefined;
    if (delivery.attempts !== before.attempts) return undefined;
    const count = { attempts: row.n, maxAttempts: delivery.max_attempts, deadlineMs: delivery.deadline_ms };
    const step = deliveryAfter(count, outcome, nowMs, { rng, scheduled });
    const moved = await moveDelivery(tx, delivery, { ...step, nowMs, patch: { attempts: row.n } });
    if (!moved) return undefined;
    await insertAttempt(tx, row);
    // An attempt to the address that the endpoint had before says nothing about the present one.
    const health = endpoint.url === row.request_url ? healthAfter(endpoint, outcome, nowMs) : endpoint;
    await setHealth(tx, endpoint, health);
    if (isAskedAgain(before, delivery) && step.to !== 'succeeded' && row.n < WEBHOOK_ATTEMPTS_PER_DELIVERY_MAX)
      await retry(tx, endpoint.id, delivery.id, nowMs);
    await refreshDue(tx, endpoint.id);
    return { status: step.to, orgId: endpoint.org_id, from: endpoint.status, to: health.status };
  });
  if (recorded === undefined) return;
  const about = { endpoint_id: before.endpoint_id, delivery_id: before.id, event_id: before.event_id, attempt: row.n };
  log.debug(
    { ...about, status: recorded.status, response_status: row.response_status, error_code: row.error_code },
    'webhook attempt',
  );
  if (recorded.from !== recorded.to)
    log.warn(
      { ...about, org_id: recorded.orgId, from: recorded.from, to: recorded.to },
      'a webhook endpoint changed its health',
    );
}

/** The owner asked for a retry while the attempt was in progress. The attempt is not that retry, because it may have failed already. */
function isAskedAgain(before: DeliveryRow, now: DeliveryRow): boolean {
  return before.next_trigger !== 'manual' && now.next_trigger === 'manual';
}

/** Gives up overdue deliveries, also of endpoints that are disabled or whose circuit is open. */
async function giveUpOverdue(
  { db, clock, log }: CourierDeps,
  isUnderWay: (row: DeliveryRow) => boolean,
): Promise<void> {
  const nowMs = clock.now();
  const overdue = (await overdueDeliveries(db.read, nowMs, OVERDUE_PER_RUN_MAX)).filter((row) => !isUnderWay(row));
  if (overdue.length === 0) return;
  await db.tx('webhooks.give_up', async (tx) => {
    await tx.lock('webhook_endpoint', ...overdue.map((row) => row.endpoint_id));
    for (const row of overdue)
      await moveDelivery(tx, row, { to: 'dead_lettered', nextMs: null, urgentMs: null, nowMs });
    for (const id of new Set(overdue.map((row) => row.endpoint_id))) await refreshDue(tx, id);
  });
  log.info({ deliveries: overdue.length }, 'webhook deliveries were given up: their 24 hours are over');
}
