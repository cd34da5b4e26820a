// What the console shows when something fails on the way between the page and the service, in Chromium: a message, and a way on.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { insertMember } from '../../control-plane/base/users/store.ts';
import type { ApiAccount } from '../contract/api.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson, type Person } from '../kit/people.ts';

let pages: ConsolePages;
let owner: ApiAccount;
beforeAll(async () => {
  pages = await openConsolePages();
  owner = await pages.api.account();
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

const addOwner = (): Promise<Person> => addPerson(pages.api.world, { orgId: owner.orgId, role: 'owner' });

async function openMembers(person: Person): Promise<Page> {
  const page = await pages.signedIn(person);
  await page.goto(`${pages.origin}/console/members`);
  await page.getByRole('heading', { name: 'Members' }).waitFor();
  return page;
}

/** The message that the page shows. */
async function alertOf(page: Page): Promise<string> {
  return page.getByRole('alert').innerText();
}

test('a screen whose code is gone says so, and a click loads the page again', async () => {
  const page = await openMembers(await addOwner());
  await page.route('**/console/assets/**', (route) => route.fulfill({ status: 404, body: '{}' }));
  await page.getByRole('link', { name: 'API keys' }).click();
  expect(await alertOf(page)).toContain('load the page again');
  expect(await axeFindings(page)).toEqual([]);
  await page.unrouteAll();
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('button', { name: 'Make the key' }).waitFor();
});

test('a QR code whose library is gone says so, and gives its text', async () => {
  const page = await pages.signedIn(await addOwner());
  await page.goto(`${pages.origin}/console/security`);
  await page.getByRole('button', { name: 'Add a second factor' }).click();
  const begin = page.getByRole('button', { name: 'Set up an app' });
  await begin.waitFor();
  await page.route('**/console/assets/**', (route) => route.fulfill({ status: 404, body: '{}' }));
  await begin.click();
  const note = await page.getByText('The QR code cannot be drawn').innerText();
  const secret = (await page.locator('.copy code').innerText()).trim();
  expect(note).toContain(`secret=${secret}`);
  expect(await axeFindings(page)).toEqual([]);
  await page.unrouteAll();
});

test('a single sign-on whose last page is loaded again leads back to the sign-in', async () => {
  const page = await (await pages.open()).newPage();
  await page.goto(`${pages.origin}/oidc?code=1`);
  await page.getByRole('heading', { name: 'You are not signed in' }).waitFor();
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole('link', { name: 'Begin again' }).click();
  await page.getByRole('heading', { name: 'Sign in', exact: true }).waitFor();
});

test('a sign-out that does not reach the service says so, and the next one signs out', async () => {
  const page = await openMembers(await addOwner());
  await page.getByRole('button', { name: '▾' }).click();
  await page.route('**/v1/auth/sign-out', (route) => route.abort());
  await page.getByRole('button', { name: 'Sign out' }).click();
  expect(await alertOf(page)).toContain('The service does not answer');
  await page.unrouteAll();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
});

test('a refused switch of the organisation shows what the service says', async () => {
  const { world } = pages.api;
  const other = await pages.api.account();
  const person = await addOwner();
  const member = { org_id: other.orgId, user_id: person.userId, role: 'member', created_ms: 1 } as const;
  await world.db.tx('test.member', async (tx) => void (await insertMember(tx, member)));
  const page = await openMembers(person);
  await pages.api.call('DELETE', `/v1/members/${person.userId}`, { key: other.key });
  await page.getByRole('button', { name: '▾' }).click();
  await page.getByRole('button', { name: /^Switch to/ }).click();
  expect(await alertOf(page)).toContain('not_found');
});

test('a list and a form whose answers are the page of a foreign network say so, and the list can be read again', async () => {
  const page = await openMembers(await addOwner());
  const foreign = { status: 200, contentType: 'text/html', body: '<html>Log in to the hotel network</html>' };
  await page.route('**/v1/api-keys**', (route) => route.fulfill(foreign));
  await page.getByRole('link', { name: 'API keys' }).click();
  expect(await alertOf(page)).toContain('The service does not answer');
  await page.getByRole('textbox', { name: 'Name' }).fill('ci');
  await page.getByLabel('instances: read').check();
  await page.getByRole('button', { name: 'Make the key' }).click();
  await expect.poll(() => page.getByRole('alert').count()).toBe(2);
  await page.unrouteAll();
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('rowheader').first().waitFor();
});

test('a name that is typed while the session ends stands in its field again after the sign-in', async () => {
  const { world } = pages.api;
  const owner = await pages.api.account();
  const person = await addPerson(world, { orgId: owner.orgId, role: 'owner' });
  await world.machine();
  const id = await world.launch(owner, { name: 'train' });
  const page = await pages.signedIn(person);
  await page.goto(`${pages.origin}/console/instances/${id}?operation=op_1`);
  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('textbox', { name: 'Name', exact: true }).fill('train of May');
  const { json } = await pages.api.call('GET', '/v1/auth/session', { as: person });
  await page.route('**/v1/**', (route) =>
    route.fulfill({ status: 401, json: { code: 'unauthorized', detail: 'It ended.' } }),
  );
  await page.getByRole('dialog').getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('heading', { name: 'Sign in', exact: true }).waitFor();
  await page.unrouteAll();
  await page.route('**/v1/auth/sign-in', (route) => route.fulfill({ json }));
  await page.getByLabel('E-mail').fill(person.email);
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('heading', { name: 'train of May' }).waitFor();
  expect(page.url()).toBe(`${pages.origin}/console/instances/${id}?operation=op_1`);
  await page.unrouteAll();
});
