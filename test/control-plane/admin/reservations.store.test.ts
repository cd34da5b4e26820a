// The operator's answers about a contract: which GPUs it takes, when, and how many are missing.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openOperator } from '../../kit/operator.ts';
import { openWorld, type World } from '../../kit/world.ts';

const DAY_MS = 24 * 3_600_000;

let world: World;
let orgId: string;
beforeEach(async () => {
  world = await openWorld();
  orgId = (await world.rooms.accounts.createOrg('holder')).id;
});
afterEach(() => world.close());

const iso = (offsetMs: number): string => new Date(world.clock.now() + offsetMs).toISOString();
const create = (gpus: number, startsInMs: number): Promise<Record<string, unknown>> =>
  openOperator(world).ask('POST', '/admin/reservations', {
    org_id: orgId,
    title: 'training',
    starts_at: iso(startsInMs),
    ends_at: iso(startsInMs + 30 * DAY_MS),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: gpus, region: 'eu-west' }],
  });

test('a contract that begins later shows the machines that it could use, and its GPUs once they are set aside', async () => {
  const { machineId } = await world.machine({ gpus: 4 });
  await world.launch(await world.customer(10_000));
  const setAsideAt = iso(2 * DAY_MS);
  const made = await create(4, 3 * DAY_MS);
  expect(made).toMatchObject({
    set_aside_at: setAsideAt,
    set_aside: 'none',
    slots: 0,
    missing: 0,
    free_at_start: `3 H100_SXM on ${machineId}`,
    missing_at_start: 1,
  });
  await world.clock.advance(2 * DAY_MS);
  await world.drive();
  expect(await openOperator(world).ask('GET', `/admin/reservations/${String(made['reservation_id'])}`)).toMatchObject({
    set_aside_at: setAsideAt,
    set_aside: `3 H100_SXM on ${machineId}`,
    slots: 3,
    missing: 1,
    free_at_start: null,
    missing_at_start: null,
  });
});

test('a contract that begins within the lead time shows its GPUs, and is refused if there are too few', async () => {
  const { machineId } = await world.machine({ gpus: 2 });
  await expect(create(3, 0)).rejects.toMatchObject({ code: 'conflict' });
  expect(await create(2, 0)).toMatchObject({
    status: 'active',
    set_aside_at: iso(0),
    set_aside: `2 H100_SXM on ${machineId}`,
    missing: 0,
  });
});
