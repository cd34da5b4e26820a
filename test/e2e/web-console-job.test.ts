// A job in the console, in Chromium: it is launched to end with its program, and its screen says how its program has ended and what it printed.
import { type Duplex, duplexPair } from 'node:stream';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { LOG_ARRIVES_MS } from '../../control-plane/rental/instances/plan.ts';
import { type ApiAccount, newestInstance } from '../contract/api.ts';
import { type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';

const LINE = { at: '2026-01-01T00:00:01.000000000Z', stream: 'stdout', line: 'loss 0.1' };

let pages: ConsolePages;
let page: Page;
let account: ApiAccount;
let id: string;
beforeAll(async () => {
  pages = await openConsolePages({ openStream: async () => oneLine() });
  account = await pages.api.account();
  const { orgId } = account;
  await pages.api.world.machine();
  page = await pages.signedIn(await addPerson(pages.api.world, { orgId, role: 'owner' }));
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

function oneLine(): Duplex {
  const [near, far] = duplexPair();
  far.end(`${JSON.stringify(LINE)}\n`);
  return near;
}

test('a launch can end with its program, and the line below it says so', async () => {
  await page.goto(`${pages.origin}/console/launch`);
  await page.getByRole('radio', { name: /H100/ }).check();
  await page.getByText('Own image').click();
  await page.getByLabel('Image', { exact: true }).fill('busybox');
  const line = page.locator('code', { hasText: 'svc instance create' }).first();
  expect(await line.textContent()).not.toContain('--auto-terminate-on-exit');
  await page.getByLabel('Stop by itself when the program has ended').check();
  await expect.poll(() => line.textContent()).toContain('--auto-terminate-on-exit');
  await pages.judge((await line.textContent()) ?? '');
  await page.getByRole('button', { name: /^Launch at/ }).click();
  const newest = async (): Promise<unknown> => (await newestInstance(pages.api, account))['id'];
  await expect.poll(newest).toMatch(/^i-/);
  id = String(await newest());
  await pages.api.world.observe(id, { phase: 'pulling' });
  await pages.api.world.drive();
  await page.getByText('with its program').waitFor();
  await page.getByText('as soon as its main process has ended').waitFor();
});

test('its screen says how its program has ended, and what it printed', async () => {
  const { world } = pages.api;
  await world.start(id);
  await world.observe(id, { phase: 'running', main_exit: { code: 3, signal: null } });
  await world.clock.advance(LOG_ARRIVES_MS);
  await world.drive();
  await world.observe(id, { phase: 'removed' });
  await world.drive();
  await page.reload();
  await page.locator('.badge', { hasText: 'terminated' }).first().waitFor();
  await page.getByText('The main process exited with code 3.').first().waitFor();
  await page.getByText('loss 0.1').waitFor();
});
