// The console in Chromium: people come by an invitation, set up a passkey, sign in with it, and reach every screen. The policy of the page is
// kept, axe-core finds nothing, and no request leaves the origin.
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { BrowserContext, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { insertMember } from '../../control-plane/base/users/store.ts';
import type { Role } from '../../shared/api/auth.ts';
import type { ApiAccount } from '../contract/api.ts';
import {
  addAuthenticator,
  axeFindings,
  type ConsolePages,
  consoleScreens,
  openConsolePages,
} from '../kit/console-pages.ts';
import { addPerson as addSignedIn } from '../kit/people.ts';

/** Those of operators have a test of their own. */
const SCREENS = (await consoleScreens()).filter(({ path }) => !path.startsWith('/console/operate/'));
const DIST = resolve(import.meta.dirname, '../../control-plane/console/dist/assets');
const OWNER = { email: 'ada@example.com', password: 'correct horse battery' };

let pages: ConsolePages;
let context: BrowserContext;
let page: Page;
let account: ApiAccount;

beforeAll(async () => {
  pages = await openConsolePages();
  context = await pages.open();
  page = await context.newPage();
});
afterAll(async () => pages.close());

test('the link of the operator sets a password, and signs in', async () => {
  account = await pages.api.account();
  const { url } = await addPerson(OWNER.email, 'Ada', 'owner');
  await page.goto(url);
  await page.getByLabel('Password').waitFor();
  expect(await axeFindings(page)).toEqual([]);
  await page.getByLabel('Password').fill(OWNER.password);
  await page.getByRole('button', { name: 'Set the password and sign in' }).click();
  await page.getByRole('heading', { name: 'Nothing runs yet' }).waitFor();
  await page.locator('[popovertarget=who]').click();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  // This installation takes sign-ups, and has no single sign-on.
  await page.getByRole('button', { name: 'Create an account' }).waitFor();
  expect(await page.getByRole('button', { name: 'Single sign-on' }).count()).toBe(0);
});

test('a page of another origin cannot frame the console, where it could lead the clicks of a person', async () => {
  const attacker = createServer((_request, reply) => {
    reply.setHeader('content-type', 'text/html');
    reply.end(`<iframe src="${pages.origin}/console"></iframe><iframe src="${pages.origin}/welcome"></iframe>`);
  }).listen(0, '127.0.0.1');
  await once(attacker, 'listening');
  // A profile of its own: what Chromium refuses here is not a fault of our pages.
  const victim = await (await pages.browser.newContext()).newPage();
  await victim.goto(`http://127.0.0.1:${(attacker.address() as AddressInfo).port}/`);
  await expect
    .poll(() =>
      victim
        .frames()
        .map((frame) => frame.url())
        .slice(1),
    )
    .toEqual(['chrome-error://chromewebdata/', 'chrome-error://chromewebdata/']);
  await victim.context().close();
  attacker.close();
});

test('a person signs in with the password, and sees that nothing runs yet', async () => {
  await page.goto(`${pages.origin}/console`);
  await page.getByLabel('E-mail').waitFor();
  expect(await axeFindings(page)).toEqual([]);
  await page.getByLabel('E-mail').fill(OWNER.email);
  await page.getByLabel('Password').fill('wrong horse battery');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await expect.poll(() => page.getByRole('alert').textContent()).toContain('sign_in_failed');
  await page.getByLabel('Password').fill(OWNER.password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('heading', { name: 'Nothing runs yet' }).waitFor();
  expect(new URL(page.url()).pathname).toBe('/console/instances');
});

describe.each([
  { width: 1440, isDark: false },
  { width: 390, isDark: true },
])('at $width px', ({ width, isDark }) => {
  const screens = SCREENS.filter(({ path }) => !path.includes(':'));
  test.each(screens.map(({ path, title }) => [path, title]))(
    '%s has a title, and axe-core finds nothing',
    async (path, title) => {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme: isDark ? 'dark' : 'light' });
      await page.goto(`${pages.origin}${path}`);
      await page.locator('h1').waitFor();
      expect(await page.title()).toBe(`${title} · svc`);
      await expect.poll(() => page.locator('[aria-busy=true]').count()).toBe(0);
      const shots = process.env['CONSOLE_SHOTS'];
      if (shots !== undefined)
        await page.screenshot({ path: join(shots, `${path.replaceAll('/', '_')}-${width}.png`), fullPage: true });
      expect(await axeFindings(page)).toEqual([]);
      for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
      const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
      expect(overflow, 'the page scrolls sideways').toBeLessThanOrEqual(0);
    },
  );
});

