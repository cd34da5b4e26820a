// People who use the console of real daemons, in Chromium and in Firefox: they follow the operator's link, and set up a second factor.
import { generateSync } from 'otplib';
import type { Browser, Page } from 'playwright-core';
import { addAuthenticator, watch } from './console-pages.ts';
import type { ControlPlane } from './control-plane.ts';
import { openBrowser, openFirefox } from './web-clients.ts';

export const PASSWORD = 'correct horse battery';

export interface BrowserKind {
  name: string;
  open(): Promise<Browser>;
  /** Only Chromium has a protocol that gives a browser passkeys of its own. */
  hasPasskeys: boolean;
}

export const BROWSERS: readonly BrowserKind[] = [
  { name: 'Chromium', open: openBrowser, hasPasskeys: true },
  { name: 'Firefox', open: openFirefox, hasPasskeys: false },
];

export interface Visits {
  /** A page of a browser profile of its own, in which a new person has followed the link that `admin user add <person>` printed. */
  visit(browser: Browser, person: readonly string[]): Promise<Page>;
  /** A new operator, who has set up the second factor that the browser can give: a passkey, or the codes of an authenticator app. */
  visitAsOperator(browser: Browser, kind: BrowserKind): Promise<Page>;
  /** Everything that pages have broken until now, in words. */
  broken: readonly string[];
}

export function openVisits({ operator, baseUrl }: Pick<ControlPlane, 'operator' | 'baseUrl'>): Visits {
  const broken: string[] = [];
  const visit: Visits['visit'] = async (browser, person) => {
    const { url } = (await operator('admin', 'user', 'add', ...person)) as { url: string };
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: 'reduce' });
    context.setDefaultTimeout(15_000);
    const page = await context.newPage();
    watch(page, new URL(baseUrl).origin, broken);
    await page.goto(url);
    await page.getByLabel('Password').fill(PASSWORD);
    await page.getByRole('button', { name: 'Set the password and sign in' }).click();
    return page;
  };
  const visitAsOperator: Visits['visitAsOperator'] = async (browser, { name, hasPasskeys }) => {
    const person = ['--email', `olga@${name.toLowerCase()}.example.com`, '--name', 'Olga', '--operator'];
    const page = await visit(browser, person);
    await page.getByRole('heading', { name: 'Set up a second factor' }).waitFor();
    await (hasPasskeys ? addPasskey(page) : addApp(page));
    await page.getByRole('button', { name: 'I have kept them' }).click();
    await page.getByRole('link', { name: 'Fleet' }).waitFor();
    return page;
  };
  return { visit, visitAsOperator, broken };
}

async function addPasskey(page: Page): Promise<void> {
  await addAuthenticator(page);
  await page.getByLabel('Name').fill('key');
  await page.getByRole('button', { name: 'Add a passkey' }).click();
}

async function addApp(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Set up an app' }).click();
  const secret = await page.locator('.copy code').innerText();
  await page.getByLabel('Code').fill(generateSync({ secret }));
  await page.getByRole('button', { name: 'Confirm' }).click();
}
