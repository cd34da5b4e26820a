// Random lives of endpoints: whatever happens in whatever order, the rows stay true to each other and to their state tables.
import { afterEach, expect, test } from 'vitest';
import { OutboundError } from '../../../../control-plane/base/outbound/policy.ts';
import { type Rng, seededRng } from '../../../../shared/rng.ts';
import { brokenDeliveries } from './delivery-rules.ts';
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
      expect([step, name, ...(await brokenDeliveries(world))]).toEqual([step, name]);
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
      await world.start(id);
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