test('no page has broken the policy, thrown an error or left the origin', () => {
  expect(pages.broken).toEqual([]);
});

test('the built files name no path of this checkout', () => {
  const files = readdirSync(DIST).map((name) => [name, readFileSync(join(DIST, name), 'utf8')] as const);
  expect(files.length).toBeGreaterThan(10);
  expect(files.filter(([, text]) => text.includes(resolve(DIST, '../..'))).map(([name]) => name)).toEqual([]);
});

test('the first load is at most 60 kB of scripts and 8 kB of styles, compressed', async () => {
  const loaded: string[] = [];
  const fresh = await (await pages.open()).newPage();
  fresh.on('response', (response) => loaded.push(new URL(response.url()).pathname));
  await fresh.goto(`${pages.origin}/console`);
  await fresh.getByLabel('E-mail').waitFor();
  const sizeOf = (ending: string): number =>
    readdirSync(DIST)
      .filter((name) => name.endsWith(ending) && loaded.includes(`/console/assets/${name}`))
      .reduce((sum, name) => sum + gzipSync(readFileSync(join(DIST, name)), { level: 9 }).byteLength, 0);
  expect(sizeOf('.js')).toBeGreaterThan(5_000);
  expect(sizeOf('.js')).toBeLessThanOrEqual(60_000);
  expect(sizeOf('.css')).toBeGreaterThan(1_000);
  expect(sizeOf('.css')).toBeLessThanOrEqual(8_000);
});

test('an invited person gets an account, adds a passkey, and signs in with it', async () => {
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(`${pages.origin}/console/members`);
  await page.getByRole('button', { name: 'Make the link' }).click();
  const link = await page.locator('.copy code').textContent();
  const guest = await (await pages.open()).newPage();
  await addAuthenticator(guest);
  await guest.goto(link ?? '');
  await guest.getByLabel('E-mail').fill('bob@example.com');
  await guest.getByLabel('Your name').fill('Bob');
  await guest.getByLabel('Password').fill('staple battery horse');
  await guest.getByRole('button', { name: 'Create the account and join' }).click();
  await guest.getByRole('heading', { name: 'Instances' }).waitFor();
  await guest.goto(`${pages.origin}/console/security`);
  await guest.getByRole('button', { name: 'Add a second factor' }).click();
  await guest.getByLabel('Name').fill('laptop');
  await guest.getByRole('button', { name: 'Add a passkey' }).click();
  await guest.getByRole('button', { name: 'I have kept them' }).click();
  await guest.getByRole('cell', { name: 'Remove laptop' }).waitFor();
  await guest.locator('[popovertarget=who]').click();
  await guest.getByRole('button', { name: 'Sign out' }).click();
  await guest.getByRole('button', { name: 'Sign in with a passkey' }).click();
  await guest.getByRole('heading', { name: 'Sign-in and security' }).waitFor();
  expect(pages.broken).toEqual([]);
});

test('a role that is chosen for one member stays with this member when rows move, and a role that changed is shown', async () => {
  await pages.api.world.clock.advance(1);
  await addPerson('eve@example.com', 'Eve', 'member');
  await page.goto(`${pages.origin}/console/members`);
  const roleOf = (of: string): Locator => page.getByRole('combobox', { name: `Role of ${of}` });
  await roleOf('Eve').selectOption('billing');
  const { json } = await pages.api.call('GET', '/v1/members', account);
  const bob = json.data?.find((member) => member['name'] === 'Bob')?.['user_id'];
  await pages.api.call('PATCH', `/v1/members/${String(bob)}`, { key: account.key, body: { role: 'read-only' } });
  await page.getByRole('button', { name: 'Remove Eve' }).click();
  await roleOf('Eve').waitFor({ state: 'detached' });
  await expect.poll(() => roleOf('Bob').inputValue()).toBe('read-only');
  expect(await page.getByRole('button', { name: 'Change' }).count()).toBe(0);
});

