// An operator in the console: a second factor comes first, then lists of everything, and a decision that stands in the audit journal.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Session } from '../../shared/api/auth.ts';
import {
  addAuthenticator,
  axeFindings,
  type ConsolePages,
  consoleScreens,
  openConsolePages,
} from '../kit/console-pages.ts';

const OPERATE = (await consoleScreens()).filter(
  ({ path }) => path.startsWith('/console/operate/') && !path.includes(':'),
);

let pages: ConsolePages;
let page: Page;
let orgId: string;

beforeAll(async () => {
  pages = await openConsolePages();
  ({ orgId } = await pages.api.account());
  page = await (await pages.open()).newPage();
});
afterAll(async () => pages.close());

test('an operator sees nothing before a second factor is set up', async () => {
  const olga = { email: 'olga@example.com', name: 'Olga', isOperator: true, member: undefined } as const;
  const { url } = await pages.api.world.rooms.users.people.add(olga);
  await page.goto(url);
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Set the password and sign in' }).click();
  await page.getByRole('heading', { name: 'Set up a second factor' }).waitFor();
  expect(await axeFindings(page)).toEqual([]);
  // The check above ends what this sets up.
  await addAuthenticator(page);
  await page.getByLabel('Name').fill('key');
  await page.getByRole('button', { name: 'Add a passkey' }).click();
  await page.getByRole('button', { name: 'I have kept them' }).click();
  await page.getByRole('link', { name: 'Organisations' }).waitFor();
});

test.each([1_440, 390])('the menu of the account stands at the right edge at %d px', async (width) => {
  await page.setViewportSize({ width, height: 900 });
  await expect
    .poll(async () => {
      const box = await page.getByRole('button', { name: '▾' }).boundingBox();
      return width - (box?.x ?? 0) - (box?.width ?? 0);
    })
    .toBeLessThan(32);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/operator-menu-${width}.png` });
  await page.setViewportSize({ width: 1_440, height: 900 });
});

/** The page gets its session with these members. The API itself knows the person as before. */
async function withSession(patch: Partial<Session>, work: () => Promise<void>): Promise<void> {
  const sessions = `${pages.origin}/v1/auth/session`;
  await page.route(sessions, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...((await response.json()) as Session), ...patch } });
  });
  await work();
  await page.unroute(sessions);
}

test('an operator who has signed in without the second factor confirms with it, and is not asked to set up another', async () => {
  await withSession({ must_enrol: true }, async () => {
    await page.goto(`${pages.origin}/console`);
    await page.getByRole('heading', { name: 'Confirm with your second factor' }).waitFor();
    expect(await page.getByRole('button', { name: 'Set up an app' }).count()).toBe(0);
    // A lost key is replaced by a recovery code.
    await page.getByLabel('Code').waitFor();
    expect(await page.getByLabel('Password').count()).toBe(0);
  });
  await page.getByRole('button', { name: 'Confirm with a passkey' }).click();
  await page.getByRole('link', { name: 'Organisations' }).waitFor();
});

test('the start of the console leads an operator without an organisation to the first screen of operators', async () => {
  await page.goto(`${pages.origin}/console`);
  await page.waitForURL(`${pages.origin}${OPERATE[0]?.path}`);
  await page.getByRole('heading', { name: OPERATE[0]?.title ?? '' }).waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
});

test.each(OPERATE.map(({ path, title }) => [path, title]))('%s shows its list', async (path, title) => {
  await page.goto(`${pages.origin}${path}`);
  await page.getByRole('heading', { name: title }).first().waitFor();
  await expect.poll(() => page.getByText('Reading…').count()).toBe(0);
  expect(await page.getByRole('alert').count()).toBe(0);
  for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/${path.replaceAll('/', '_')}.png` });
  expect(await axeFindings(page)).toEqual([]);
});

test('an organisation is suspended with a reason, which the list and the audit journal show', async () => {
  await page.goto(`${pages.origin}/console/operate/orgs`);
  await page.getByRole('button', { name: `Suspend ${orgId}` }).click();
  const dialog = page.getByRole('dialog');
  expect(await axeFindings(page)).toEqual([]);
  await dialog.getByLabel('Reason').fill('asked by the owner');
  await dialog.getByRole('button', { name: 'Suspend' }).click();
  await page.getByRole('cell', { name: 'asked by the owner' }).waitFor();
  await page.goto(`${pages.origin}/console/operate/audit`);
  const entry = page.getByRole('row').filter({ hasText: 'adminSuspendOrg' });
  await entry.getByText('olga@example.com').waitFor();
  expect(pages.broken).toEqual([]);
});

