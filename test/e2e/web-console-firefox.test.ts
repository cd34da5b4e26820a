// The story of a supplier and that of an operator in Firefox: a machine is registered, approved and listed; its host dies; the operator suspends it
// and decides about the credit; the supplier reads what it earned and what it did not earn.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/outages/verdict.ts';
import { type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { inventoryOf } from '../kit/machines.ts';
import { addPerson } from '../kit/people.ts';
import { openFirefox } from '../kit/web-clients.ts';

const HOUR_MS = 3_600_000;
const NO_CREDITS = { orgCreditsUcents: 0n, supplierCreditsUcents: 0n, supplierPaymentsUcents: 0n };
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let pages: ConsolePages;
let supplier: Page;
let operator: Page;
let machineId: string;
let rentalId: string;

beforeAll(async () => {
  pages = await openConsolePages({ settings: { lossBounds: NO_CREDITS } }, openFirefox);
  const { world } = pages.api;
  const { orgId } = await pages.api.account();
  supplier = await pages.signedIn(await addPerson(world, { orgId, role: 'owner' }));
  operator = await newOperator();
});
afterAll(async () => pages.close());

/** One who has just signed in, so that nothing needs a confirmation. */
async function newOperator(): Promise<Page> {
  return pages.signedIn(await addPerson(pages.api.world, undefined, { isOperator: true, isStrong: true }));
}

test('a supplier registers a machine, and its page says what is missing', async () => {
  await supplier.goto(`${pages.origin}/console/machines`);
  await supplier.getByRole('button', { name: 'Become a supplier' }).click();
  await supplier.getByRole('button', { name: 'Add a machine' }).click();
  await supplier.getByLabel('Region').fill('eu-west');
  await supplier.getByLabel('Price of one GPU').fill('100');
  await supplier.getByRole('button', { name: 'Register the machine' }).click();
  const line = await supplier.locator('.copy code').innerText();
  const token = / --token (\S+)$/.exec(line)?.[1] ?? '';
  await supplier.getByRole('link', { name: 'Watch its checks' }).click();
  await supplier.getByRole('listitem').filter({ hasText: 'enrolment' }).filter({ hasText: 'waiting' }).waitFor();
  machineId = new URL(supplier.url()).pathname.split('/').at(-1) ?? '';
  const { supply } = pages.api.world.rooms;
  await supply.enroll({ token, public_key: 'k'.repeat(43), inventory: inventoryOf(1, () => 'GPU-firefox') });
  await supply.setOnline(machineId, true);
  await supplier.reload();
  await supplier
    .getByRole('listitem')
    .filter({ hasText: /^approval/ })
    .filter({ hasText: 'waiting' })
    .waitFor();
});

test('the operator approves it, and the supplier sees it listed', async () => {
  await operator.goto(`${pages.origin}/console/operate/fleet`);
  await operator.getByRole('button', { name: /^Approve/ }).click();
  await operator.getByRole('dialog').getByRole('button', { name: 'Approve' }).click();
  await operator.getByRole('dialog').waitFor({ state: 'detached' });
  await supplier.reload();
  await supplier.locator('.stats .badge.ok', { hasText: 'listed' }).waitFor();
});

test('its host dies: the operator sees the outage, and suspends the machine', async () => {
  const { world } = pages.api;
  rentalId = await world.run(await world.customer(1_000_000));
  await pages.probe(QUIET_AFTER_START_MS);
  await world.clock.advance(HOUR_MS);
  await pages.probe(10_000);
  world.probeAnswers.set(rentalId, DEAD);
  await pages.probe(60_000);
  operator = await newOperator();
  await operator.goto(`${pages.origin}/console/operate/overview`);
  await operator.getByText('1 rental, not charged').waitFor();
  await operator.getByRole('link', { name: 'Outages' }).click();
  await operator.getByRole('row').filter({ hasText: machineId }).getByRole('link').first().click();
  await operator.getByText('It lasts.').waitFor();
  await operator.getByRole('link', { name: machineId.slice(0, 8), exact: true }).click();
  await operator.getByRole('button', { name: `Suspend ${machineId}` }).click();
  await operator.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click();
  await operator.getByText('Nothing of it is on offer: The operator has suspended it.').waitFor();
});

test('it comes back: the operator releases the credit, and the supplier reads both its earnings and the outage', async () => {
  pages.api.world.probeAnswers.delete(rentalId);
  await pages.probe(12_000);
  await operator.getByRole('link', { name: 'Outages' }).click();
  await operator.getByRole('row').filter({ hasText: machineId }).getByRole('link').first().click();
  await operator.getByRole('button', { name: /^Release/ }).click();
  await operator.getByRole('dialog').getByLabel('Note').fill('the host was dead');
  await operator.getByRole('dialog').getByRole('button', { name: 'Release' }).click();
  await operator.getByText('It is over.').waitFor();
  await operator.getByRole('button', { name: /^Release/ }).waitFor({ state: 'detached' });
  await supplier.reload();
  await supplier.locator('.stats .badge', { hasText: 'suspended' }).waitFor();
  const outages = supplier.getByRole('region', { name: 'Outages, table' });
  await outages.getByText('failed SSH probes since').waitFor();
  const earned = supplier.getByRole('region', { name: 'Earnings, table' }).getByRole('row').last();
  expect(await earned.textContent()).toMatch(/over its whole life\$\d{2}\.\d{4}$/);
  expect(pages.broken).toEqual([]);
});
