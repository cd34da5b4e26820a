// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { Db } from '../../base/db/db.ts';
import type { Forgets } from '../../base/db/pieces.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import { countDeliveries } from './delivery-store.ts';
import { webhookOperatorRoutes } from './operator-routes.ts';
import { DUE_WEBHOOKS, waitingWebhooks } from './overview.ts';
import { webhookRoutes } from './routes.ts';
import type { Webhooks } from './webhooks.ts';

/** New events nudge the loop, so the period matters for retries only. */
const COURIER_PERIOD_MS = 500;
const DEAD_LETTERS_MS = 3_600_000;

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  webhooks: Webhooks;
}

export function webhooksBrings({ db, clock, cursors, webhooks }: Deps) {
  const courier: LoopOptions = { name: 'webhooks', periodMs: COURIER_PERIOD_MS, run: () => webhooks.courier.run() };
  const forgets: Forgets = { what: 'webhook_deliveries', run: webhooks.purge };
  return {
    routes: webhookRoutes({ db, cursors, webhooks }),
    operatorRoutes: webhookOperatorRoutes({ db, clock, cursors, webhooks }),
    loops: [courier],
    measures: measures(db, clock),
    forgets: [forgets],
    waits: [waitingWebhooks],
    dueRows: [DUE_WEBHOOKS],
    close: () => webhooks.courier.stop(),
  };
}

function measures(db: Db, clock: Clock): Measure[] {
  const deliveries = (): ReturnType<typeof countDeliveries> =>
    countDeliveries(db.read, clock.now(), clock.now() - DEAD_LETTERS_MS);
  return [
    {
      name: 'svc_webhook_deliveries_waiting',
      help: 'Webhook deliveries that are not completed',
      kind: 'gauge',
      read: async () => one((await deliveries()).waiting),
    },
    {
      name: 'svc_webhook_deliveries_due_seconds',
      help: 'How long the oldest due webhook delivery has waited',
      kind: 'gauge',
      read: async () => one((await deliveries()).dueForMs / 1000),
    },
    {
      name: 'svc_webhook_dead_letters',
      help: 'Webhook deliveries that were given up within the last hour',
      kind: 'gauge',
      read: async () => one((await deliveries()).dead),
    },
  ];
}
