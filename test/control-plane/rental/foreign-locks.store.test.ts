// No request locks a row of another organisation. Otherwise a stranger could hold a row while its owner needs it.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

interface Noting {
  db: Db;
  locked: string[];
}

function notingLocks(db: Db): Noting {
  const locked: string[] = [];
  const tx: Db['tx'] = (name, body) =>
    db.tx(name, (inner) =>
      body({ ...inner, lock: (root, ...ids) => (locked.push(`${root} ${ids.join(' ')}`), inner.lock(root, ...ids)) }),
    );
  return { db: { ...db, tx }, locked };
}

let world: World;
let noting: Noting;
let ids: Record<'instance' | 'machine' | 'endpoint', string>;
beforeEach(async () => {
  ({ world, over: noting } = await openWorldOver(notingLocks));
  const who = await world.customer(100_000);
  const { machineId } = await world.machine();
  const endpoint = await world.db.tx('test.endpoint', (tx) =>
    world.rooms.webhooks.create(tx, who.orgId, { url: 'https://example.com/hook', event_types: ['instance.running'] }),
  );
  ids = { instance: await world.launch(who), machine: machineId, endpoint: endpoint.id };
});
afterEach(() => world.close());

test.each([
  ['renameInstance', 'instance', { name: 'mine' }],
  ['deleteInstance', 'instance', undefined],
  ['changeMachine', 'machine', { region: 'eu-west' }],
  ['delistMachine', 'machine', undefined],
  ['relistMachine', 'machine', undefined],
  ['reissueEnrollmentToken', 'machine', undefined],
  ['changeWebhookEndpoint', 'endpoint', { enabled: false }],
  ['rotateWebhookSecret', 'endpoint', undefined],
  ['deleteWebhookEndpoint', 'endpoint', undefined],
  ['testWebhookEndpoint', 'endpoint', { event_type: 'instance.running' }],
  ['retryWebhookDelivery', 'endpoint', undefined],
] as const)('%s of a stranger is not found, and locks nothing', async (operationId, kind, body) => {
  const { orgId } = await world.customer(100_000);
  const caller = { orgId, principalId: 'key_stranger', scopes: [] };
  const route = brought(world.brings(), 'routes').find((each) => each.operationId === operationId);
  const params = { id: ids[kind], delivery_id: 'none' };
  noting.locked.length = 0;
  const call = { caller, params, body, query: {}, settle: async () => undefined };
  await expect(route?.handler(call as never)).rejects.toMatchObject({ code: 'not_found' });
  expect(noting.locked).toEqual([]);
});
