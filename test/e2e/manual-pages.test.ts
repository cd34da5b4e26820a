// The manual in Chromium without JavaScript: the content policy blocks nothing, nothing overflows, and a phone reaches every page.
import { openManual, PAGES } from '../../control-plane/docs/manual.ts';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, openApi } from '../contract/api.ts';
import { openBrowser } from '../kit/web-clients.ts';

const WIDE = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };

let api: Api;
let browser: Browser;
let root: string;
beforeAll(async () => {
  api = await openApi({ process: { manual: openManual() } });
  const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
  root = `http://127.0.0.1:${port}`;
  browser = await openBrowser();
});
afterAll(async () => {
  await browser.close();
  await api.http.close();
  await api.close();
});

const hrefs = PAGES.map((name) => (name === 'index' ? '/docs' : `/docs/${name}`)).concat('/docs/api');

/** A page without JavaScript, and what it has asked for or complained about. */
async function openPage(options: BrowserContextOptions): Promise<{ page: Page; faults: string[] }> {
  const context = await browser.newContext({ javaScriptEnabled: false, ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  page.on('console', (message) => faults.push(message.text()));
  page.on('request', (request) => {
    if (!request.isNavigationRequest()) faults.push(`asks for ${request.url()}`);
  });
  return { page, faults };
}

describe.each([
  ['wide', WIDE],
  ['as wide as a phone', PHONE],
])('%s', (_name, viewport) => {
  test('every page asks for nothing else and does not overflow', async () => {
    const { page, faults } = await openPage({ viewport });
    for (const href of hrefs) {
      await page.goto(root + href);
      const over = await page.locator('html').evaluate((html) => html.scrollWidth - html.clientWidth);
      if (over > 0) faults.push(`${href} is ${over} pixels wider than the screen`);
    }
    expect(faults).toEqual([]);
    await page.context().close();
  });
});

test.each([
  ['light', 'rgb(246, 247, 248)'],
  ['dark', 'rgb(14, 17, 21)'],
] as const)('the colours of a %s system are those of the page', async (colorScheme, background) => {
  const { page } = await openPage({ viewport: WIDE, colorScheme });
  await page.goto(`${root}/docs`);
  expect(await page.evaluate('getComputedStyle(document.documentElement).backgroundColor')).toBe(background);
  await page.context().close();
});

test('on a phone a button shows the navigation, and an entry leads to its page', async () => {
  const { page } = await openPage({ viewport: PHONE });
  await page.goto(`${root}/docs`);
  const entry = page.getByRole('navigation').getByRole('link', { name: 'Call models' });
  expect(await entry.isVisible()).toBe(false);
  await page.getByRole('button', { name: 'Pages of the manual' }).click();
  await entry.click();
  expect(await page.title()).toBe('Call models');
  await page.context().close();
});

test('on a phone the reference of the API begins with its title, and a link leads to the list of its routes', async () => {
  const { page } = await openPage({ viewport: PHONE });
  await page.goto(`${root}/docs/api`);
  const title = page.getByRole('heading', { level: 1 });
  expect((await title.boundingBox())?.y).toBeLessThan(PHONE.height / 2);
  const entry = page.getByRole('navigation').getByRole('link', { name: 'Make an API key', exact: true });
  await page.getByRole('link', { name: 'All routes and schemas' }).click();
  await entry.scrollIntoViewIfNeeded();
  await entry.click();
  expect(new URL(page.url()).hash).toBe('#createApiKey');
  await page.context().close();
});
