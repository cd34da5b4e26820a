// Operators decide about money in the browser: what they decide is in the customer's balance, and in the books.
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import { findDeposit } from '../../control-plane/money/deposits/store.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addDeposit, drivePaid, noteRead, offlineDeposits, payDeposit } from '../kit/deposits.ts';
import { runCommand } from '../kit/operator-commands.ts';
import { earnCents, nameDestination } from '../kit/payees.ts';
import { addPerson } from '../kit/people.ts';

const MINUTE_MS = 60_000;

let pages: ConsolePages;
/** The page of the operator. */
let page: Page;
let orgId: string;

beforeAll(async () => {
  pages = await openConsolePages({ settings: { deposits: offlineDeposits() } });
  const { world } = pages.api;
  ({ orgId } = await world.customer(0));
  await world.clock.advance(Date.now() - world.clock.now());
  await noteRead(world, 'base');
  page = await pages.signedIn(await addPerson(world, undefined, { isOperator: true, isStrong: true }));
});
afterAll(async () => pages.close());

const goTo = (path: string): Promise<unknown> => page.goto(`${pages.origin}/console/operate/${path}`);

/** axe-core finds nothing on the page, nothing has broken, and the books agree. */
async function expectWell(): Promise<void> {
  expect(await axeFindings(page)).toEqual([]);
  await judgeLines();
  expect(pages.broken).toEqual([]);
  await pages.api.world.verify();
}

/** The service takes the commands and the requests that the page shows. */
async function judgeLines(): Promise<void> {
  for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
}

/** Presses a button of the dialog that `opener` opens, after its fields are filled. */
async function decide(opener: string, submit: string, fields: Record<string, string> = {}): Promise<void> {
  await page.getByRole('button', { name: opener, exact: true }).click();
  const dialog = page.getByRole('dialog');
  for (const [label, text] of Object.entries(fields)) await dialog.getByLabel(label).fill(text);
  await judgeLines();
  await dialog.getByRole('button', { name: submit, exact: true }).click();
}

/** What the customer reads. */
async function available(): Promise<string | null> {
  const customer = await pages.signedIn(await addPerson(pages.api.world, { orgId, role: 'owner' }));
  await customer.goto(`${pages.origin}/console/usage`);
  const figure = customer.locator('.stats div').filter({ hasText: 'Available' }).locator('dd');
  const text = await figure.textContent();
  await customer.context().close();
  return text;
}

/** A deposit of 25.00 that was paid, whose senders nobody can say anything about. */
async function addHeld(id: string): Promise<string> {
  const { world } = pages.api;
  await addDeposit(world, id, orgId);
  await payNow(id, world.clock.now(), 'unknown');
  return id;
}

async function payNow(id: string, ms: number, senders: 'clear' | 'unknown'): Promise<void> {
  const { world } = pages.api;
  const deposit = await findDeposit(world.db.read, id);
  if (deposit === undefined) throw new Error(`there is no deposit ${id}`);
  await payDeposit(world, deposit, { units: 25_000_000n, ms });
  await drivePaid(world.core, world.rooms, id, { verdict: senders });
}

test('a held deposit is credited with a reason, and the customer has it', async () => {
  const id = await addHeld('held-1');
  await addDeposit(pages.api.world, 'open-1', orgId);
  expect(await available()).toMatch(/^\$0\.00/);
  await goTo('deposit-queue');
  await page.getByRole('link', { name: id }).waitFor();
  // What needs no decision is shown by another choice.
  expect(await page.getByRole('link', { name: 'open-1' }).count()).toBe(0);
  await decide(`Credit ${id}`, 'Credit', { Reason: 'the customer has shown where it is from' });
  await page.getByRole('heading', { name: 'Nothing here' }).waitFor();
  expect(await available()).toMatch(/^\$25\.00/);
  await page.getByText('All', { exact: true }).click();
  await page.getByRole('link', { name: id }).click();
  await page.getByRole('heading', { name: 'Deposit of 25.00' }).waitFor();
  await page.getByRole('table', { name: 'Transfers on its chain' }).getByText('0xpayer').waitFor();
  await page.getByRole('table', { name: 'History' }).getByText('held_screening').waitFor();
  await expectWell();
});

