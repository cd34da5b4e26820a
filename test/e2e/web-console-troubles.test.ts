// What goes wrong, and is put right in the console, with the real daemons in Chromium and in Firefox: a server of webhooks was away, and its
// customer retries the dead delivery; a host dies, the operator decides about the credits of its customers, and the supplier reads what it lost.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/instances/quiet.ts';
import { launch, terminate } from '../kit/api-client.ts';
import { makeCertificate } from '../kit/certificate.ts';
import { BROWSERS, openVisits, type Visits } from '../kit/console-visitors.ts';
import { ONE_GPU, openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { type Customer, openCustomer } from '../kit/stack.ts';

/** An outage is confirmed, or found to be over, within this time. */
const OUTAGE_MS_MAX = 120_000;
const STARTED_MS = performance.now();

interface Visitor {
  browser: Browser;
  customer: Customer;
  page: Page;
  instanceId: string;
  operator: Page | undefined;
}

let stack: RentalStack;
let visits: Visits;
let server: Server;
let certificateDir: string;
/** What the receiver of all webhooks answers. */
let answer = 503;
const customers = new Map<string, Visitor>();

beforeAll(async () => {
  const certificate = makeCertificate(['IP:127.0.0.1']);
  server = createServer(certificate, (request, reply) => {
    request.resume();
    request.on('end', () => reply.writeHead(answer).end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  certificateDir = mkdtempSync(join(tmpdir(), 'receiver-'));
  process.env['NODE_EXTRA_CA_CERTS'] = join(certificateDir, 'receiver.pem');
  writeFileSync(process.env['NODE_EXTRA_CA_CERTS'], certificate.cert);
  stack = await openRentalStack({ hostname: 'localhost', settings: () => settings(port()) });
  visits = openVisits(stack.controlPlane);
  delete process.env['NODE_EXTRA_CA_CERTS'];
});
afterAll(async () => {
  for (const { browser, customer, instanceId } of customers.values()) {
    await browser.close();
    await terminate(customer.api, instanceId);
  }
  server.closeAllConnections();
  server.close();
  rmSync(certificateDir, { recursive: true });
  expect(await stack.end()).toEqual([]);
  expect(visits.broken).toEqual([]);
});

const port = (): number => (server.address() as AddressInfo).port;

/** One attempt is all, and no credit is given without a decision of the operator. */
function settings(webhookPort: number): object {
  return {
    webhooks: { max_attempts: 1, allowed_networks: ['127.0.0.0/8'], allowed_ports: [webhookPort] },
    loss_bounds: { credits_per_org: 0, credits_per_supplier: 0, own_outages_per_supplier: 0 },
  };
}

function of(name: string): Visitor {
  const found = customers.get(name);
  if (found === undefined) throw new Error(`the customer in ${name} has not begun`);
  return found;
}

const consoleUrl = (path: string): string => new URL(`/console/${path}`, stack.controlPlane.baseUrl).href;

describe.each(BROWSERS)('a customer in $name', ({ name, open }) => {
  beforeAll(async () => {
    answer = 503;
    const browser = await open();
    const customer = await openCustomer(stack, name);
    const person = ['--email', `ada@${name.toLowerCase()}.example.com`, '--name', 'Ada', '--org', customer.orgId];
    const page = await visits.visit(browser, [...person, '--role', 'owner']);
    await page.getByRole('link', { name: 'Webhooks' }).waitFor();
    customers.set(name, { browser, customer, page, instanceId: '', operator: undefined });
  });

  test('adds an endpoint, whose server is away while a launch goes on', async () => {
    const { page, customer } = of(name);
    await page.getByRole('link', { name: 'Webhooks' }).click();
    await page.getByRole('textbox', { name: 'URL' }).fill(`https://127.0.0.1:${port()}/${name}`);
    await page.getByRole('button', { name: 'Add the endpoint' }).click();
    await page.locator('.copy code').waitFor();
    const { id } = await launch(customer.api, { ...ONE_GPU, image: stack.image.ref });
    of(name).instanceId = id;
    await page.getByRole('link', { name: new RegExp(`/${name}$`) }).click();
    await page.getByText('Failed', { exact: true }).click();
    const row = page.getByRole('row').filter({ hasText: 'instance.running' });
    await row.getByText('503, 1 of 1 failed').waitFor();
  });

  test('retries the dead delivery by hand when the server is back', async () => {
    const { page } = of(name);
    await page
      .getByRole('row')
      .filter({ hasText: 'instance.running' })
      .getByRole('button', { name: 'instance.running' })
      .click();
    await page.getByText('No further attempt is planned').waitFor();
    answer = 204;
    await page.getByRole('button', { name: 'Retry now' }).click();
    await page.getByText('Attempt 2: 204').waitFor({ timeout: 30_000 });
  });
});

test('the host dies, and each rental on it becomes unreachable', async () => {
  // No outage is confirmed while agents may still be reconnecting.
  const quietMs = STARTED_MS + QUIET_AFTER_START_MS + 20_000 - performance.now();
  await new Promise((resolve) => setTimeout(resolve, quietMs));
  await stack.host.daemon.stop('SIGKILL');
  for (const pid of stack.host.holders()) process.kill(pid, 'SIGKILL');
  for (const { page, instanceId } of customers.values()) {
    await page.goto(consoleUrl(`instances/${instanceId}`));
    await page.locator('.badge', { hasText: 'unreachable' }).first().waitFor({ timeout: OUTAGE_MS_MAX });
  }
});

/** Leads the operator from the overview to the page of the outage. */
async function showOutage(operator: Page): Promise<void> {
  await operator.goto(consoleUrl('operate/overview'));
  await operator.getByRole('link', { name: 'Outages' }).click();
  await operator.getByRole('region', { name: 'Outages, table' }).getByRole('link').first().click();
}

const millionthsIn = (text: string): number => Math.round(Number(/\$([\d.]+)/.exec(text)?.[1]) * 1e6);

describe.each(BROWSERS)('an operator in $name, while the host is dead,', (kind) => {
  test('sees the outage and the rental on the host', async () => {
    const visitor = of(kind.name);
    const operator = await visits.visitAsOperator(visitor.browser, kind);
    visitor.operator = operator;
    await operator.goto(consoleUrl('operate/overview'));
    await operator.getByText(`${BROWSERS.length} rentals, not charged`).waitFor();
    await showOutage(operator);
    await operator.getByText('It lasts.').waitFor();
    await operator.getByRole('row').filter({ hasText: visitor.instanceId }).waitFor();
  });
});

test('the host comes back, and each rental on it goes on', async () => {
  await stack.host.daemon.start();
  for (const { page } of customers.values())
    await page.locator('.badge.ok', { hasText: 'running' }).first().waitFor({ timeout: OUTAGE_MS_MAX });
});

describe.each(BROWSERS)('an operator in $name, when the host is back,', ({ name }) => {
  test('releases the credit of the customer, whose bill shows it', async () => {
    const { operator, page, instanceId } = of(name);
    if (operator === undefined) throw new Error(`no operator in ${name} has signed in`);
    await showOutage(operator);
    const rental = operator.getByRole('row').filter({ hasText: instanceId });
    const held = await rental.locator('.badge', { hasText: 'held' }).innerText();
    await rental.getByRole('button', { name: /^Release/ }).click();
    const dialog = operator.getByRole('dialog');
    await dialog.getByLabel('Note').fill('the host was dead');
    await dialog.getByRole('button', { name: 'Release' }).click();
    await rental.getByText(held.replace('held', 'released')).waitFor();
    await page.reload();
    const bill = page.getByRole('region', { name: 'Bill', exact: true });
    const credit = await bill.getByText(/^Outage, \$[\d.]+ not charged/).innerText();
    // The list of the operator rounds to cents. Half a cent is 5,000 millionths of a dollar.
    expect(Math.abs(millionthsIn(credit) - millionthsIn(held))).toBeLessThanOrEqual(5_000);
  });
});

describe.each(BROWSERS)('the supplier in $name', (kind) => {
  test('reads the outage of its machine, and what the machine has earned', async () => {
    const email = `sam@${kind.name.toLowerCase()}.example.com`;
    const person = ['--email', email, '--name', 'Sam', '--org', stack.supplier.orgId, '--role', 'owner'];
    const page = await visits.visit(of(kind.name).browser, person);
    await page.getByRole('link', { name: 'Machines' }).click();
    await page
      .getByRole('region', { name: /^Machines, table/ })
      .getByRole('link')
      .first()
      .click();
    const outages = page.getByRole('region', { name: 'Outages, table' });
    await outages.getByText('failed SSH probes since').first().waitFor();
    const earned = page.getByRole('region', { name: 'Earnings, table' }).getByRole('row').last();
    await expect.poll(() => earned.textContent()).toMatch(/over its whole life\$\d+\.\d{4}$/);
  });
});
