// A customer rents in the console by keyboard alone, with the real daemons and a container: launch, see it run, connect, terminate, read the bill.
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { axeFindings } from '../kit/console-pages.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { openBrowser } from '../kit/web-clients.ts';

const PASSWORD = 'correct horse battery';
const BOOT_MS_MAX = 120_000;
/** More than any screen has. */
const STOPS_MAX = 150;

let stack: RentalStack;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  stack = await openRentalStack();
  browser = await openBrowser();
  page = await (await browser.newContext({ reducedMotion: 'reduce' })).newPage();
});
afterAll(async () => {
  await browser.close();
  expect(await stack.end()).toEqual([]);
});

/** Presses Tab until the focus is on the control of this name. */
async function tabTo(name: string | RegExp): Promise<void> {
  const wanted = typeof name === 'string' ? new RegExp(`^${name}$`) : name;
  const seen: string[] = [];
  for (let stop = 0; stop < STOPS_MAX; stop += 1) {
    await page.keyboard.press('Tab');
    const found = await page.evaluate<string>(
      `(() => { const it = document.activeElement; return (it.ariaLabel || it.labels?.[0]?.querySelector('span')?.textContent || it.labels?.[0]?.textContent || it.textContent || '').trim(); })()`,
    );
    if (wanted.test(found)) return;
    seen.push(found);
  }
  throw new Error(`Tab does not lead to ${String(name)}, only to: ${seen.slice(0, 60).join(' | ')}`);
}

async function type(name: string | RegExp, text: string): Promise<void> {
  await tabTo(name);
  await page.keyboard.type(text);
}

async function press(name: string | RegExp): Promise<void> {
  await tabTo(name);
  await page.keyboard.press('Enter');
}

test('a page at an address says that passkeys need a host name', async () => {
  await page.goto(new URL('/console', stack.controlPlane.baseUrl).href);
  await page.getByText('Passkeys need a host name').waitFor();
  expect(await page.getByRole('button', { name: 'Sign in with a passkey' }).count()).toBe(0);
});

test('the link of the operator leads to the first page, by keyboard', async () => {
  const person = ['--email', 'ada@example.com', '--name', 'Ada', '--org', stack.customer.orgId, '--role', 'owner'];
  const { url } = (await stack.controlPlane.operator('admin', 'user', 'add', ...person)) as { url: string };
  await page.goto(url);
  await type('Password', PASSWORD);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Nothing runs yet' }).waitFor();
});

test('an offering is chosen, an image is named, and the launch leads to the instance, which comes to run', async () => {
  await press('Launch');
  await page.getByRole('heading', { name: 'Launch an instance' }).waitFor();
  await page.getByRole('radio', { name: /H100/ }).waitFor();
  await tabTo(/H100/);
  await page.keyboard.press('Space');
  await tabTo('Environment');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await type('Image', stack.image.ref);
  await type('Name, optional', 'by-keyboard');
  await press(/^Launch at \$/);
  await page.getByRole('heading', { name: 'by-keyboard' }).waitFor();
  await page.locator('.badge.ok', { hasText: 'running' }).waitFor({ timeout: BOOT_MS_MAX });
  await page
    .getByText(/^svc ssh /)
    .first()
    .waitFor();
  expect(await axeFindings(page)).toEqual([]);
});

test('the instance is terminated after its name was typed, and its bill is shown', async () => {
  await press('Terminate');
  await page.getByRole('dialog').waitFor();
  expect(await axeFindings(page)).toEqual([]);
  await type(/^Type the name to confirm/, 'by-keyboard');
  await press(/^Terminate and delete disk$/);
  await page.locator('.badge', { hasText: 'terminated' }).first().waitFor({ timeout: 60_000 });
  await page
    .getByRole('region', { name: 'Bill', exact: true })
    .getByText(/^Total/)
    .waitFor();
  await page.goto(new URL('/console/usage', page.url()).href);
  await page.getByRole('heading', { name: 'Usage and balance' }).waitFor();
  expect(await axeFindings(page)).toEqual([]);
});
