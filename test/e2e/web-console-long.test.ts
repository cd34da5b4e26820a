// Lists of thousands of rows in the console: filters and sums are true of the whole list, and the browser draws a part of it.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ApiAccount } from '../contract/api.ts';
import { type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';
import { copyInstances } from '../kit/long-lists.ts';

const COPIES = 4_999;

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
  await world.machine({ gpus: 2 });
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