test('organisations are searched by a part of their name, and the whole list comes back', async () => {
  const { accounts } = pages.api.world.rooms;
  await accounts.createOrg("Bolt's Labs");
  await page.goto(`${pages.origin}/console/operate/orgs`);
  const rows = page.locator('tbody tr');
  await page.getByRole('rowheader', { name: "Bolt's Labs" }).waitFor();
  const all = await rows.count();
  expect(all).toBeGreaterThan(1);
  const box = page.getByRole('searchbox', { name: 'Search' });
  await box.fill("bolt's");
  await box.press('Enter');
  await expect.poll(() => rows.count()).toBe(1);
  for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
  expect(await axeFindings(page)).toEqual([]);
  await box.fill('');
  await expect.poll(() => rows.count()).toBe(all);
});

test('a search stands in the address, so reload and Back keep it, and one without a result says so', async () => {
  await page.goto(`${pages.origin}/console/operate/orgs`);
  const box = page.getByRole('searchbox', { name: 'Search' });
  await box.fill("bolt's");
  await box.press('Enter');
  await page.waitForURL(/\?search=bolt/);
  await page.reload();
  await expect.poll(() => page.locator('tbody tr').count()).toBe(1);
  expect(await box.inputValue()).toBe("bolt's");
  await box.fill('zzz & co');
  await box.press('Enter');
  await page.getByText('“zzz & co” is in no name or id.').waitFor();
  expect(await axeFindings(page)).toEqual([]);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/search-nothing.png` });
  await page.goBack();
  await expect.poll(() => page.locator('tbody tr').count()).toBe(1);
  expect(await box.inputValue()).toBe("bolt's");
  await page.getByRole('link', { name: 'Organisations' }).click();
  await expect.poll(() => box.inputValue()).toBe('');
});

test('a search that is typed the moment its field appears is not lost', async () => {
  const quick = await page.context().newPage();
  // It is sent when each effect of the first drawing has run.
  await quick.addInitScript(`new MutationObserver((_changes, observer) => {
    const box = document.querySelector('main input[type=search]');
    if (box === null) return;
    observer.disconnect();
    box.value = "bolt's";
    box.dispatchEvent(new InputEvent('input', { bubbles: true }));
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => box.form.requestSubmit(), 200)));
  }).observe(document, { childList: true, subtree: true });`);
  await quick.goto(`${pages.origin}/console/operate/orgs`);
  await quick.waitForURL(/\?search=bolt/);
  await quick.close();
});

test('a person who leaves is blocked in the list of people, with the reason in the audit', async () => {
  const { people } = pages.api.world.rooms.users;
  const { id } = await people.add({ email: 'ivo@example.com', name: 'Ivo', isOperator: true, member: undefined });
  await page.goto(`${pages.origin}/console/operate/people`);
  for (const verb of ['Demote', 'Block']) {
    await page.getByRole('button', { name: `${verb} ${id}` }).click();
    const dialog = page.getByRole('dialog');
    expect(await axeFindings(page)).toEqual([]);
    await dialog.getByLabel('Reason').fill('has left');
    await dialog.getByRole('button', { name: verb }).click();
    await dialog.waitFor({ state: 'detached' });
  }
  await page.getByRole('button', { name: `Unblock ${id}` }).waitFor();
  await expect(people.reset(id)).rejects.toThrow('is blocked');
  expect(pages.broken).toEqual([]);
});

test('a person who operates nothing has no such screens, and the API refuses the lists', async () => {
  const other = await (await pages.open()).newPage();
  const { url } = await pages.api.world.rooms.users.people.add({
    email: 'ada@example.com',
    name: 'Ada',
    isOperator: false,
    member: { orgId, role: 'owner' },
  });
  await other.goto(url);
  await other.getByLabel('Password').fill('correct horse battery');
  await other.getByRole('button', { name: 'Set the password and sign in' }).click();
  await other.waitForURL(`${pages.origin}/console/instances`);
  await other.getByRole('heading', { name: 'Instances' }).waitFor();
  expect(await other.getByRole('link', { name: 'Organisations' }).count()).toBe(0);
  await other.goto(`${pages.origin}/console/operate/orgs`);
  await other.getByText('insufficient_scope').waitFor();
});

test('a person with neither a password nor a second factor is led to the single sign-on to confirm', async () => {
  await pages.api.world.clock.advance(11 * 60_000);
  await withSession({ has_password: false, has_totp: false, passkeys: 0 }, async () => {
    await page.goto(`${pages.origin}/console/security`);
    await page.getByRole('button', { name: 'Add a second factor' }).click();
    await page.getByRole('button', { name: 'Set up an app' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Single sign-on' }).waitFor();
    expect(await dialog.getByRole('textbox').count()).toBe(0);
    expect(await axeFindings(page)).toEqual([]);
  });
});
