// The console in Chromium where models are used for more than one visit of the page: videos that were made before, and an answer that is stopped.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sumReceipts } from '../../control-plane/models/gateway/totals.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { someModels, videoModels } from '../kit/models.ts';
import { addPerson } from '../kit/people.ts';
import { HELLO_EVENTS } from '../kit/stream-chunks.ts';
import { openVideoServer, type VideoServer } from '../kit/video-server.ts';
import type { ApiAccount } from '../contract/api.ts';

let upstream: FakeUpstream;
let videos: VideoServer;
let pages: ConsolePages;
let page: Page;
let account: ApiAccount;

beforeAll(async () => {
  upstream = await openFakeUpstream();
  videos = await openVideoServer();
  const servers = [{ base_url: videos.baseUrl, engine: 'vllm_omni' }];
  const models = [...someModels(upstream.baseUrl), ...videoModels(servers)];
  pages = await openConsolePages({ settings: { models } });
  const { world } = pages.api;
  // The page shows times by the clock of the browser.
  await world.clock.advance(Date.now() - world.clock.now());
  account = await pages.api.account();
  page = await pages.signedIn(await addPerson(world, { orgId: account.orgId, role: 'owner' }, { isStrong: true }));
});
afterAll(async () => {
  await pages.close();
  await upstream.close();
  await videos.close();
});

const press = (name: string): Promise<void> => page.getByRole('button', { name, exact: true }).click();
/** axe-core finds nothing on the page, and nothing has broken. */
async function expectWell(): Promise<void> {
  expect(await axeFindings(page)).toEqual([]);
  expect(pages.broken).toEqual([]);
}

/** Submits a video outside of the console, as a program of the organisation does. */
async function submit(prompt: string): Promise<string> {
  const body = { model: 'acme/director', prompt, seconds: 6 };
  const { json } = await pages.api.call('POST', '/v1/videos', { key: account.key, body });
  return String(json['id']);
}

/** Drives what comes due within the given seconds, and tells the page. */
async function passes(seconds: number): Promise<void> {
  const { world } = pages.api;
  for (let second = 0; second < seconds; second += 1) {
    await world.clock.advance(1_000);
    await world.drive();
  }
  await world.rooms.live.tick();
}

test('the page of a model lists its videos: what was made is downloaded or shown, what runs is followed and cancelled', async () => {
  videos.usual = { status: 'completed', progress: 100 };
  await submit('a red fox runs');
  await passes(1);
  await page.goto(`${pages.origin}/console/models`);
  await page.getByRole('button', { name: 'Try acme/director' }).click();
  const row = page.getByRole('row', { name: 'a red fox runs' });
  await row.locator('.badge', { hasText: 'completed' }).waitFor();
  await row.getByText(/^6 s, 832x480, begun /).waitFor();
  await row.getByText('$0.06', { exact: true }).waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), row.getByText('Download').click()]);
  expect(file.suggestedFilename()).toMatch(/^vid_[0-9a-z]+\.mp4$/);
  await row.getByRole('button', { name: 'Show' }).click();
  await page.getByText(/^6 s of video, made in/).waitFor();

  // Somebody else of the organisation submits one, and it is cancelled here while it runs.
  videos.usual = { status: 'in_progress', progress: 70 };
  const id = await submit('a second fox');
  await passes(2);
  await page.getByRole('row', { name: 'a second fox' }).waitFor();
  const second = page.getByRole('row', { name: id });
  await expect.poll(() => second.getByRole('progressbar').getAttribute('value'), { timeout: 10_000 }).toBe('70');
  await expectWell();
  await second.getByRole('button', { name: 'Cancel' }).click();
  await second.locator('.badge', { hasText: 'cancelled' }).waitFor();

  // Those of another model are not listed with it.
  await page.getByRole('button', { name: 'Try acme/clips' }).click();
  await page.getByText('Videos of acme/clips are listed here, also after a reload of the page.').waitFor();
  expect(await second.count()).toBe(0);
  await expectWell();
});

test('an answer that is stopped says so, with the tokens and the cost of its receipt', async () => {
  upstream.usual = () => ({ events: HELLO_EVENTS.slice(0, 2), ending: 'stall' });
  await page.goto(`${pages.origin}/console/models`);
  await page.getByRole('button', { name: 'Try acme/small-chat' }).click();
  await page.getByLabel('Message').fill('Say hello, slowly');
  await press('Send');
  await page.locator('.said', { hasText: 'Hello' }).last().waitFor();
  await press('Stop');
  await page.getByText('It was stopped before its end.').waitFor();
  await page.getByRole('status').getByText('The answer was stopped').waitFor();
  await page
    .locator('.stats')
    .filter({ hasText: /\d+ \+ \d+/ })
    .filter({ hasText: /\$0\.0000/ })
    .waitFor();
  await expectWell();
});

test('what models cost in the last 30 days is shown by model and by key', async () => {
  const { world, call } = pages.api;
  upstream.usual = () => ({});
  const body = { model: 'small', messages: [{ role: 'user', content: 'hi' }] };
  await call('POST', '/v1/chat/completions', { key: account.key, body });
  await world.clock.advance(3 * 60_000);
  await sumReceipts(world, new AbortController().signal);
  await page.goto(`${pages.origin}/console/model-costs`);
  await page.getByRole('row', { name: /^acme\/small-chat 2 / }).waitFor();
  await page.getByLabel('API key').check();
  await page.getByRole('row', { name: /^first svc_live_\S+ 1 / }).waitFor();
  await page.getByRole('row', { name: /^a session, or a key / }).waitFor();
  await expectWell();
  const shots = process.env['CONSOLE_SHOTS'];
  for (const width of shots === undefined ? [] : [1_280, 390]) {
    await page.setViewportSize({ width, height: 900 });
    await page.screenshot({ path: `${shots}/model-costs-${width}.png`, fullPage: true });
  }
});
