// A supplier in the console, with the real daemons, from nothing to a listed machine: it registers, copies the line that enrols its host, reads what
// is checked, and the operator approves the GPUs in the console too.
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Org } from '../../shared/api/account.ts';
import type { AgentHost } from '../kit/agent-host.ts';
import { addAuthenticator, axeFindings } from '../kit/console-pages.ts';
import { addHost, openStack, type Stack, waitForOffering } from '../kit/stack.ts';
import { openBrowser } from '../kit/web-clients.ts';

const GPUS = { env: { FAKE_GPU_COUNT: '2' } };
const PASSWORD = 'correct horse battery';

let stack: Stack;
let host: AgentHost;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  // Passkeys need a host name.
  stack = await openStack({ gpus: GPUS, hostname: 'localhost' });
  browser = await openBrowser();
  const org = Org.parse(await stack.controlPlane.operator('admin', 'org', 'create', '--name', 'Harbor'));
  page = await signIn(['--email', 'sam@example.com', '--name', 'Sam', '--org', org.id, '--role', 'owner']);
});
afterAll(async () => {
  await browser.close();
  expect(await stack.stop()).toEqual([]);
});

/** A person who has followed the link of the operator's command. */
async function signIn(person: readonly string[]): Promise<Page> {
  const { url } = (await stack.controlPlane.operator('admin', 'user', 'add', ...person)) as { url: string };
  const own = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  await own.goto(url);
  await own.getByLabel('Password').fill(PASSWORD);
  await own.getByRole('button', { name: 'Set the password and sign in' }).click();
  return own;
}

test('a supplier registers a machine, and the line that the page shows enrols the host', async () => {
  await page.getByRole('link', { name: 'Machines' }).click();
  await page.getByRole('button', { name: 'Become a supplier' }).click();
  await page.getByRole('button', { name: 'Add a machine' }).click();
  await page.getByLabel('Region').fill('eu-west');
  await page.getByLabel('Price of one GPU').fill('2.00');
  await page.getByRole('button', { name: 'Register the machine' }).click();
  const line = await page.locator('.copy code').innerText();
  const [, url = '', token = ''] = /^\.\/install\.sh agent --url (\S+) --token (\S+)$/.exec(line) ?? [];
  await page.getByRole('link', { name: 'Watch its checks' }).click();
  await page.getByRole('listitem').filter({ hasText: 'enrolment' }).filter({ hasText: 'waiting' }).waitFor();
  host = addHost(stack, GPUS);
  expect(await host.enroll(url, token)).toMatchObject({ code: 0 });
  await host.daemon.start();
});

test('the page follows the host by itself, until only the approval is missing', async () => {
  await page.locator('.stats').filter({ hasText: '2 × H100 SXM' }).waitFor();
  const missing = page.getByRole('listitem').filter({ hasText: /^approval/ });
  await missing.filter({ hasText: 'waiting' }).waitFor();
  await expect
    .poll(() => page.locator('.steps li:not(.done) .at', { hasNotText: 'not required' }).count(), { timeout: 30_000 })
    .toBe(1);
  await page.getByText('You earn $1.7000 of it: the fee is 15 %').waitFor();
  await page.getByRole('img', { name: /^Temperature, now \d+ °C/ }).waitFor({ timeout: 30_000 });
  expect(await axeFindings(page)).toEqual([]);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/supplier-machine.png`, fullPage: true });
}, 90_000);

test('the operator approves it in the console, and it is listed', async () => {
  const operator = await signIn(['--email', 'olga@example.com', '--name', 'Olga', '--operator']);
  await operator.getByRole('heading', { name: 'Set up a second factor' }).waitFor();
  await addAuthenticator(operator);
  await operator.getByLabel('Name').fill('key');
  await operator.getByRole('button', { name: 'Add a passkey' }).click();
  await operator.getByRole('button', { name: 'I have kept them' }).click();
  await operator.getByRole('link', { name: 'Fleet' }).click();
  await operator.getByRole('button', { name: /^Approve/ }).click();
  await operator.getByRole('dialog').getByRole('button', { name: 'Approve' }).click();
  await page.locator('.stats .badge.ok', { hasText: 'listed' }).waitFor();
  expect(await waitForOffering(stack.controlPlane)).toMatchObject({ gpu_type: 'H100_SXM' });
  // The daemon has written its first minute.
  await operator.getByRole('link', { name: 'Overview' }).click();
  const instances = operator.getByRole('region', { name: 'Due rows, table' }).getByRole('row', { name: /^instances/ });
  await expect.poll(() => instances.locator('td').last().textContent(), { timeout: 20_000 }).toMatch(/^\d+$/);
  await operator
    .getByRole('img', { name: /^The last 24 hours: 0 outages, at most \d machines? without a link$/ })
    .waitFor();
}, 90_000);