test('an organisation becomes a supplier, registers a machine, reads its checks, changes its price and takes it off the market', async () => {
  await page.goto(`${pages.origin}/console/machines`);
  await page.getByRole('button', { name: 'Become a supplier' }).click();
  await page.getByRole('button', { name: 'Add a machine' }).click();
  await page.getByLabel('Region').fill('eu-west');
  await page.getByLabel('Price of one GPU').fill('2000');
  await page.getByRole('button', { name: 'Register the machine' }).click();
  const field = page.getByLabel('Price of one GPU');
  await expect.poll(() => field.getAttribute('aria-invalid')).toBe('true');
  await field.fill('0.80');
  for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
  await page.getByRole('button', { name: 'Register the machine' }).click();
  expect(await page.locator('.copy code').textContent()).toMatch(/^\.\/install\.sh agent --url http:\S+ --token \S+$/);
  await page.getByRole('link', { name: 'Watch its checks' }).click();
  await page
    .getByRole('status')
    .filter({ hasText: /^\d+ of \d+ passed$/ })
    .waitFor();
  expect(await axeFindings(page)).toEqual([]);
  await page.getByLabel('Price of one GPU').fill('0.95');
  await page.getByRole('button', { name: 'Change the price' }).click();
  await page.locator('.stats').filter({ hasText: '$0.95' }).waitFor();
  await page.getByRole('button', { name: 'Take off the market' }).click();
  const dialog = page.getByRole('dialog');
  expect(await axeFindings(page)).toEqual([]);
  await dialog.getByRole('button', { name: 'Take off the market' }).click();
  await page.getByRole('button', { name: 'Put on offer again' }).waitFor();
  expect(pages.broken).toEqual([]);
});

test('a launch requires what the person filters for, names its ports and its arguments, as its two lines do', async () => {
  await pages.api.world.machine();
  await page.goto(`${pages.origin}/console/launch`);
  await page.getByRole('radio', { name: /H100/ }).check();
  await page.getByRole('radio', { name: 'Own image' }).check();
  const box = (name: RegExp): Locator => page.getByRole('textbox', { name });
  const choice = (name: RegExp): Locator => page.getByRole('combobox', { name });
  await choice(/^CPUs/).selectOption('128');
  await page.getByText('The filters hide the chosen offering: under 128 CPUs.').waitFor();
  expect(await page.getByRole('button', { name: /^Launch at/ }).isDisabled()).toBe(true);
  await choice(/^CPUs/).selectOption('64');
  await choice(/^RAM/).selectOption('192');
  await choice(/^CUDA/).selectOption('12.4 or newer');
  await choice(/^Region/).selectOption('eu-west');
  const lines = page.getByRole('complementary').locator('.cmd code');
  const pin = page.getByRole('checkbox', { name: /^Only on this host/ });
  await pin.check();
  await expect.poll(() => lines.first().textContent()).toMatch(/--count 1 --offering off_\w+ --image IMAGE$/);
  expect(await lines.last().textContent()).toMatch(/"offering_id":"off_\w+"/);
  await pin.uncheck();
  await box(/^Image/).fill('busybox');
  await box(/^Ports/).fill('8080 5432/tcp 9090/http');
  await choice(/^Primary port/).selectOption('9090');
  await expect.poll(() => lines.first().textContent()).toContain('9090/http/primary');
  // A port that is not listed any more is not the primary one.
  await box(/^Ports/).fill('8080');
  await expect.poll(() => lines.first().textContent()).toMatch(/ --port 8080\/http$/);
  await box(/^Ports/).fill('8080 5432/tcp 9090/http');
  await choice(/^Entrypoint/).selectOption('These arguments');
  await box(/^Entrypoint/).fill('/bin/env\n-i');
  await choice(/^Command/).selectOption('None');
  const ports = '--port 8080/http --port 5432/tcp --port 9090/http/primary';
  await expect
    .poll(() => lines.first().textContent())
    .toContain(`${ports} --entrypoint /bin/env --entrypoint -i -- ''`);
  await choice(/^Command/).selectOption('These arguments');
  await box(/^Command/).fill('sh\n-c\nexec sleep infinity');
  await expect.poll(() => lines.first().textContent()).toMatch(/ --entrypoint -i -- sh -c 'exec sleep infinity'$/);
  expect(await lines.count()).toBe(2);
  for (const line of await lines.allTextContents()) await pages.judge(line);
  const asked = {
    requirements: { regions: ['eu-west'], min_cpu_cores: 64, min_ram_gb: 192, min_cuda_version: '12.4' },
    image: 'busybox',
    ports: [
      { port: 8080, protocol: 'http' },
      { port: 5432, protocol: 'tcp' },
      { port: 9090, protocol: 'http', primary: true },
    ],
    entrypoint: ['/bin/env', '-i'],
    cmd: ['sh', '-c', 'exec sleep infinity'],
  };
  expect(await lines.last().textContent()).toContain(JSON.stringify(asked).slice(1, -1));
  const refusal = { code: 'validation_failed', errors: [{ field: 'requirements.min_ram_gb', rule: 'is refused' }] };
  await page.route('**/v1/instances', (route) => route.fulfill({ status: 422, json: refusal }), { times: 1 });
  await page.getByRole('button', { name: /^Launch at/ }).click();
  await page.getByRole('group', { name: 'Filters' }).getByText('RAM is refused').waitFor();
  await page.getByText('Correct the fields that are marked.').waitFor();
  expect(await axeFindings(page)).toEqual([]);
  const sent = page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/v1/instances'));
  await page.getByRole('button', { name: /^Launch at/ }).click();
  const request = await sent;
  expect(request.postDataJSON()).toMatchObject(asked);
  expect((await request.response())?.status()).toBe(202);
  expect(pages.broken).toEqual([]);
});