test('a deposit that came late is credited on its page, where a second decision is refused with the reason', async () => {
  const { world } = pages.api;
  const id = await addDeposit(world, 'late-1', orgId);
  await world.db.tx('test.late', (tx) =>
    tx.run(sql`update deposits set expires_ms = ${world.clock.now() - MINUTE_MS} where id = ${id}`),
  );
  await payNow(id, world.clock.now(), 'clear');
  await goTo(`deposit-queue/${id}`);
  await page.getByText('expired_received').first().waitFor();
  await decide(`Credit ${id}`, 'Credit', { Reason: 'late by a minute' });
  await page.locator('.kv').getByText('credited', { exact: true }).waitFor();
  expect(await available()).toMatch(/^\$50\.00/);
  await decide(`Reject ${id}`, 'Reject', { Reason: 'once more' });
  await page.getByRole('alert').getByText('nothing of it waits for a decision').waitFor();
  await expectWell();
});

test('a held deposit is refused, and the customer gets nothing', async () => {
  const before = await available();
  const id = await addHeld('held-2');
  await goTo('deposit-queue');
  await decide(`Reject ${id}`, 'Reject', { Reason: 'nobody knows the sender' });
  await page.getByRole('link', { name: id }).waitFor();
  await goTo(`deposit-queue/${id}`);
  await page.getByRole('table', { name: 'Transfers on its chain' }).getByText('suspense').waitFor();
  expect(await available()).toBe(before);
  await shots(`deposit-queue/${id}`);
});

test('what is due is exported as the file of the command, and entered as sent with its transaction or as failed', async () => {
  const { world } = pages.api;
  for (const payee of [await world.machine(), await world.machine()]) {
    await nameDestination(world, payee);
    await earnCents(world, payee.supplierId, 3_000);
  }
  await world.rooms.payouts.makeDue(new AbortController().signal);
  await goTo('payouts');
  await expect.poll(() => page.getByRole('button', { name: /^Failed / }).count()).toBe(2);
  expect(await page.getByRole('button', { name: /^Sent / }).count()).toBe(0);
  await page.getByLabel('Batch').fill('monday 1');
  await page.getByRole('button', { name: 'Export', exact: true }).click();
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download the list' }).click(),
  ]);
  expect(file.suggestedFilename()).toBe('payouts-monday 1.json');
  const text = readFileSync(await file.path(), 'utf8');
  expect(text).toBe(await runCommand(world, ['admin', 'payout', 'export', '--batch', 'monday 1', '--json']));
  const [first = '', second = ''] = (JSON.parse(text) as { data: { payout_id: string }[] }).data.map(
    (row) => row.payout_id,
  );
  await page.getByRole('heading', { name: 'Nothing here' }).waitFor();
  await expectWell();
  await page.getByText('In flight', { exact: true }).click();
  await decide(`Sent ${first}`, 'Sent', { Transaction: '0x5f1c' });
  await expect.poll(() => page.getByRole('button', { name: `Sent ${first}` }).count()).toBe(0);
  await decide(`Failed ${second}`, 'Failed', { Reason: 'the address refuses transfers' });
  await page.getByRole('heading', { name: 'Nothing here' }).waitFor();
  await page.getByText('Paid', { exact: true }).click();
  await page.getByRole('cell', { name: '0x5f1c' }).waitFor();
  expect(await page.getByRole('button', { name: /^(Sent|Failed) / }).count()).toBe(0);
  await shots('payouts');
});

test('a supplier is suspended and resumed in the list that says what it is owed', async () => {
  const { supplierId } = await pages.api.world.machine();
  await goTo('suppliers');
  await decide(`Suspend ${supplierId}`, 'Suspend');
  await decide(`Resume ${supplierId}`, 'Resume');
  await page.getByRole('button', { name: `Suspend ${supplierId}` }).waitFor();
  await shots('suppliers');
});

