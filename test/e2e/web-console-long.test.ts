// Lists of thousands of rows in the console: filters and sums are true of the whole list, and the browser draws a part of it.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import type { ApiAccount } from '../contract/api.ts';
import { type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';
import { copyInstances, copyOfferings, copySshKeys } from '../kit/long-lists.ts';

const COPIES = 4_999;
const NEWER_OFFERINGS = 200;
const FURTHER_KEYS = 249;
const PUBLIC_KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS';

let pages: ConsolePages;
let page: Page;
let account: ApiAccount;

/** The requests for costs until now. */
const asked: string[] = [];

beforeAll(async () => {
  pages = await openConsolePages();
  const { world } = pages.api;
  account = await pages.api.account();
  await world.clock.advance(Date.now() - world.clock.now());
  await world.machine({ gpus: 3 });
  await copyInstances(world.db, await world.run(account), COPIES);
  page = await pages.signedIn(await addPerson(world, { orgId: account.orgId, role: 'owner' }));
  page.on('request', (request) => {
    if (request.url().includes('/v1/instance-costs')) asked.push(request.url());
  });
  await page.goto(`${pages.origin}/console/instances`);
});
afterAll(async () => pages.close());

const drawn = (): Promise<number> => page.locator('tbody tr').count();

test('all pages are read, so that the sums count each instance, and a part of the rows is drawn', async () => {
  await page.getByText('Billing now: 5000 of 5000 active').waitFor();
  expect(await drawn()).toBe(100);
  await page.getByText('100 of 5,000').waitFor();
  await page.getByRole('button', { name: 'Show more' }).click();
  await expect.poll(drawn).toBe(200);
});

test('the costs are those of the rows that are drawn, a hundred in one request', async () => {
  await expect.poll(() => page.locator('tbody td:last-child', { hasText: /^\$/ }).count()).toBe(200);
  const first = new URL(asked[0] ?? '').searchParams.get('instance_ids')?.split(',');
  expect(first).toHaveLength(100);
  expect(first?.at(-1)).toBe('i-copy-99');
});

test('the filter finds the oldest instance', async () => {
  await page.getByPlaceholder('Filter by name, id or GPU').fill(`run ${COPIES}`);
  await expect.poll(drawn).toBe(1);
  await page.getByRole('link', { name: `run ${COPIES}` }).waitFor();
  await page.getByPlaceholder('Filter by name, id or GPU').fill('');
});

test('a new instance comes to the top, and the rows behind the first page stay', async () => {
  await pages.api.world.clock.advance(1_000);
  await pages.api.world.launch(account, { name: 'the newest' });
  await expect
    .poll(
      async () => {
        await pages.api.world.rooms.live.tick();
        return page.getByRole('link', { name: 'the newest' }).count();
      },
      { timeout: 20_000 },
    )
    .toBe(1);
  await page.getByText('Billing now: 5000 of 5001 active').waitFor();
  expect(await drawn()).toBe(200);
  expect(pages.broken).toEqual([]);
});

test('the launch screen offers the oldest of 201 offerings, and follows its price after it was chosen', async () => {
  const { db } = pages.api.world;
  const { json } = await pages.api.call('GET', '/v1/pricing', { key: account.key });
  await copyOfferings(db, String(json.data?.[0]?.['offering_id']), NEWER_OFFERINGS);
  await page.goto(`${pages.origin}/console/launch`);
  await page.getByText('201 offerings, none hidden.').waitFor();
  expect(await page.getByRole('table', { name: 'Offerings' }).locator('tbody tr').count()).toBe(100);
  await page.getByText('100 of 201').waitFor();
  await page.getByRole('radio', { name: /H100/ }).check();
  const launch = page.getByRole('button', { name: /^Launch at/ });
  const before = await launch.textContent();
  await db.tx('test.price', (tx) =>
    tx.run(
      sql`update offerings set price_ucents_per_hour = price_ucents_per_hour + 50000000 where gpu_type = 'H100_SXM'`,
    ),
  );
  await expect.poll(() => launch.textContent()).not.toBe(before);
  expect(await launch.isEnabled()).toBe(true);
  expect(pages.broken).toEqual([]);
});

test('a launch of an organisation with 250 SSH keys names all of them after "All keys" was unticked', async () => {
  const body = { name: 'ada', public_key: PUBLIC_KEY };
  const { json } = await pages.api.call('POST', '/v1/ssh-keys', { key: account.key, body });
  await copySshKeys(pages.api.world.db, String(json['id']), FURTHER_KEYS);
  await page.reload();
  await page.getByRole('radio', { name: /H100/ }).check();
  await page.getByRole('checkbox', { name: /^All keys/ }).uncheck();
  await page.getByRole('checkbox', { name: /^copy 7 / }).uncheck();
  const curl = page.getByRole('complementary').locator('.cmd code').last();
  const named = async (): Promise<number> => (await curl.textContent())?.match(/"key-copy-\d+"/g)?.length ?? 0;
  await expect.poll(named).toBe(FURTHER_KEYS - 1);
});
