// Chromium, driven as a person would: by what is on the page and by keys.
import { chromium, type Browser, type Page } from 'playwright-core';
import { requireProgram } from './setup.ts';

/** As root there is no sandbox; the others keep it from asking the internet for things. */
const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export function openBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: requireProgram('chromium'), args: ARGS });
}

/** A tab of its own, without cookies of others, that answers the browser's question for a login. */
export async function openTab(browser: Browser, login: { username: string; password: string }): Promise<Page> {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, httpCredentials: login });
  return context.newPage();
}
