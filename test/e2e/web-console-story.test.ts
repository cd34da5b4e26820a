// The whole story of a customer in the console, in Chromium and in Firefox, with the real daemons and a container: an invited person gets an
// account, the operator gives a credit, an image is launched, the terminal answers, the instance is terminated, and the bill shows it.
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Org } from '../../shared/api/account.ts';
import { addAuthenticator } from '../kit/console-pages.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { BROWSERS, openVisits, PASSWORD, type Visits } from '../kit/console-visitors.ts';

const BOOT_MS_MAX = 120_000;

let stack: RentalStack;
let visits: Visits;
beforeAll(async () => {
  stack = await openRentalStack({ hostname: 'localhost' });
  visits = openVisits(stack.controlPlane);
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
  expect(visits.broken).toEqual([]);
});

describe.each(BROWSERS)('$name', ({ name, open, hasPasskeys }) => {
  const email = `ben@${name.toLowerCase()}.example.com`;
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  let orgId: string;
  let invitation: string;

  beforeAll(async () => {
    browser = await open();
    // The terminal has a certificate of the stack's own authority.
    context = await browser.newContext({
      ignoreHTTPSErrors: true,
      viewport: { width: 1440, height: 900 },
      reducedMotion: 'reduce',
    });
    context.setDefaultTimeout(15_000);
    page = await context.newPage();
    orgId = Org.parse(await stack.controlPlane.operator('admin', 'org', 'create', '--name', `Acme ${name}`)).id;
  });
  afterAll(async () => browser.close());

  test('the owner follows the link of the operator and invites somebody', async () => {
    const person = ['--email', `ada@${name.toLowerCase()}.example.com`, '--name', 'Ada', '--org', orgId];
    const owner = await visits.visit(browser, [...person, '--role', 'owner']);
    await owner.getByRole('link', { name: 'Members' }).click();
    await owner.getByLabel('E-mail').fill(email);
    await owner.getByRole('button', { name: 'Make the link' }).click();
    invitation = await owner.locator('.copy code').innerText();
    await owner.context().close();
  });

  test('the invited person creates an account, and signs in again', async () => {
    if (hasPasskeys) await addAuthenticator(page);
    await page.goto(invitation);
    await page.getByLabel('Your name').fill('Ben');
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Create the account and join' }).click();
    await page.getByRole('heading', { name: 'Nothing runs yet' }).waitFor();
    if (hasPasskeys) await addPasskey();
    await page.locator('[popovertarget=who]').click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    if (hasPasskeys) await page.getByRole('button', { name: 'Sign in with a passkey' }).click();
    else {
      await page.getByLabel('E-mail').fill(email);
      await page.getByLabel('Password').fill(PASSWORD);
      await page.getByRole('button', { name: 'Sign in', exact: true }).click();
    }
    await page.locator('[popovertarget=who]').waitFor();
  });

  test('without a balance nothing is launched, and the page says what to do', async () => {
    await page.goto(new URL('/console/launch', page.url()).href);
    await page.getByRole('radio', { name: /H100/ }).check();
    await page.getByLabel('Own image').check();
    await page.getByRole('textbox', { name: /^Image/ }).fill(stack.image.ref);
    await page.getByLabel('Name, optional').fill(`story-${name.toLowerCase()}`);
    await page.getByRole('button', { name: /^Launch at \$/ }).click();
    await page.getByRole('alert').getByText('insufficient_balance').waitFor();
  });

  test('after a credit of the operator the launch comes to run', async () => {
    const credit = ['--org', orgId, '--usd', '100', '--reference', `welcome ${name}`];
    await stack.controlPlane.operator('admin', 'balance', 'add', ...credit);
    await page.getByRole('button', { name: /^Launch at \$/ }).click();
    await page.getByRole('heading', { name: `story-${name.toLowerCase()}` }).waitFor();
    await page.locator('.badge.ok', { hasText: 'running' }).waitFor({ timeout: BOOT_MS_MAX });
  });

  test('the terminal opens with the login that the page shows, and runs commands in the container', async () => {
    await page.getByRole('button', { name: 'Show password' }).click();
    const password = page
      .locator('.copy')
      .filter({ has: page.getByRole('button', { name: 'Copy the password' }) })
      .locator('code');
    const connect = page.getByRole('region', { name: 'Connect', exact: true });
    const user = connect.locator('.row > code').first();
    const login = { username: await user.innerText(), password: await password.innerText() };
    // A page of its own, because only a new one answers the browser's question for a login.
    const url = await page.getByRole('link', { name: 'Open Terminal' }).getAttribute('href');
    const terminal = await (await browser.newContext({ ignoreHTTPSErrors: true, httpCredentials: login })).newPage();
    await terminal.goto(url ?? '');
    await expect.poll(() => terminal.locator('#status').textContent(), { timeout: 30_000 }).toBe('connected');
    const screen = terminal.locator('.xterm-rows');
    await expect.poll(() => screen.innerText()).toMatch(/[#$]\s*$/);
    await terminal.keyboard.type('echo six times seven is $((6 * 7))\n');
    await expect.poll(() => screen.innerText()).toContain('six times seven is 42');
    await terminal.context().close();
  });

  test('the instance is terminated, and the bill has its seconds and the credit', async () => {
    await page.getByRole('button', { name: 'Terminate' }).click();
    await page.getByLabel(/^Type the name to confirm/).fill(`story-${name.toLowerCase()}`);
    await page.getByRole('button', { name: 'Terminate and delete disk' }).click();
    await page.locator('.badge', { hasText: 'terminated' }).first().waitFor({ timeout: 60_000 });
    const id = new URL(page.url()).pathname.split('/').at(-1) ?? '';
    await page.goto(new URL('/console/usage', page.url()).href);
    const bill = page.getByRole('region', { name: 'Bill', exact: true });
    await bill
      .getByRole('row')
      .filter({ hasText: id })
      .getByText(/^Rentals/)
      .waitFor();
    await bill
      .getByRole('row')
      .filter({ hasText: `welcome ${name}` })
      .waitFor();
  });

  async function addPasskey(): Promise<void> {
    await page.goto(new URL('/console/security', page.url()).href);
    await page.getByRole('button', { name: 'Add a second factor' }).click();
    await page.getByLabel('Name').fill('laptop');
    await page.getByRole('button', { name: 'Add a passkey' }).click();
    await page.getByRole('button', { name: 'I have kept them' }).click();
    await page.getByRole('cell', { name: 'Remove laptop' }).waitFor();
  }
});
