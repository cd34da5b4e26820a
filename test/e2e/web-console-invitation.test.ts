// An invitation in Chromium: a person sees the organisation, the role and who invites them before they join.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ApiAccount } from '../contract/api.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson, type Person } from '../kit/people.ts';

let pages: ConsolePages;
let account: ApiAccount;
let owner: Person;
/** A browser would send the requests from a page of the console. */
let headers: { origin: string };
beforeAll(async () => {
  pages = await openConsolePages();
  headers = { origin: pages.origin };
  account = await pages.api.account();
  owner = await addPerson(pages.api.world, { orgId: account.orgId, role: 'owner' }, { isStrong: true });
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

async function invite(body: object): Promise<string> {
  const { json } = await pages.api.call('POST', '/v1/invitations', { as: owner, body, headers });
  return String(json['url']);
}

async function orgName(): Promise<string> {
  const { json } = await pages.api.call('GET', '/v1/auth/session', { as: owner, headers });
  return (json['org'] as { name: string }).name;
}

test('a person who has signed in sees what they join, and joins it', async () => {
  const page = await pages.signedIn(await addPerson(pages.api.world, undefined));
  await page.goto(await invite({ role: 'billing' }));
  await page.getByRole('heading', { name: `Join ${await orgName()}` }).waitFor();
  const text = await page.getByText(owner.email).innerText();
  expect(text).toContain(`invites you to the organisation ${await orgName()} as billing`);
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole('button', { name: 'Join' }).click();
  await page.waitForURL(/\/console\//);
});

test('a new person sees it too, with the only address that can accept in its field', async () => {
  const page = await (await pages.open()).newPage();
  await page.goto(await invite({ role: 'read-only', email: 'ben@example.com' }));
  await page.getByText(`to the organisation ${await orgName()} as read-only`).waitFor();
  expect(await page.getByLabel('E-mail').inputValue()).toBe('ben@example.com');
  expect(await page.getByLabel('E-mail').isEditable()).toBe(false);
  expect(await axeFindings(page)).toEqual([]);
});

test('on a small phone, a long address of who invites stays on the page', async () => {
  const page = await (await pages.open()).newPage();
  await page.setViewportSize({ width: 320, height: 700 });
  await page.goto(await invite({ role: 'member' }));
  await page.getByText(owner.email).waitFor();
  expect(await page.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
});

test('a link that was revoked says so before anything is typed', async () => {
  const page = await (await pages.open()).newPage();
  const link = await invite({ role: 'member' });
  const { json } = await pages.api.call('GET', '/v1/invitations', { as: owner, headers });
  for (const { id } of json.data ?? [])
    await pages.api.call('DELETE', `/v1/invitations/${String(id)}`, { as: owner, headers });
  await page.goto(link);
  expect(await page.getByRole('alert').innerText()).toContain('was used or revoked');
  expect(await page.getByLabel('Password').count()).toBe(0);
});
