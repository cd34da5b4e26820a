// A control plane with the built console, and Chromium in front of it. What its pages break is collected: errors of scripts, and violations
// of the policy of the page.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { operatorSessionRoutes } from '../../control-plane/admin/admin.ts';
import { brought } from '../../control-plane/brings.ts';
import { openConsole } from '../../control-plane/console/console.ts';
import { type Api, openApi } from '../contract/api.ts';
import { openJudge } from './manual/judge.ts';
import type { Person } from './people.ts';
import { freePort } from './ports.ts';
import { openBrowser } from './web-clients.ts';

const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

export interface ConsolePages {
  api: Api;
  origin: string;
  browser: Browser;
  /** A browser profile of its own, whose pages are watched. */
  open(options?: { isPhone?: boolean; isDark?: boolean }): Promise<BrowserContext>;
  /** A page of a browser profile of its own, in which this person has signed in. */
  signedIn(person: Pick<Person, 'token'>): Promise<Page>;
  /** Throws if the service does not take a line that a screen shows: the command with its options, or the route with its query and body. */
  judge(line: string): Promise<void>;
  /** Probes the rentals for `ms` of virtual time. */
  probe(ms: number): Promise<void>;
  /** Everything that pages have broken until now, in words. */
  broken: readonly string[];
  close(): Promise<void>;
}

export async function openConsolePages(settings: Partial<Parameters<typeof openApi>[0]> = {}): Promise<ConsolePages> {
  const port = await freePort();
  const origin = `http://localhost:${port}`;
  const api = await openApi(
    { ...settings, settings: { ...settings.settings, origin }, process: { console: openConsole() } },
    { baseUrl: `${origin}/v1` },
  );
  const operatorRoutes = brought(api.world.brings(), 'operatorRoutes');
  api.http.register(operatorSessionRoutes(operatorRoutes, api.world.audit));
  const judge = openJudge(api.routes, operatorRoutes);
  await api.http.listen({ host: '127.0.0.1', port });
  const browser = await openBrowser();
  const broken: string[] = [];
  const openProfile: ConsolePages['open'] = async ({ isPhone = false, isDark = false } = {}) => {
    const context = await browser.newContext({
      viewport: isPhone ? { width: 390, height: 844 } : { width: 1440, height: 900 },
      colorScheme: isDark ? 'dark' : 'light',
      // A badge that turns takes a sixth of a processor.
      reducedMotion: 'reduce',
    });
    context.on('page', (page) => watch(page, origin, broken));
    return context;
  };
  return {
    api,
    origin,
    browser,
    broken,
    open: openProfile,
    signedIn: async ({ token }) => {
      const context = await openProfile();
      const url = origin.replace('http:', 'https:');
      await context.addCookies([
        { name: '__Host-svc_session', value: token, url, secure: true, httpOnly: true, sameSite: 'Lax' },
      ]);
      return context.newPage();
    },
    judge: (line) => judge(wordsOf(line, origin)),
    probe: async (ms) => {
      const { rooms, clock } = api.world;
      for (let passed = 0; passed < ms; passed += 1_000) {
        await rooms.watch.run(new AbortController().signal);
        await clock.advance(1_000);
      }
    },
    close: async () => {
      await browser.close();
      await api.http.close();
      await api.close();
    },
  };
}

/** The words of the line as a shell reads them. */
function wordsOf(line: string, origin: string): [string, ...string[]] {
  const env = { SVC_BASE_URL: `${origin}/v1`, SVC_API_KEY: 'svc_live_x', PATH: process.env['PATH'] ?? '' };
  const script = `uuidgen() { echo id; }; printf '%s\\0' ${line}`;
  const text = execFileSync('bash', ['--norc', '-c', script], { env, encoding: 'utf8' });
  const [program = '', ...args] = text.split('\0').slice(0, -1);
  return [program, ...args];
}

/** Adds what the page breaks to `broken`, in words. */
export function watch(page: Page, origin: string, broken: string[]): void {
  page.on('pageerror', (error) => broken.push(`${page.url()}: ${error.message}`));
  page.on('console', (message) => {
    // A refusal of the API is shown on the page, and Chromium notes it too.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      broken.push(message.text());
  });
  page.on('request', (request) => {
    const { origin: to, protocol } = new URL(request.url());
    if (to !== origin && protocol !== 'blob:' && protocol !== 'data:')
      broken.push(`a request left the origin: ${request.url()}`);
  });
}

/** What axe-core finds on the page, a line each. It runs outside of the page's policy, which lets no foreign script in. */
export async function axeFindings(page: Page): Promise<string[]> {
  // axe-core looks at one moment. On a busy machine a screen may not be drawn yet, and each screen has this heading.
  await page.locator('h1').first().waitFor();
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send('Page.getFrameTree');
  const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
  await session.send('Runtime.evaluate', { expression: readFileSync(AXE, 'utf8'), contextId: executionContextId });
  const { result } = await session.send('Runtime.evaluate', {
    contextId: executionContextId,
    awaitPromise: true,
    returnByValue: true,
    expression: `axe.run(document).then(({ violations }) => violations.flatMap(({ id, help, nodes }) => nodes.map(({ target, html }) => id + ': ' + help + ' at ' + target.join(' ') + ' ' + html.slice(0, 160))))`,
  });
  await session.detach();
  return result.value as string[];
}

const SCREENS_FILE = '../../control-plane/console/web/screens.ts';

/** All screens of the console. Its sources are typed for a browser, so they are not part of this program and are loaded by name. */
export async function consoleScreens(): Promise<readonly { path: string; title: string }[]> {
  const { SCREENS } = (await import(SCREENS_FILE)) as { SCREENS: readonly { path: string; title: string }[] };
  return SCREENS;
}

/** An authenticator of the browser, which confirms whatever it is asked for. */
export async function addAuthenticator(on: Page): Promise<void> {
  const devices = await on.context().newCDPSession(on);
  await devices.send('WebAuthn.enable');
  const kind = { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true } as const;
  await devices.send('WebAuthn.addVirtualAuthenticator', {
    options: { ...kind, isUserVerified: true, automaticPresenceSimulation: true },
  });
}
