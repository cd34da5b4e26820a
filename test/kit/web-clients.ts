// A customer at the URL of an application or of the console: curl, and browsers driven by what is on the page and by keys.
import { join } from 'node:path';
import { chromium, firefox, type Browser, type Page } from 'playwright-core';
import { capture } from './capture.ts';
import { requireProgram } from './setup.ts';

/** The address is passed to curl, because not every system resolves names below localhost. `caFile` is the PEM of the issuing authority. */
export async function curlApp(
  caFile: string,
  url: string,
  ...more: string[]
): Promise<{ status: string; body: string }> {
  const { host } = new URL(url);
  const way = ['--cacert', caFile, '--connect-to', `${host}:127.0.0.1:${new URL(url).port}`];
  const { code, stdout, stderr } = await capture(['curl', '-sS', ...way, '-w', '\\n%{http_code}', ...more, url]);
  if (code !== 0) throw new Error(stderr.toString());
  const [status = '', ...lines] = stdout.toString().split('\n').toReversed();
  return { status, body: lines.toReversed().join('\n') };
}

/** Root has no sandbox. The other flags keep the browser from asking the internet for things. */
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
  const env = { ...process.env, CHROMIUM: requireProgram('chromium') };
  return chromium.launch({ executablePath: join(import.meta.dirname, 'chromium'), args: ARGS, env });
}

/** Debian's Firefox, over WebDriver BiDi. From 1.65 on, Playwright sends it a command that the present ESR does not know. */
export function openFirefox(): Promise<Browser> {
  return firefox.launch({ channel: 'moz-firefox', executablePath: requireProgram('firefox-esr') });
}

/** A tab of its own, without cookies of others, that answers the browser's question for a login. */
export async function openTab(browser: Browser, login: { username: string; password: string }): Promise<Page> {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, httpCredentials: login });
  return context.newPage();
}
