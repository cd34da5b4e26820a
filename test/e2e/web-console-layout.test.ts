// The frame of the console in Chromium: long names, the focus of the keyboard after dialogs and buttons, the notice of a suspension, and tables on a
// phone.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import type { ApiAccount } from '../contract/api.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';

const LONGEST = 'W'.repeat(255);

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

const write = (statement: ReturnType<typeof sql>): Promise<unknown> =>
  pages.api.world.db.tx('test.write', (tx) => tx.run(statement));

/** The page of an owner who has just signed in; `isConfirmed: false`: so long ago that the service asks for a confirmation. */
async function openAt(path: string, { isConfirmed = true } = {}): Promise<Page> {
  const person = await addPerson(pages.api.world, { orgId: owner.orgId, role: 'owner' });
  if (!isConfirmed) await write(sql`update sessions set confirmed_ms = 0 where id = ${person.sessionId}`);
  const page = await pages.signedIn(person);
  await page.goto(`${pages.origin}/console/${path}`);
  return page;
}

async function makeKey(name: string): Promise<void> {
  await pages.api.call('POST', '/v1/api-keys', { key: owner.key, body: { name, scopes: ['instances: read'] } });
}

/** The name of the element that has the focus. */
const focused = (page: Page): Promise<string> =>
  page.evaluate(`document.activeElement.ariaLabel ?? document.activeElement.textContent`);

test('long names of an organisation, a member and a key leave the page and its buttons where they are', async () => {
  const other = await addPerson(pages.api.world, { orgId: owner.orgId, role: 'read-only' });
  await write(sql`update orgs set name = ${LONGEST} where id = ${owner.orgId}`);
  await write(sql`update users set name = ${LONGEST} where id = ${other.userId}`);
  await makeKey(LONGEST);
  for (const [path, button] of [['members', 'Remove'] as const, ['api-keys', 'Revoke'] as const]) {
    const page = await openAt(path);
    await page.setViewportSize({ width: 1024, height: 800 });
    const last = page.getByRole('button', { name: `${button} ${LONGEST}` });
    await expect.poll(async () => (await last.boundingBox())?.x).toBeLessThan(1_024);
    expect(await page.evaluate(`document.documentElement.scrollWidth`)).toBe(1_024);
    expect(await page.getByTitle(LONGEST).innerText()).toBe(LONGEST);
    await page.context().close();
  }
});

test('a cancelled dialog gives the focus back to the button that has asked for it', async () => {
  await makeKey('ours');
  const page = await openAt('api-keys', { isConfirmed: false });
  await page.getByRole('button', { name: 'Revoke ours' }).press('Enter');
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).press('Enter');
  await expect.poll(() => focused(page)).toBe('Revoke ours');
});

test('a button that is gone after its work leaves the focus on its list', async () => {
  await makeKey('second');
  const page = await openAt('api-keys');
  await page.getByRole('button', { name: 'Revoke second' }).press('Enter');
  await expect.poll(() => focused(page)).toBe('API keys, table');
});

test('a dialog that has ended gives the focus back, and to the next screen if it leads there', async () => {
  const body = { url: 'https://example.com/hook', event_types: ['instance.running'] };
  const { json } = await pages.api.call('POST', '/v1/webhook-endpoints', { key: owner.key, body });
  const page = await openAt(`webhooks/${(json as { id: string }).id}`);
  const ask = (): Promise<void> => page.getByRole('button', { name: 'Delete', exact: true }).press('Enter');
  const answer = (words: string): Promise<void> =>
    page.getByRole('dialog').getByRole('button', { name: words }).press('Enter');
  await ask();
  await answer('Cancel');
  await expect.poll(() => focused(page)).toBe('Delete');
  await ask();
  await answer('Delete the endpoint');
  await expect.poll(() => focused(page)).toMatch(/^Webhooks/);
});

test('a suspended organisation reads on each screen since when and why, until it is resumed', async () => {
  const { rooms, clock } = pages.api.world;
  // The page asks for the events since its own time.
  await clock.advance(Date.now() - clock.now());
  const page = await openAt('instances');
  const note = page.getByText(/suspended this organisation since .* UTC: the card was refused\./);
  const countsNotes = async (): Promise<number> => {
    await rooms.live.tick();
    return note.count();
  };
  await page.getByRole('heading', { level: 1 }).waitFor();
  await rooms.accounts.suspendOrg(owner.orgId, 'the card was refused');
  await expect.poll(countsNotes, { timeout: 15_000 }).toBe(1);
  expect(await axeFindings(page)).toEqual([]);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/suspended.png` });
  await page.goto(`${pages.origin}/console/usage`);
  await note.waitFor();
  await rooms.accounts.resumeOrg(owner.orgId);
  await expect.poll(countsNotes, { timeout: 15_000 }).toBe(0);
});

test('on a phone, the button of a table shows its other columns, and the page does not scroll sideways', async () => {
  await makeKey('on a phone');
  const page = await openAt('api-keys');
  await page.setViewportSize({ width: 390, height: 844 });
  const scopes = page.getByRole('columnheader', { name: 'Scopes' });
  await page.getByRole('rowheader', { name: 'on a phone' }).waitFor();
  expect(await scopes.isVisible()).toBe(false);
  await page.getByRole('button', { name: 'All columns' }).click();
  expect(await scopes.isVisible()).toBe(true);
  expect(await axeFindings(page)).toEqual([]);
  expect(await page.evaluate(`document.documentElement.scrollWidth`)).toBe(390);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/all-columns.png` });
  await page.setViewportSize({ width: 1_024, height: 800 });
  expect(await page.getByRole('button', { name: 'All columns' }).isVisible()).toBe(false);
});