test('a tab of an organisation that the browser has left changes nothing in the other one, and loads again', async () => {
  const { core, rooms, clock } = pages.api.world;
  const { id: orgId } = await rooms.accounts.createOrg('elsewhere');
  const person = await addSignedIn(pages.api.world, { orgId: account.orgId, role: 'owner' });
  const joined = { org_id: orgId, user_id: person.userId, role: 'owner', created_ms: clock.now() + 1 } as const;
  await core.db.tx('test.join', (tx) => insertMember(tx, joined));
  const left = await pages.signedIn(person);
  await left.goto(`${pages.origin}/console/api-keys`);
  await left.getByLabel('Name').fill('stray');
  await left.getByLabel('instances: read').check();
  const next = await left.context().newPage();
  await next.goto(`${pages.origin}/console`);
  await next.getByRole('button', { name: /^customer/ }).click();
  await next.getByRole('button', { name: 'Switch to elsewhere' }).click();
  await next.getByRole('button', { name: /^elsewhere/ }).waitFor();
  await left.getByRole('button', { name: 'Make the key' }).click();
  await left.getByRole('button', { name: /^elsewhere/ }).waitFor();
  expect(new URL(left.url()).pathname).toBe('/console/api-keys');
  await left.getByText('No key yet').waitFor();
  expect(pages.broken).toEqual([]);
});

test('ten tabs follow the organisation with one stream, and another tab reads it when the first is closed', async () => {
  const streams = new Set<Page>();
  const tabs = await Promise.all(
    Array.from({ length: 10 }, async () => {
      const tab = await context.newPage();
      tab.on('request', (request) => {
        if (new URL(request.url()).pathname === '/v1/events' && request.headers()['accept'] === 'text/event-stream')
          streams.add(tab);
      });
      await tab.goto(`${pages.origin}/console/api-keys`);
      await tab.getByLabel('Name').waitFor();
      return tab;
    }),
  );
  await page.close();
  await expect.poll(() => streams.size).toBe(1);
  const [reader] = streams;
  const others = tabs.filter((tab) => tab !== reader);
  await makeKey(reader as Page, 'first');
  await seeRow(others, 'first');
  await reader?.close();
  await expect.poll(() => streams.size).toBe(2);
  await makeKey(others[0] as Page, 'second');
  await seeRow(others, 'second');
  expect(pages.broken).toEqual([]);
});

/** Adds a member of the organisation, whose link sets a password. */
function addPerson(email: string, name: string, role: Role): Promise<{ url: string }> {
  const { people } = pages.api.world.rooms.users;
  return people.add({ email, name, isOperator: false, member: { orgId: account.orgId, role } });
}

/** No loop runs in this world, so the journal is polled here. */
async function seeRow(tabs: readonly Page[], name: string): Promise<void> {
  const seen = async (): Promise<number> => {
    await pages.api.world.rooms.live.tick();
    const counts = await Promise.all(tabs.map((tab) => tab.getByRole('rowheader', { name }).count()));
    return counts.filter((count) => count === 1).length;
  };
  await expect.poll(seen).toBe(tabs.length);
}

async function makeKey(tab: Page, name: string): Promise<void> {
  await tab.getByLabel('Name').fill(name);
  await tab.getByLabel('instances: read').check();
  await tab.getByRole('button', { name: 'Make the key' }).click();
  await tab.getByRole('heading', { name: `The key ${name}` }).waitFor();
}
