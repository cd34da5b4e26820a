// Operators look after models, webhooks and reservations in the browser.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import { pause } from '../../control-plane/base/db/pauses.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { fleetModels } from '../kit/models.ts';
import { addPerson } from '../kit/people.ts';
import { scriptedOutbound } from '../kit/scripted-outbound.ts';
import { LAUNCH } from '../kit/world.ts';

const HOUR_MS = 3_600_000;
const ENDPOINT = { url: 'https://hooks.example.com/gpu', event_types: ['instance.creating'] };

const outbound = scriptedOutbound();
let pages: ConsolePages;
let page: Page;

beforeAll(async () => {
  pages = await openConsolePages({ webhookOutbound: outbound, settings: { models: fleetModels() } });
  const { world } = pages.api;
  await world.clock.advance(Date.now() - world.clock.now());
  page = await pages.signedIn(await addPerson(world, undefined, { isOperator: true, isStrong: true }));
});
afterAll(async () => pages.close());

const goTo = (path: string): Promise<unknown> => page.goto(`${pages.origin}/console/operate/${path}`);

/** axe-core finds nothing, no page scrolls sideways on a phone, nothing has broken, and the service takes the lines of the page. */
async function expectWell(name: string): Promise<void> {
  await page.getByRole('heading', { level: 1 }).waitFor();
  const folder = process.env['CONSOLE_SHOTS'];
  for (const width of [390, 1_440]) {
    await page.setViewportSize({ width, height: 900 });
    if (folder !== undefined) await page.screenshot({ path: `${folder}/${name}-${width}.png`, fullPage: true });
    const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
    expect(overflow, 'the page scrolls sideways').toBeLessThanOrEqual(0);
    expect(await axeFindings(page)).toEqual([]);
  }
  for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
  expect(pages.broken).toEqual([]);
}

test('a tier gets other limits, at most those of the service, and its replica is drained', async () => {
  const { world } = pages.api;
  const model = world.rooms.replicas.operator.tiers()[0]?.poolId ?? '';
  await goTo('models');
  await page.getByRole('heading', { name: model }).waitFor();
  await page.getByText('No replica has run yet.').waitFor();
  await page.getByLabel('Replicas at least').fill('3');
  await page.getByLabel('Replicas at most').fill('2');
  await page.getByRole('button', { name: 'Scale', exact: true }).click();
  await page.getByText('Replicas at least must be at most max_replicas, which is 2').waitFor();
  await page.getByLabel('Replicas at least').fill('1');
  await page.getByRole('button', { name: 'Scale', exact: true }).click();
  await expect
    .poll(async () => (await world.rooms.replicas.operator.show(world.db.read, tierOf(model))).limits)
    .toEqual({
      min: 1,
      max: 2,
    });
  await addReplica(model);
  await page.getByRole('button', { name: 'Drain rep-1' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
  await page.getByRole('table', { name: 'Replicas' }).getByText('draining').waitFor();
  await expectWell('models');
});

const tierOf = (model: string) => {
  const tier = pages.api.world.rooms.replicas.operator.tiers().find(({ poolId }) => poolId === model);
  if (tier === undefined) throw new Error(`there is no tier ${model}`);
  return tier;
};

async function addReplica(model: string): Promise<void> {
  const { db, clock } = pages.api.world;
  await db.tx('test.replica', (tx) =>
    tx.run(sql`insert into model_replicas (id, pool_id, state, deployment, created_ms, entered_ms, ready_ms)
        values ('rep-1', ${model}, 'ready', ${JSON.stringify(tierOf(model).deployment)}, ${clock.now()}, ${clock.now()}, ${clock.now()})`),
  );
}

test('an endpoint whose deliveries were given up is replayed, and leaves the list', async () => {
  const { world } = pages.api;
  const owner = await pages.api.account();
  const made = await pages.api.call('POST', '/v1/webhook-endpoints', { key: owner.key, body: ENDPOINT });
  const id = String(made.json['id']);
  await world.machine();
  expect((await pages.api.call('POST', '/v1/instances', { key: owner.key, body: LAUNCH })).status).toBe(202);
  await world.db.tx('test.dead', async (tx) => {
    const nowMs = world.clock.now();
    await tx.run(sql`update webhook_deliveries set status = 'dead_lettered', attempts = 5, next_attempt_ms = null, urgent_ms = null,
        completed_ms = ${nowMs} where endpoint_id = ${id}`);
    await tx.run(sql`update webhook_endpoints set dead = 1, dead_since_ms = ${nowMs} where id = ${id}`);
  });
  await world.clock.advance(HOUR_MS);
  page = await pages.signedIn(await addPerson(world, undefined, { isOperator: true, isStrong: true }));
  await goTo('webhooks');
  await page.getByRole('row').filter({ hasText: 'https://hooks.example.com/gpu' }).waitFor();
  await expectWell('webhooks');
  await page.getByRole('button', { name: `Replay ${id}` }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Reason').fill('the customer has mended it');
  for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
  await dialog.getByRole('button', { name: 'Replay' }).click();
  await expect.poll(() => page.getByRole('dialog').count()).toBe(0);
  await expect
    .poll(async () => {
      await world.rooms.webhooks.courier.run();
      return outbound.requests.length;
    })
    .toBe(1);
  await goTo('webhooks');
  await page.getByRole('heading', { name: 'Nothing here' }).waitFor();
});

test('a reservation is shown, and cancelled', async () => {
  const { world } = pages.api;
  const { orgId } = await world.customer(0);
  const [start, end] = [48, 96].map((hours) => new Date(world.clock.now() + hours * HOUR_MS).toISOString());
  await world.machine();
  const { contract } = await world.rooms.reservations.create({
    org_id: orgId,
    title: 'training',
    starts_at: String(start),
    ends_at: String(end),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: 1, region: 'eu-west' }],
  });
  const { id } = contract;
  await goTo('reservations');
  await expectWell('reservations');
  await page.getByRole('button', { name: `End the contract ${id}` }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'End the contract' }).click();
  await page.getByRole('cell', { name: 'cancelled' }).waitFor();
  expect(await page.getByRole('button', { name: `End the contract ${id}` }).count()).toBe(0);
});

test('the overview says what is paused, since when, by whom and why', async () => {
  const { db, clock } = pages.api.world;
  const paused = { what: 'launches', since_ms: clock.now(), actor: 'alice', reason: 'an attack' } as const;
  await db.tx('test.pause', (tx) => pause(tx, paused));
  await goTo('overview');
  const note = page.getByRole('alert');
  await note.getByText('Launches are paused: an attack').waitFor();
  expect(await note.textContent()).toMatch(/By alice since .*svc-control-plane admin resume launches/);
  await expectWell('paused');
});
