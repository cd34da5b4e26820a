// Random lives of endpoints: whatever happens in whatever order, the rows stay true to each other and to their state tables.
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { OutboundError } from '../../../../control-plane/base/outbound/outbound-error.ts';
import type { Rng } from '../../../../shared/rng.ts';
import { seededRng } from '../../../../shared/rng.ts';
import { openWebhookWorld, type WebhookWorld } from './fixture.ts';

const LIVES = process.env['SOAK'] === '1' ? 40 : 3;
const STEPS = 60;
const MINUTE = 60_000;

let world: WebhookWorld;
afterEach(() => world.close());

test.each(Array.from({ length: LIVES }, (_, seed) => seed))(
  'life %d keeps every rule at every step',
  async (seed) => {
    world = await openWebhookWorld();
    const rng = seededRng(seed);
    const life = openLife(rng);
    for (let step = 0; step < STEPS; step += 1) {
      const name = await life.step();
      expect([step, name, ...(await brokenRules())]).toEqual([step, name]);
    }
  },
  120_000,
);

interface Life {
  /** Does something, lets the courier come to rest, and says what it was. */
  step(): Promise<string>;
}

function openLife(rng: Rng): Life {
  const endpoints: string[] = [];
  const instances: string[] = [];
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(rng.float() * list.length)];
  const { webhooks, instances: rentals } = world.rooms;
  const change = (request: Parameters<typeof webhooks.change>[3]): Promise<unknown> => {
    const id = pick(endpoints);
    if (id === undefined) return Promise.resolve();
    return world.db.tx('test.change', (tx) => webhooks.change(tx, world.who.orgId, id, request));
  };
  const actions: Record<string, () => Promise<unknown>> = {
    endpoint: async () => endpoints.length < 4 && endpoints.push((await world.endpoint()).id),
    launch: async () => instances.push(await world.launchOne()),
    run: async () => {
      const id = pick(instances);
      if (id === undefined) return;
      await world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
      await world.drive();
    },
    end: async () => {
      const [id] = instances.splice(Math.floor(rng.float() * instances.length), 1);
      if (id === undefined) return;
      await rentals.remove(world.who, id, async () => undefined).catch(() => undefined);
    },
    'answer well': async () => (world.outbound.answer = async () => ({ status: 204 })),
    'answer badly': async () => (world.outbound.answer = async () => ({ status: pick([301, 404, 500, 503]) ?? 500 })),
    'answer gone': async () => (world.outbound.answer = async () => ({ status: 410 })),
    'answer nothing': async () => {
      const code = pick(['timeout', 'connect', 'blocked_address'] as const) ?? 'dns';
      world.outbound.answer = async () => Promise.reject(new OutboundError(code, 'no answer'));
    },
    wait: () => world.clock.advance((pick([1, 30, 300, 1_440]) ?? 1) * MINUTE),
    disable: () => change({ enabled: false }),
    enable: () => change({ enabled: true }),
    replay: () => change({ replay_since: new Date(world.clock.now() - 60 * MINUTE).toISOString() }),
    retry: async () => {
      const endpointId = pick(endpoints) ?? '';
      const deliveryId = pick(await world.deliveries(endpointId))?.id ?? '';
      const ids = { endpointId, deliveryId };
      // Refused for what has succeeded or is not there.
      await world.db.tx('test.retry', (tx) => webhooks.retry(tx, world.who.orgId, ids)).catch(() => undefined);
    },
    delete: async () => {
      if (rng.float() > 0.2 || endpoints.length === 0) return;
      const [id = ''] = endpoints.splice(Math.floor(rng.float() * endpoints.length), 1);
      await world.db.tx('test.delete', (tx) => webhooks.remove(tx, world.who.orgId, id));
    },
  };
  return {
    step: async () => {
      const name = pick(Object.keys(actions)) ?? 'wait';
      await actions[name]?.();
      await world.carry();
      return name;
    },
  };
}

/** Rule -> rows that break it. */
const RULES = {
  'what is over has an end and no next attempt, and nothing else has': sql`
    select count(*) as rows from webhook_deliveries
    where (status in ('succeeded', 'dead_lettered')) <> (completed_ms is not null) or (completed_ms is null) = (next_attempt_ms is null)`,
  'a pending delivery was never tried, one that succeeded was': sql`
    select count(*) as rows from webhook_deliveries
    where (status = 'pending' and attempts > 0) or (status = 'succeeded' and attempts = 0)`,
  'no delivery is tried more often than it may be': sql`
    select count(*) as rows from webhook_deliveries where attempts > max_attempts`,
  'every attempt is in the history': sql`
    select count(*) as rows from webhook_deliveries d
    where attempts <> (select count(*) from webhook_attempts a where a.delivery_id = d.id)
       or attempts <> (select coalesce(max(n), 0) from webhook_attempts a where a.delivery_id = d.id)`,
  'a success is the last attempt': sql`
    select count(*) as rows from webhook_attempts a join webhook_deliveries d on d.id = a.delivery_id
    where a.error_code is null and (d.status <> 'succeeded' or a.n <> d.attempts)`,
  'each event has one delivery to an endpoint': sql`
    select count(*) as rows from webhook_deliveries d join webhook_deliveries other
      on other.endpoint_id = d.endpoint_id and other.event_id = d.event_id and other.id > d.id`,
  'first attempts of one instance start in order': sql`
    select count(*) as rows from webhook_attempts a join webhook_deliveries d on d.id = a.delivery_id
      join webhook_deliveries later on later.endpoint_id = d.endpoint_id and later.instance_id = d.instance_id
        and later.instance_version > d.instance_version
      join webhook_attempts b on b.delivery_id = later.id
    where a.n = 1 and b.n = 1 and a.started_ms > b.started_ms and d.next_trigger = 'schedule' and later.next_trigger = 'schedule'`,
  'an endpoint is due when the first of its deliveries is': sql`
    select count(*) as rows from webhook_endpoints e
    where deleted_ms is null and coalesce(due_ms, -1)
      <> coalesce((select min(next_attempt_ms) from webhook_deliveries d where d.endpoint_id = e.id), -1)`,
  'only a degraded endpoint rests': sql`
    select count(*) as rows from webhook_endpoints where open_until_ms is not null and status <> 'degraded'`,
};

async function brokenRules(): Promise<string[]> {
  const broken: string[] = [];
  for (const [rule, statement] of Object.entries(RULES)) {
    const row = await world.db.read.one(z.object({ rows: int }), statement);
    if (row?.rows !== 0) broken.push(`${rule}: ${row?.rows}`);
  }
  return broken;
}
