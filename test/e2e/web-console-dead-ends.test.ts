// What the console shows of things that have failed or do not exist yet, in Chromium: no figure or form that cannot be true any more.
import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import type { ApiAccount } from '../contract/api.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { fleetModels } from '../kit/models.ts';
import { addPerson } from '../kit/people.ts';

const HOUR_MS = 3_600_000;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

/** Such times are known only of a model that has woken up. */
const WAKES = { p50: 7.301, p95: 12.5 };

let pages: ConsolePages;
let owner: ApiAccount;
let page: Page;
beforeAll(async () => {
  pages = await openConsolePages({ settings: { models: fleetModels() } });
  const { world } = pages.api;
  owner = await pages.api.account();
  await world.clock.advance(Date.now() - 2 * HOUR_MS - world.clock.now());
  await world.machine({ gpus: 2, dollars: 2 });
  page = await pages.signedIn(await addPerson(world, { orgId: owner.orgId, role: 'owner' }));
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

async function open(path: string): Promise<void> {
  await page.goto(`${pages.origin}/console/${path}`);
}

const figures = (): Promise<string> => page.getByRole('region', { name: 'Figures' }).innerText();

test('a launch that has failed says that it never ran, and not that it goes on', async () => {
  const { world } = pages.api;
  const id = await world.launch(owner, { max_price_per_hour: 0.01 });
  await world.drive();
  await open(`instances/${id}`);
  await page.getByText('It never ran, so it costs nothing.').waitFor();
  expect(await figures()).toMatch(/\$0\.00\s+it never ran[^]*Ended\s+failed/);
  expect(await figures()).not.toContain('until you terminate it');
  await page.getByRole('button', { name: 'Terminate' }).click();
  expect(await page.getByRole('dialog').innerText()).toContain('It has failed, and nothing is billed any more.');
  expect(await axeFindings(page)).toEqual([]);
});

test('an instance that has failed after it ran has no time left, and its bill ends with its last charge', async () => {
  const { world } = pages.api;
  const id = await world.run(owner, { name: 'lost' });
  await pages.probe(60_000);
  world.probeAnswers.set(id, DEAD);
  await pages.probe(35 * 60_000);
  await world.drive();
  const { json } = await pages.api.call('GET', `/v1/instances/${id}`, { key: owner.key });
  expect(json).toMatchObject({ status: 'error' });
  await open(`instances/${id}`);
  await page.getByRole('region', { name: 'Bill, table' }).waitFor();
  expect(await figures()).toMatch(/Ended\s+failed/);
  expect(await page.locator('.axis').first().innerText()).not.toContain('now');
  await open('instances');
  const row = page.getByRole('row').filter({ hasText: 'lost' });
  await row.waitFor();
  expect(await row.innerText()).not.toContain('no limit');
});

test('the earnings of an organisation that is no supplier lead to its first machine, without a form that is refused', async () => {
  await open('earnings');
  await page.getByRole('heading', { name: 'Nothing earned yet' }).waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
  expect(await page.getByLabel('Address').count()).toBe(0);
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole('link', { name: 'Rent out your GPUs' }).click();
  await page.getByRole('button', { name: 'Become a supplier' }).waitFor();
});

test('a webhook endpoint that does not exist is said to be missing once', async () => {
  await open('webhooks/we_nothing');
  await page.getByRole('alert').first().waitFor();
  await expect.poll(() => page.locator('[aria-busy="true"]').count()).toBe(0);
  expect(await page.getByRole('alert').count()).toBe(1);
  expect(await page.getByRole('button', { name: 'Send a test event' }).count()).toBe(0);
});

test('deliveries can be retried once one has failed, and not before', async () => {
  const { world } = pages.api;
  const body = { url: 'https://hooks.example.com/in', event_types: ['instance.creating'] };
  const made = await pages.api.call('POST', '/v1/webhook-endpoints', { key: owner.key, body });
  const { id } = made.json as { id: string };
  await world.launch(owner);
  await open(`webhooks/${id}`);
  await page.getByText('pending', { exact: true }).waitFor();
  const retry = page.getByRole('button', { name: 'Retry all failed' });
  expect(await retry.count()).toBe(0);
  await world.db.tx('fail', (tx) =>
    tx.run(sql`update webhook_deliveries set status = 'dead_lettered', next_attempt_ms = null, urgent_ms = null
      where endpoint_id = ${id}`),
  );
  await page.reload();
  await retry.waitFor();
});

test('what an instance without a name has cost can be read on a phone', async () => {
  const { world } = pages.api;
  await world.end(owner, await world.run(owner));
  const phone = await (await pages.open({ isPhone: true })).newPage();
  await phone.context().addCookies(await page.context().cookies());
  await phone.goto(`${pages.origin}/console/instances`);
  await phone.getByText('terminated').waitFor();
  await expect.poll(() => phone.getByText('…', { exact: true }).count()).toBe(0);
  const table = phone.getByRole('region', { name: 'Instances, table' });
  const endOf = async (part: Locator): Promise<number> => {
    const box = await part.boundingBox();
    return (box?.x ?? Number.NaN) + (box?.width ?? Number.NaN);
  };
  expect(await endOf(table.getByRole('row').last())).toBeLessThanOrEqual(await endOf(table));
  await phone.context().close();
});

test('the prices of a model can be read on a phone, and cover nothing', async () => {
  const phone = await (await pages.open({ isPhone: true })).newPage();
  await phone.context().addCookies(await page.context().cookies());
  const { json } = await pages.api.call('GET', '/v1/models', { key: owner.key });
  const woken = (json as { data: object[] }).data.map((model) => ({ ...model, cold_start_seconds: WAKES }));
  await phone.route('**/v1/models*', (route) => route.fulfill({ json: { object: 'list', data: woken } }));
  await phone.goto(`${pages.origin}/console/models`);
  const prices = phone.getByText('economy $0.15 in');
  await prices.waitFor();
  const name = await phone.getByText(/^chat, economy wakes in/).boundingBox();
  const price = await prices.boundingBox();
  expect(price?.x ?? 0).toBeGreaterThanOrEqual((name?.x ?? 0) + (name?.width ?? 0));
  expect((price?.x ?? 0) + (price?.width ?? 0)).toBeLessThanOrEqual(390);
  await phone.context().close();
});

test('a question to a model asks for no more than the model gives, and comes back to its field if it is refused', async () => {
  await open('models');
  await page.getByText('svc chat acme/tiny QUESTION').waitFor();
  await page.getByLabel('Max tokens').fill('5000');
  await page.getByLabel('Message').fill('What is this?');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('max_tokens must be at most 1024').waitFor();
  expect(await page.getByLabel('Message').inputValue()).toBe('What is this?');
  expect(await page.getByText(/It was stopped|The answer is complete/).count()).toBe(0);
});

test('a person who goes to another screen while a launch is sent is not taken away from it by the answer', async () => {
  const sent = Promise.withResolvers<void>();
  const mayGoOn = Promise.withResolvers<void>();
  const isLaunch = (url: URL): boolean => url.pathname === '/v1/instances';
  await page.route(isLaunch, async (route) => {
    if (route.request().method() === 'POST') {
      sent.resolve();
      await mayGoOn.promise;
    }
    await route.continue();
  });
  await pages.api.world.machine({ gpus: 1, dollars: 2 });
  await open('launch');
  await page.getByRole('radio', { name: /H100/, disabled: false }).first().check();
  await page.getByRole('button', { name: /^Launch at \$/ }).click();
  await sent.promise;
  await page.getByRole('link', { name: 'SSH keys' }).click();
  await page.getByRole('heading', { name: 'SSH keys' }).first().waitFor();
  const accepted = page.waitForResponse((response) => response.status() === 202);
  mayGoOn.resolve();
  const operation = (await (await accepted).json()) as object;
  const placed = { ...operation, state: 'in_progress', resource_id: 'i-placed' };
  await page.route('**/v1/operations/*', (route) => route.fulfill({ json: placed }));
  await page.unroute(isLaunch);
  // The form asked every half second where the instance is.
  await page.evaluate('new Promise((resolve) => setTimeout(resolve, 1000))');
  expect(new URL(page.url()).pathname).toBe('/console/ssh-keys');
});