test('a credit and a deduction are refused above their bounds and posted at them, and the reason is on the bill', async () => {
  const other = await pages.api.world.customer(0);
  await goTo('orgs');
  await page.getByRole('row').filter({ hasText: other.orgId }).getByRole('link').click();
  const correct = async (kind: string, amount: string, reference: string): Promise<void> => {
    await page.getByText(kind, { exact: true }).click();
    await page.getByLabel('Amount in dollars').fill(amount);
    await page.getByLabel('Reason').fill(`because of ${reference}`);
    await page.getByLabel('Reference').fill(reference);
    await page.getByRole('button', { name: 'Post the correction' }).click();
  };
  await correct('Credit', '1000000000.01', 'ticket 1');
  await page.getByText('Amount in dollars must be at most 1000000000.00').waitFor();
  await correct('Credit', '1000000000.00', 'ticket 1');
  await page.getByRole('status').getByText('Posted $1,000,000,000.00').waitFor();
  await judgeLines();
  await correct('Adjust down', '1000000000.00000001', 'ticket 2');
  await page.getByText('Amount in dollars must be at most 1000000000.00').waitFor();
  await correct('Adjust down', '999999999.99', 'ticket 2');
  await page.getByRole('status').getByText('Posted −$999,999,999.99').waitFor();
  await judgeLines();
  await correct('Adjust down', '0.02', 'ticket 3');
  await page.getByRole('alert').getByText('Only $0.01 is available').waitFor();
  await correct('Adjust down', '0.01', 'ticket 3');
  await page.getByRole('status').getByText('Posted −$0.01').waitFor();
  await correct('Adjust down', '0.01', 'ticket 4');
  await page.getByRole('alert').getByText('Only $0.00 is available').waitFor();
  await page.reload();
  await page.getByRole('cell', { name: 'because of ticket 1' }).waitFor();
  expect(await page.getByRole('cell', { name: 'because of ticket 4' }).count()).toBe(0);
  await expectWell();
});

test('an organisation is suspended, its key revoked, and its warnings changed on its page, which lists its members', async () => {
  const { world } = pages.api;
  const other = await world.customer(500);
  const { email } = await addPerson(world, { orgId: other.orgId, role: 'billing' });
  await goTo(`orgs/${other.orgId}`);
  await page.getByRole('table', { name: 'Members' }).getByText(email).waitFor();
  await page.getByRole('button', { name: /^Revoke / }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
  await expect.poll(() => page.getByRole('button', { name: /^Revoke / }).count()).toBe(0);
  expect((await pages.api.call('GET', '/v1/balance', { key: other.key })).status).toBe(401);
  await page.getByLabel('Hours left').fill('48, 0');
  await page.getByRole('button', { name: 'Change the warnings' }).click();
  await page.getByText('Hours left must be at least 1').waitFor();
  await page.getByLabel('Hours left').fill('48, 2');
  await page.getByRole('button', { name: 'Change the warnings' }).click();
  await page.getByText('below 48, 2 hours').waitFor();
  await decide(`Suspend ${other.orgId}`, 'Suspend', { Reason: 'unpaid invoice 9' });
  await page.getByText('UTC: unpaid invoice 9').waitFor();
  await shots(`orgs/${other.orgId}`);
  await decide(`Resume ${other.orgId}`, 'Resume');
  await page.getByRole('button', { name: `Suspend ${other.orgId}` }).waitFor();
});

test('transfers are searched and downloaded, and the books are proven now', async () => {
  await pages.api.world.clock.advance(2 * MINUTE_MS);
  await goTo('deposit-queue/held-1');
  await page.getByRole('link', { name: 'Its postings' }).click();
  const table = page.getByRole('table', { name: 'Transfers found' });
  await table.getByText('deposit.credit').first().waitFor();
  expect(await table.getByText('payout').count()).toBe(0);
  await expectWell();
  const [file] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download CSV' }).click(),
  ]);
  expect(readFileSync(await file.path(), 'utf8')).toMatch(/^transfer_id,[^]*,held-1,/);
  await page.getByLabel('Kind').fill('deposit.release');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('heading', { name: 'No such transfer' }).waitFor();
  await page.getByLabel('Instance, receipt, job').fill('');
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('alert').getByText('kind must be given with org_id or subject_id').waitFor();
  await page.getByRole('button', { name: 'Prove everything now' }).click();
  await page.getByRole('status').getByText('The books agree').waitFor();
  await shots('ledger');
});

/** With CONSOLE_SHOTS, pictures of a screen on a wide page and on a phone, in both colours. */
async function shots(path: string): Promise<void> {
  const folder = process.env['CONSOLE_SHOTS'];
  await goTo(path);
  for (const width of [1_440, 390]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      await expect.poll(() => page.getByText('Reading…').count()).toBe(0);
      const name = `${path.replaceAll('/', '_')}-${width}-${colorScheme}.png`;
      if (folder !== undefined) await page.screenshot({ path: `${folder}/${name}`, fullPage: true });
      const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
      expect(overflow, 'the page scrolls sideways').toBeLessThanOrEqual(0);
      await expectWell();
    }
  }
  await page.setViewportSize({ width: 1_440, height: 900 });
}
