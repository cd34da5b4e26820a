// A small world with one customer's endpoint, whose answers the test scripts; time is virtual, the database real.
import { sql } from '../../../../control-plane/base/db/db.ts';
import { countRow } from '../../../../control-plane/base/db/columns.ts';
import {
  type AttemptRow,
  attemptsOf,
  type DeliveryRow,
  pageOfDeliveries,
} from '../../../../control-plane/rental/webhooks/delivery-store.ts';
import type { NewWebhookEndpoint, WebhookEventType } from '../../../../shared/api/webhook.ts';
import { eventually } from '../../../kit/processes.ts';
import { scriptedOutbound, type ScriptedOutbound } from '../../../kit/scripted-outbound.ts';
import { openWorld, type World, type WorldAccount, type WorldOutside } from '../../../kit/world.ts';

export interface WebhookWorld extends World {
  outbound: ScriptedOutbound;
  who: WorldAccount;
  endpoint(types?: readonly WebhookEventType[], path?: string): Promise<NewWebhookEndpoint>;
  /** Launches on a machine of its own: `instance.creating` happens, and nothing more until the world is driven. */
  launchOne(): Promise<string>;
  /** Starts what is due now and waits until every row of it is written. */
  carry(): Promise<void>;
  /** Oldest first. */
  deliveries(endpointId: string): Promise<DeliveryRow[]>;
  attempts(deliveryId: string): Promise<AttemptRow[]>;
}

const ALL_TYPES: readonly WebhookEventType[] = [
  'instance.creating',
  'instance.running',
  'instance.terminated',
  'instance.failed',
];

export async function openWebhookWorld(outside: WorldOutside = {}): Promise<WebhookWorld> {
  const outbound = scriptedOutbound();
  const world = await openWorld(1, { ...outside, webhookOutbound: outbound });
  const { db, clock, rooms } = world;
  const who = await world.customer(100_000);
  return {
    ...world,
    outbound,
    who,
    endpoint: (types = ALL_TYPES, path = 'hook') =>
      db.tx('test.endpoint', (tx) =>
        rooms.webhooks.create(tx, who.orgId, { url: `https://example.com/${path}`, event_types: [...types] }),
      ),
    launchOne: async () => {
      await world.machine();
      return world.launch(who);
    },
    carry: () => carryAll(world),
    deliveries: async (endpointId) => (await pageOfDeliveries(db.read, endpointId, { count: 1000 })).toReversed(),
    attempts: (deliveryId) => attemptsOf(db.read, [deliveryId]),
    close: async () => {
      const stopped = rooms.webhooks.courier.stop();
      await clock.advance(60_000);
      await stopped;
      await world.close();
    },
  };
}

/** Starts every delivery that is due now and waits until every row of it is written. */
export async function carryAll({ db, clock, rooms }: World): Promise<void> {
  const due = sql`select count(*) as count from webhook_deliveries d join webhook_endpoints e on e.id = d.endpoint_id
    where next_attempt_ms <= ${clock.now()} and e.status <> 'disabled' and e.deleted_ms is null
      and (e.open_until_ms is null or e.open_until_ms <= ${clock.now()} or d.urgent_ms <= ${clock.now()})`;
  await eventually('rest of the courier', 10_000, async () => {
    await rooms.webhooks.courier.run();
    const row = await db.read.one(countRow, due);
    return row?.count === 0 ? true : undefined;
  });
}
