// What operators make in the browser: an organisation, people, an API key of an organisation, a payment in another way, a reservation and its longer
// term. The lines of each dialog are taken by the service, also while its fields are empty.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { earnCents } from '../kit/payees.ts';
import { addPerson } from '../kit/people.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let pages: ConsolePages;
let page: Page;
let orgId: string;

beforeAll(async () => {
  pages = await openConsolePages();
  const { world } = pages.api;
  await world.clock.advance(Date.now() - world.clock.now());
  ({ orgId } = await world.customer(500));
  page = await pages.signedIn(await addPerson(world, undefined, { isOperator: true, isStrong: true }));
});
afterAll(async () => pages.close());

/** Opens the dialog of a button. Before and after its fields are filled, its lines are taken. */
async function fill(path: string, opener: string, fields: Record<string, string>): Promise<void> {
  await page.goto(`${pages.origin}/console/operate/${path}`);
  await page.getByRole('button', { name: opener, exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  for (const line of await linesOf()) await pages.judge(line);
  for (const [label, text] of Object.entries(fields)) await dialog.getByLabel(new RegExp(`^${label}`)).fill(text);
  for (const line of await linesOf()) await pages.judge(line);
}

const linesOf = (): Promise<string[]> => page.getByRole('dialog').locator('.cmd code').allTextContents();
const send = (words: string) => page.getByRole('dialog').getByRole('button', { name: words, exact: true }).click();

/** On a large screen and a phone, in both themes. */
async function expectLooks(name: string): Promise<void> {
  for (const width of [1_440, 390]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      const shots = process.env['CONSOLE_SHOTS'];
      if (shots !== undefined) await page.screenshot({ path: `${shots}/${name}-${width}-${colorScheme}.png` });
      expect(await axeFindings(page)).toEqual([]);
      const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
      expect(overflow, 'the page scrolls sideways').toBeLessThanOrEqual(0);
    }
  }
  await page.setViewportSize({ width: 1_440, height: 900 });
  expect(pages.broken).toEqual([]);
}

test('an organisation is made, and gets a member with a link that is shown once', async () => {
  await fill('orgs', 'Create an organisation', { Name: 'Acme Ltd' });
  await expectLooks('make-org');
  await send('Create an organisation');
  await page.getByRole('heading', { name: 'Acme Ltd', exact: true }).waitFor();
  const made = new URL(page.url()).pathname.split('/').at(-1) ?? '';
  await fill(`orgs/${made}`, 'Add a new person', { Name: 'Bea', 'E-mail': 'bea@example.com' });
  await page.getByRole('dialog').getByLabel('Role').selectOption('billing');
  for (const line of await linesOf()) await pages.judge(line);
  await send('Add a new person');
  await page.getByRole('rowheader', { name: 'bea@example.com' }).waitFor();
  const link = (await page.locator('.copy code').textContent()) ?? '';
  const theirs = await (await pages.open()).newPage();
  await theirs.goto(link);
  await theirs.getByRole('heading').first().waitFor();
  expect(await theirs.getByLabel(/password/i).count()).toBeGreaterThan(0);
  await theirs.context().close();
  await page.reload();
  await page.getByRole('rowheader', { name: 'bea@example.com' }).waitFor();
  expect(await page.getByText(link).count()).toBe(0);
});

test('somebody who has an account becomes a member of another organisation', async () => {
  await fill(`orgs/${orgId}`, 'Add a member', { Person: 'bea@example.com' });
  await page.getByRole('dialog').getByLabel('Role').selectOption('read-only');
  for (const line of await linesOf()) await pages.judge(line);
  await send('Add a member');
  await page.getByRole('row', { name: /bea@example.com read-only/ }).waitFor();
});

test('a person is added who operates the installation', async () => {
  await fill('people', 'Add a person', { Name: 'Cem', 'E-mail': 'cem@example.com' });
  await page.getByRole('dialog').getByLabel('Operator').selectOption('yes');
  expect((await linesOf())[0]).toContain('--operator');
  await expectLooks('make-person');
  await send('Add a person');
  const row = page.getByRole('row', { name: /cem@example.com/ });
  await row.waitFor();
  expect(await row.getByRole('cell').nth(1).textContent()).toBe('yes');
});

test('an address that somebody has is refused in the dialog', async () => {
  await fill('people', 'Add a person', { Name: 'Cem', 'E-mail': 'cem@example.com' });
  await send('Add a person');
  await page.getByRole('dialog').getByRole('alert').getByText('cem@example.com already').waitFor();
});

test('a key of an organisation is made, shown once, and works until its day', async () => {
  await fill(`orgs/${orgId}`, 'Make a key', { Name: 'worker 1', Scopes: 'billing: read, instances: read' });
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Days until it ends').fill('half');
  await dialog.getByText('Days until it ends must be a whole number of days').waitFor();
  expect(await dialog.getByRole('button', { name: 'Make a key' }).isDisabled()).toBe(true);
  await dialog.getByLabel('Days until it ends').fill('30');
  for (const line of await linesOf()) await pages.judge(line);
  await expectLooks('make-key');
  await send('Make a key');
  const key = (await page.locator('.copy code').textContent()) ?? '';
  await page.getByRole('cell', { name: 'billing: read, instances: read' }).waitFor();
  expect((await pages.api.call('GET', '/v1/balance', { key })).status).toBe(200);
  await page.reload();
  await page.getByRole('rowheader', { name: 'worker 1' }).waitFor();
  expect(await page.getByText(key).count()).toBe(0);
  const { clock } = pages.api.world;
  await clock.advance(30 * DAY_MS - HOUR_MS);
  expect((await pages.api.call('GET', '/v1/balance', { key })).status).toBe(200);
  await clock.advance(2 * HOUR_MS);
  expect((await pages.api.call('GET', '/v1/balance', { key })).status).toBe(401);
});

test('a scope that there is not is refused with its rule, in the dialog', async () => {
  const person = await addPerson(pages.api.world, undefined, { isOperator: true, isStrong: true });
  page = await pages.signedIn(person);
  await fill(`orgs/${orgId}`, 'Make a key', { Name: 'worker 2', Scopes: 'everything' });
  await send('Make a key');
  await page.getByRole('dialog').getByRole('alert').waitFor();
  expect(await page.getByRole('rowheader', { name: 'worker 2' }).count()).toBe(0);
});

test('the payment of a customer is added to the balance once, however often its reference is sent', async () => {
  const { accounts } = pages.api.world.rooms;
  const customer = await accounts.createOrg('Pays by wire');
  const balance = page.getByRole('region', { name: 'Figures' }).getByText('of $25.50', { exact: true });
  for (const dollars of ['25.5', '25.50']) {
    await fill(`orgs/${customer.id}`, 'Add funds', { Dollars: dollars, Reference: 'wire 21' });
    expect((await linesOf())[0]).toContain(`balance add --org ${customer.id} --usd ${dollars} --reference 'wire 21'`);
    await send('Add funds');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await balance.waitFor();
  }
  await fill(`orgs/${customer.id}`, 'Add funds', { Dollars: '30', Reference: 'wire 21' });
  await expectLooks('add-funds');
  await send('Add funds');
  await page.getByRole('dialog').getByRole('alert').getByText('Another amount was added').waitFor();
});

test('a payment in another way is recorded, and the supplier is owed the rest', async () => {
  const { world } = pages.api;
  const { supplierId } = await world.machine();
  await earnCents(world, supplierId, 3_000);
  await fill('payouts', 'Record a payment', { Supplier: supplierId, Reference: 'wire 7', Dollars: '12.5' });
  expect((await linesOf())[0]).toContain(`--supplier ${supplierId} --reference 'wire 7' --usd 12.5`);
  await expectLooks('make-payment');
  await send('Record a payment');
  await page.getByText('Paid', { exact: true }).click();
  await page.getByRole('cell', { name: 'wire 7' }).waitFor();
  expect(await world.rooms.payouts.standing(world.db.read, supplierId)).toMatchObject({ unpaidCents: 1_750n });
});

test('a payment to nobody is refused in the dialog', async () => {
  await fill('payouts', 'Record a payment', { Supplier: 'nobody', Reference: 'wire 8' });
  await send('Record a payment');
  await page.getByRole('dialog').getByRole('alert').getByText('There is no supplier nobody.').waitFor();
});

test('a reservation is made, and its term is extended', async () => {
  const { world } = pages.api;
  await world.machine({ gpus: 2 });
  const [start, end, later] = [40, 70, 100].map((days) =>
    new Date(world.clock.now() + days * DAY_MS).toISOString().slice(0, 10),
  );
  const fields = { Organisation: orgId, Title: 'training', Begin: String(start), End: String(end) };
  await fill('reservations', 'Make a reservation', { ...fields, GPUs: 'H100_SXM:2' });
  const dialog = page.getByRole('dialog');
  await dialog.getByText('GPUs must be type:count@region').waitFor();
  await dialog.getByLabel('GPUs').fill('H100_SXM:1@eu-west, A100_SXM:2@us-west');
  await dialog.getByLabel('Renewal').selectOption('manual');
  for (const line of await linesOf()) await pages.judge(line);
  await expectLooks('make-reservation');
  await dialog.getByLabel('GPUs').fill('H100_SXM:2@eu-west');
  await send('Make a reservation');
  const row = page.getByRole('row').filter({ hasText: 'training' });
  await row.getByText('2 H100_SXM in eu-west').waitFor();
  await row.getByRole('button', { name: /^Extend / }).click();
  const ends = dialog.getByLabel('New end');
  expect(await ends.inputValue()).toBe(`${end}T00:00:00.000Z`);
  await ends.fill(`${later}T00:00:00Z`);
  for (const line of await linesOf()) await pages.judge(line);
  await send('Extend');
  await dialog.waitFor({ state: 'detached' });
  const [contract] = (await world.rooms.reservations.list({ count: 1 })).map((view) => view.contract);
  expect(new Date(contract?.ends_ms ?? 0).toISOString()).toBe(`${later}T00:00:00.000Z`);
  expect(pages.broken).toEqual([]);
});
