// What a person does in the console for the account, in Chromium: keys for programs, SSH keys, registry logins, the second factor, the password and
// the sessions.
import type { Locator, Page } from 'playwright-core';
import { generateSync } from 'otplib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ApiAccount } from '../contract/api.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';

const DAY_MS = 86_400_000;
const PUBLIC_KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS';
const [PASSWORD, NEW_PASSWORD] = ['correct horse battery', 'staple battery horse'];

let pages: ConsolePages;
let owner: ApiAccount;
let page: Page;
beforeAll(async () => {
  pages = await openConsolePages();
  owner = await pages.api.account();
  page = await pages.signedIn(await addPerson(pages.api.world, { orgId: owner.orgId, role: 'owner' }));
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

const open = (path: string): Promise<unknown> => page.goto(`${pages.origin}/console/${path}`);
const click = (name: string, on = page): Promise<void> => on.getByRole('button', { name, exact: true }).click();
/** A field by its label without the hint below it. */
const field = (label: string, on = page): Locator =>
  on
    .locator('label.field')
    .filter({ has: on.locator(`span:text-is("${label}")`) })
    .locator('input, select');
const fill = (label: string, text: string, on = page): Promise<void> => field(label, on).fill(text);
const statusOf = async (key: string): Promise<number> => (await pages.api.call('GET', '/v1/instances', { key })).status;

test('makes a key with an end and with these scopes alone, which is shown once, works, and is revoked', async () => {
  await open('api-keys');
  await fill('Name', 'ci');
  await field('It ends').selectOption('in 30 days');
  await page.getByLabel('instances: read').check();
  await pages.judge(await page.locator('.cmd code').first().innerText());
  await click('Make the key');
  const key = (await page.locator('.copy code').innerText()).trim();
  expect(await statusOf(key)).toBe(200);
  expect((await pages.api.call('GET', '/v1/ssh-keys', { key })).status).toBe(403);
  const [made] = (await pages.api.call('GET', '/v1/api-keys', { key: owner.key })).json.data as Record<
    string,
    string
  >[];
  expect(made).toMatchObject({ name: 'ci', scopes: ['instances: read'] });
  // The page follows the header `Date` of the answers, which is the time of this process.
  const leftMs = Date.parse(made?.['expires_at'] ?? '') - Date.now();
  expect(Math.abs(leftMs - 30 * DAY_MS)).toBeLessThan(60_000);
  expect(await axeFindings(page)).toEqual([]);
  expect(await field('Name').inputValue()).toBe('');
  await page.reload();
  await page.getByRole('cell', { name: 'ci', exact: false }).first().waitFor();
  expect(await page.content()).not.toContain(key);
  await click('Revoke ci');
  await page.getByText('revoked').waitFor();
  expect(await statusOf(key)).toBe(401);
});

test('adds an SSH key, whose comment becomes its name, and deletes it; a private key is refused at its field', async () => {
  await open('ssh-keys');
  await fill('Public key', '-----BEGIN OPENSSH PRIVATE KEY-----');
  await fill('Name', 'x');
  await click('Add the key');
  await page.locator('small.err').waitFor();
  await fill('Name', '');
  await fill('Public key', `${PUBLIC_KEY} ada@laptop`);
  expect(await field('Name').inputValue()).toBe('ada@laptop');
  await click('Add the key');
  await click('Delete ada@laptop');
  await page.getByText('No key yet').waitFor();
});

test('stores a registry login, shows everything but its password, and deletes it', async () => {
  await open('registry-credentials');
  await fill('Name', 'ours');
  await fill('Registry', 'images.example.com');
  await fill('User', 'robot');
  // A screen reader says the hint after the field, and not in its name.
  await page.getByRole('textbox', { name: 'Password or token', exact: true }).fill('a secret of ours');
  await click('Store the login');
  await page.getByRole('cell', { name: 'images.example.com' }).waitFor();
  expect(await field('Password or token').inputValue()).toBe('');
  await page.reload();
  await page.getByRole('cell', { name: 'robot' }).waitFor();
  expect(await page.content()).not.toContain('a secret of ours');
  await click('Delete ours');
  await page.getByText('No login yet').waitFor();
});

test('turns notices by mail off, which stays so, and on again', async () => {
  await open('security');
  const notices = page.getByRole('checkbox', { name: /^Mail me when/ });
  const isOn = (): Promise<boolean> => notices.isChecked();
  await expect.poll(isOn).toBe(true);
  expect(await axeFindings(page)).toEqual([]);
  await notices.click();
  await expect.poll(isOn).toBe(false);
  await page.reload();
  await expect.poll(isOn).toBe(false);
  await notices.click();
  await expect.poll(isOn).toBe(true);
});

test('signs up, sets an authenticator app up, and needs its code or a recovery code from then on', async () => {
  page = await (await pages.open()).newPage();
  await page.goto(`${pages.origin}/console/security`);
  await click('Create an account');
  await fill('E-mail', 'ada@example.com');
  await fill('Your name', 'Ada');
  await fill('Organisation', 'Ada Labs');
  await fill('Password', PASSWORD);
  await click('Create the account');
  await page.getByText('is the only thing that protects the account').waitFor();
  await click('Add a second factor');
  await click('Set up an app');
  const secret = (await page.locator('.copy code').innerText()).trim();
  expect(await axeFindings(page)).toEqual([]);
  await fill('Code', '000000');
  await click('Confirm');
  await page.locator('small.err, [role=alert]').first().waitFor();
  const epoch = Math.floor(pages.api.world.clock.now() / 1_000);
  await fill('Code', generateSync({ secret, epoch }));
  await click('Confirm');
  const first = (await page.locator('.copy code').innerText()).split('\n');
  await click('I have kept them');
  await page.getByText('It is set up').waitFor();
  await click('Make new codes');
  const codes = (await page.locator('.copy code').innerText()).split('\n');
  await click('I have kept them');
  await page.getByText(`${codes.length} unused`).waitFor();
  expect(codes.filter((code) => first.includes(code))).toEqual([]);
  const [second = ''] = codes;
  await signIn(PASSWORD, [first[0] ?? '', second]);
  await page.reload();
  await page.getByText(`${codes.length - 1} unused`).waitFor();
});

test('ends another session, and changes the password, which a wrong one does not', async () => {
  await page.getByRole('button', { name: /^End the session from/ }).click();
  await page.getByRole('button', { name: /^End the session from/ }).waitFor({ state: 'detached' });
  await fill('Current password', 'wrong horse battery');
  await fill('New password', NEW_PASSWORD);
  await click('Change the password');
  await page.locator('small.err, [role=alert]').first().waitFor();
  await fill('Current password', PASSWORD);
  await click('Change the password');
  const changed = page.getByText('The password is changed');
  await changed.waitFor();
  await fill('Current password', PASSWORD);
  await fill('New password', NEW_PASSWORD);
  await click('Change the password');
  await page.locator('small.err, [role=alert]').first().waitFor();
  expect(await changed.count()).toBe(0);
});

/** Signs in with the password in a browser of its own. All but the last of the codes are refused. */
async function signIn(password: string, codes: readonly string[]): Promise<void> {
  const other = await (await pages.open()).newPage();
  await other.goto(`${pages.origin}/console/security`);
  await fill('E-mail', 'ada@example.com', other);
  await fill('Password', password, other);
  await click('Sign in', other);
  for (const code of codes) {
    await fill('Code', code, other);
    await click('Sign in', other);
    if (code !== codes.at(-1)) await other.locator('small.err, [role=alert]').first().waitFor();
  }
  await other.getByRole('heading', { name: 'Sign-in and security' }).waitFor();
}
