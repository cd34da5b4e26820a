// A supplier in the console, with the real daemons, from nothing to a listed machine: it registers, copies the line that enrols its host, reads what
// is checked, and the operator approves the GPUs in the console too.
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Org } from '../../shared/api/account.ts';
import { PricingRow } from '../../shared/api/pricing.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { openApiClient } from '../kit/api-client.ts';
import { axeFindings } from '../kit/console-pages.ts';
import { BROWSERS, openVisits, type Visits } from '../kit/console-visitors.ts';
import { eventually } from '../kit/processes.ts';
import { addHost, openStack, type Stack } from '../kit/stack.ts';

const REREAD_MS_MAX = 30_000;

let stack: Stack;
let visits: Visits;

beforeAll(async () => {
  // Passkeys need a host name.
  stack = await openStack({ hostname: 'localhost' });
  visits = openVisits(stack.controlPlane);
});
afterAll(async () => {
  expect(await stack.stop()).toEqual([]);
  expect(visits.broken).toEqual([]);
});

/** `gpus`: the GPUs of the host. `listed`: all GPUs that are on offer once the host is listed. */
const KINDS = BROWSERS.map((kind, index) => ({ ...kind, gpus: index + 1, listed: index === 0 ? 1 : 3 }));

describe.each(KINDS)('$name', (kind) => {
  const { gpus, listed } = kind;
  // The seed gives the cards of each host UUIDs of their own: a card that two hosts report is not listed.
  const env = { FAKE_GPU_COUNT: String(gpus), FAKE_GPU_SEED: String(gpus) };
  let browser: Browser;
  let page: Page;

  beforeAll(async () => {
    browser = await kind.open();
    const name = `Harbor ${kind.name}`;
    const org = Org.parse(await stack.controlPlane.operator('admin', 'org', 'create', '--name', name));
    const sam = ['--email', `sam@${kind.name.toLowerCase()}.example.com`, '--name', 'Sam'];
    page = await visits.visit(browser, [...sam, '--org', org.id, '--role', 'owner']);
  });
  afterAll(async () => browser.close());

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
    const host = addHost(stack, { env });
    expect(await host.enroll(url, token)).toMatchObject({ code: 0 });
    await host.daemon.start();
  });

  test('the page follows the host by itself, until only the approval is missing', async () => {
    await page
      .locator('.stats')
      .filter({ hasText: `${gpus} × H100 SXM` })
      .waitFor();
    const missing = page.getByRole('listitem').filter({ hasText: /^approval/ });
    await missing.filter({ hasText: 'waiting' }).waitFor();
    const undone = page.locator('.steps li:not(.done) .at', { hasNotText: 'not required' });
    await expect.poll(() => undone.count(), { timeout: REREAD_MS_MAX }).toBe(1);
    await page.getByText('You earn $1.7000 of it: the fee is 15 %').waitFor();
    await page
      .getByRole('img', { name: /^Temperature, now \d+ °C/ })
      .first()
      .waitFor({ timeout: REREAD_MS_MAX });
    const findings = kind.hasPasskeys ? await axeFindings(page) : [];
    expect(findings).toEqual([]);
    const shots = process.env['CONSOLE_SHOTS'];
    if (shots !== undefined) await page.screenshot({ path: `${shots}/supplier-machine.png`, fullPage: true });
  });

  test('the operator approves it in the console, and it is listed', async () => {
    const operator = await visits.visitAsOperator(browser, kind);
    await operator.getByRole('link', { name: 'Fleet' }).click();
    await operator.getByRole('button', { name: /^Approve/ }).click();
    await operator.getByRole('dialog').getByRole('button', { name: 'Approve' }).click();
    await page.locator('.stats .badge.ok', { hasText: 'listed' }).waitFor();
    await eventually('the offering', REREAD_MS_MAX, async () => {
      const stranger = openApiClient(stack.controlPlane.baseUrl);
      const { data } = await stranger.get('/pricing', pageSchema(PricingRow));
      return data.reduce((sum, { available }) => sum + available, 0) === listed || undefined;
    });
    // The daemon has written its first minute.
    await operator.getByRole('link', { name: 'Overview' }).click();
    const instances = operator
      .getByRole('region', { name: 'Due rows, table' })
      .getByRole('row', { name: /^instances/ });
    await expect.poll(() => instances.locator('td').last().textContent()).toMatch(/^\d+$/);
    await operator
      .getByRole('img', { name: /^The last 24 hours: 0 outages, at most \d machines? without a link$/ })
      .waitFor();
  });

  test('a price that is far from the one before is asked about first', async () => {
    const field = page.getByLabel('Price of one GPU per hour, in dollars');
    const submit = page.getByRole('button', { name: 'Change the price', exact: true });
    const dialog = page.getByRole('dialog', { name: 'Change $2.00 to $0.20?' });
    await field.fill('0.20');
    await submit.click();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await field.fill('1.90');
    await submit.click();
    await page.locator('.stats', { hasText: '$1.90' }).waitFor();
    await field.fill('0.20');
    await submit.click();
    await page.getByRole('dialog').getByRole('button', { name: 'Change the price' }).click();
    await page.locator('.stats', { hasText: '$0.20' }).waitFor();
  });
});
