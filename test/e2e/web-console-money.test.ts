// The console in Chromium where money, webhooks and models are: a deposit is begun and followed through its states, a webhook is inspected and
// its signature checked, models answer with what was measured, and examples are uploaded and trained with.
import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { copyFiles } from '../kit/long-lists.ts';
import { depositIn, noteRead, offlineDeposits } from '../kit/deposits.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { someModels, tunableModels, videoModels } from '../kit/models.ts';
import { addPerson } from '../kit/people.ts';
import { scriptedOutbound } from '../kit/scripted-outbound.ts';
import { HELLO_EVENTS } from '../kit/stream-chunks.ts';
import { openVideoServer, type VideoServer } from '../kit/video-server.ts';
import type { ApiAccount } from '../contract/api.ts';
import { trainingLines } from '../contract/forms.ts';
import { carryAll } from '../control-plane/rental/webhooks/fixture.ts';
import type { DepositState } from '../../shared/states.ts';

const outbound = scriptedOutbound();
/** A picture of one pixel. */
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';
const FURTHER_FILES = 149;
let upstream: FakeUpstream;
let videos: VideoServer;
let pages: ConsolePages;
let context: BrowserContext;
let page: Page;
let account: ApiAccount;

beforeAll(async () => {
  upstream = await openFakeUpstream();
  upstream.usual = ({ path }) =>
    path.endsWith('/images/generations')
      ? { body: { created: 1, data: [{ b64_json: PNG }] } }
      : { events: HELLO_EVENTS, pauseMs: 20 };
  videos = await openVideoServer();
  const models = [
    ...someModels(upstream.baseUrl),
    ...videoModels([{ base_url: videos.baseUrl, engine: 'vllm_omni' }]),
    ...tunableModels().slice(0, 1),
  ];
  pages = await openConsolePages({ webhookOutbound: outbound, settings: { deposits: offlineDeposits(), models } });
  const { world } = pages.api;
  // The page counts down by the clock of the browser.
  await world.clock.advance(Date.now() - world.clock.now());
  await noteRead(world, 'base');
  account = await pages.api.account();
  const { orgId } = account;
  page = await pages.signedIn(await addPerson(world, { orgId, role: 'owner' }, { isStrong: true }));
  context = page.context();
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

test('a deposit is begun, refused by its field, and shows where to send how much', async () => {
  await page.goto(`${pages.origin}/console/deposits`);
  const amount = page.getByLabel('Amount in dollars');
  await amount.fill('1');
  await press('Get an address');
  await expect.poll(() => amount.getAttribute('aria-invalid')).toBe('true');
  await amount.fill('250.50');
  await press('Get an address');
  await page.getByRole('heading', { name: 'Send 250.50 USDC on Base' }).waitFor();
  await page.getByRole('img', { name: 'The address as a QR code' }).waitFor();
  expect(await page.locator('.copy code').allTextContents()).toEqual([expect.stringMatching(/^0x/), '250.50']);
  await expectWell();
});

test('only what the operator has set up is offered, and a paused chain says so', async () => {
  await page.goto(`${pages.origin}/console/deposits`);
  const chain = page.getByLabel('Chain');
  await chain.waitFor();
  const offered = (): Promise<string[]> => chain.locator('option').allTextContents();
  expect(await offered()).toEqual(['Ethereum (paused)', 'Base']);
  await page.getByLabel('Token').selectOption('usdt');
  await expect.poll(offered).toEqual(['Ethereum (paused)']);
  await page.getByText('Deposits on Ethereum are paused.').waitFor();
  await page.getByLabel('Amount in dollars').fill('25');
  expect(await page.getByRole('button', { name: 'Get an address' }).isDisabled()).toBe(true);
  await expectWell();
  await page.getByLabel('Token').selectOption('usdc');
  await page.getByLabel('Amount in dollars').fill('');
});

/** What the page of a deposit says: its badge, how many of the five steps are done, and what comes next. */
const DEPOSITS: Record<DepositState, [badge: string, done: number, next: string]> = {
  created: ['waits for tokens', 0, 'Send the amount to the address.'],
  detected: ['seen', 1, 'The transfer was seen. The chain has to confirm it.'],
  confirming: ['confirming', 2, 'The chain has to make the transfer final.'],
  settled: ['settled', 3, 'The senders are checked against sanctions lists.'],
  screening: ['screening', 3, 'The senders are checked against sanctions lists.'],
  held_screening: ['held for screening', 3, 'The check waits for an answer or for the operator. Nothing is lost.'],
  credited: ['credited', 5, 'It is part of the balance.'],
  credited_underpaid: ['credited, underpaid', 5, 'Less came than was asked for.'],
  credited_overpaid: ['credited, overpaid', 5, 'More came than was asked for. All is credited.'],
  expired: ['expired', 0, 'Nothing came in time. Send nothing to this address.'],
  expired_received: [
    'came too late',
    1,
    'Tokens came after the end. The operator decides: write to them with the id of this deposit.',
  ],
  failed: ['cancelled', 0, 'The operator has cancelled it. Send nothing to this address.'],
  failed_screening: ['failed screening', 3, 'A sender is on a sanctions list. Nothing is credited.'],
};
/** The amounts that the page shows as credited. */
const CREDITED: Partial<Record<DepositState, string>> = {
  credited: '$25.00',
  credited_underpaid: '$20.00 $5.00 less than asked',
  credited_overpaid: '$30.00 $5.00 more than asked',
};

describe('a deposit', () => {
  test.each(Object.keys(DEPOSITS) as DepositState[])('that is %s says so, and what comes next', async (state) => {
    const [badge, done, next] = DEPOSITS[state];
    const id = await depositIn(pages.api.world, account.orgId, state);
    await page.goto(`${pages.origin}/console/deposits/${id}`);
    const progress = page.getByRole('region', { name: 'Progress' });
    await progress.locator('.badge').waitFor();
    expect(await progress.locator('.badge').textContent()).toBe(badge);
    expect(await progress.locator('.steps .done').count()).toBe(done);
    expect(await progress.locator('.steps .small').allTextContents()).toEqual([next]);
    const takesTokens = ['created', 'detected', 'confirming'].includes(state);
    expect(await page.getByRole('img', { name: 'The address as a QR code' }).count()).toBe(takesTokens ? 1 : 0);
    const credited = page.locator('dt', { hasText: 'Credited' }).locator('xpath=following-sibling::dd[1]');
    const words = takesTokens ? [] : [CREDITED[state] ?? 'not yet'];
    expect((await credited.allTextContents()).map((text) => text.trim())).toEqual(words);
    await expectWell();
  });

  test('of each state stands in the list with its badge', async () => {
    await page.goto(`${pages.origin}/console/deposits`);
    const badges = page.getByRole('table', { name: 'Deposits' }).locator('.badge');
    await badges.first().waitFor();
    const all = Object.values(DEPOSITS).map(([badge]) => badge);
    expect(new Set(await badges.allTextContents())).toEqual(new Set(all));
    await expectWell();
  });

  test('that is credited raises the balance that is shown, without a timer or a reload', async () => {
    const tab = await context.newPage();
    // Pages read again with a period too. Without it, only the live stream is left.
    await tab.addInitScript('window.setInterval = () => 0');
    await tab.goto(`${pages.origin}/console/usage`);
    const figure = tab.locator('.stats > *').filter({ hasText: /^Balance/ });
    const shown = async (text: string | null): Promise<number> =>
      Math.round(Number(/\$([\d,]+\.\d\d)/.exec(text ?? '')?.[1]?.replaceAll(',', '')) * 100);
    await figure.waitFor();
    await tab.locator('.gauge b').waitFor();
    const [balance, gauge] = [
      await shown(await figure.textContent()),
      await shown(await tab.locator('.gauge b').textContent()),
    ];
    expect(balance).toBeGreaterThan(0);
    await depositIn(pages.api.world, account.orgId, 'credited');
    await expect
      .poll(
        async () => {
          await pages.api.world.rooms.live.tick();
          return [await shown(await figure.textContent()), await shown(await tab.locator('.gauge b').textContent())];
        },
        { timeout: 20_000 },
      )
      .toEqual([balance + 2_500, gauge + 2_500]);
    await tab.close();
  });
});

test('a test event is delivered, its attempt is shown, and its signature is checked in the browser', async () => {
  await page.goto(`${pages.origin}/console/webhooks`);
  await page.getByRole('textbox', { name: 'URL' }).fill('https://hooks.example.com/gpu');
  await press('Add the endpoint');
  const secret = (await page.locator('.copy code').textContent()) ?? '';
  await page.getByRole('link', { name: 'https://hooks.example.com/gpu' }).click();
  await press('Send a test event');
  await expect.poll(() => deliver()).toBe(1);
  await page.getByText('Attempt 1: 204').waitFor({ timeout: 20_000 });
  const [{ headers = {}, body = '' } = {}] = outbound.requests;
  await page.getByText('Check a signature').click();
  await page.getByLabel('Raw body').fill(String(body));
  await page.getByLabel('Svc-Signature').fill(String(headers['svc-signature']));
  await page.getByLabel('Secret of the endpoint').fill(secret);
  await press('Check the signature');
  await page.getByText('The signature is right').waitFor();
  await page.getByLabel('Raw body').fill(`${String(body)} `);
  await press('Check the signature');
  await page.getByText('which the header does not have').waitFor();
  await page.getByText('The body, as it is sent').click();
  // The body is one long line, which scrolls inside of its box.
  const overhang = `document.documentElement.scrollWidth - document.documentElement.clientWidth`;
  expect(await page.evaluate(overhang)).toBe(0);
  await expectWell();
});

/** No loop runs in this world. */
async function deliver(): Promise<number> {
  await pages.api.world.rooms.webhooks.courier.run();
  return outbound.requests.length;
}

test('a model answers as it speaks, with the tokens and the cost of its receipt', async () => {
  await page.goto(`${pages.origin}/console/models`);
  await page.getByLabel('Message').fill('Say hello');
  await press('Send');
  await page.getByText('Hello there.', { exact: true }).waitFor();
  await page.locator('.stats').filter({ hasText: '6 + 3' }).filter({ hasText: '$0.0000027' }).waitFor();
  await expectWell();
});

test('a model makes an image in the playground, with the time that it took and the cost of its receipt', async () => {
  await page.goto(`${pages.origin}/console/models`);
  await page.getByRole('button', { name: 'Try acme/artist' }).click();
  await page.getByLabel('Size').selectOption('1024x768');
  await page.getByLabel('Prompt').fill('a red fox');
  const lines = page.locator('.cmd.long code');
  expect(await lines.first().textContent()).toContain('svc api POST /images/generations --body');
  await press('Make the image');
  await page.getByText(/^1 image in \d+ s, cost \$0\.02500001$/).waitFor();
  await page.getByRole('img', { name: 'a red fox' }).waitFor();
  const width = `(async () => { const image = document.querySelector('img.made'); await image.decode(); return image.naturalWidth; })()`;
  expect(await page.evaluate<number>(width)).toBe(1);
  const asked = upstream.asked.find(({ path }) => path.endsWith('/images/generations'));
  expect(asked?.body).toMatchObject({ prompt: 'a red fox', size: '1024x768' });
  await expectWell();
});

test('a model makes a video in the playground: its progress, its file, its length, its time and its cost', async () => {
  const { world } = pages.api;
  await page.goto(`${pages.origin}/console/models`);
  await page.getByRole('button', { name: 'Try acme/director' }).click();
  await page.getByLabel('Prompt', { exact: true }).fill('a red fox runs');
  await page.getByLabel('Seconds').fill('6');
  await press('Make the video');
  await page.locator('.turn .badge', { hasText: 'queued' }).waitFor();
  videos.usual = { status: 'in_progress', progress: 40 };
  await passes(1);
  const shown = page.locator('.turn').getByRole('progressbar');
  await expect.poll(() => shown.getAttribute('value')).toBe('40');
  await expectWell();
  for (const job of videos.jobs) Object.assign(job, { status: 'completed', progress: 100 });
  const film = page.waitForResponse((response) => response.url().endsWith('/content'));
  await passes(60);
  await page.locator('.turn .badge', { hasText: 'completed' }).waitFor({ timeout: 20_000 });
  expect([200, 206]).toContain((await film).status());
  expect((await film).headers()['content-type']).toBe('video/mp4');
  await page
    .getByText(/^6 s of video, made in (\d+ m )?\d+ s, cost \$0\.06\. The file is kept for 24 hours\.$/)
    .waitFor();
  await expectWell();

  /** Drives what comes due within the given seconds, and tells the page. */
  async function passes(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second += 1) {
      await world.clock.advance(1_000);
      await world.drive();
    }
    await world.rooms.live.tick();
  }
});

test('examples are uploaded, and a job trains with them within its budget, also if they are the oldest of 150 files', async () => {
  await page.goto(`${pages.origin}/console/files`);
  const content = Buffer.from(trainingLines(12));
  await page
    .locator('input[type=file]')
    .setInputFiles({ name: 'chats.jsonl', mimeType: 'text/jsonl', buffer: content });
  await press('Upload the file');
  await page.getByRole('rowheader', { name: 'chats.jsonl' }).waitFor();
  await expectWell();
  const { json } = await pages.api.call('GET', '/v1/files', { key: account.key });
  await copyFiles(pages.api.world.db, String(json.data?.[0]?.['id']), FURTHER_FILES);
  await page.goto(`${pages.origin}/console/fine-tuning`);
  const examples = page.getByLabel('Examples');
  await expect.poll(() => examples.locator('option').count()).toBe(FURTHER_FILES + 1);
  expect(await examples.locator('option').last().textContent()).toMatch(
    /^chats\.jsonl, 1\.\d kB, [\d:]+ UTC, …[0-9a-z]{8}$/,
  );
  await examples.selectOption({ index: FURTHER_FILES });
  const budget = page.getByLabel('Budget in dollars');
  await budget.fill('1');
  await press('Start the job');
  await expect.poll(() => budget.getAttribute('aria-invalid')).toBe('true');
  await budget.fill('6');
  // The job is made, but the browser does not learn it.
  const jobs = '**/v1/fine_tuning/jobs';
  await page.route(jobs, (route) => route.fetch().then(() => route.abort()), { times: 1 });
  await press('Start the job');
  await page.getByRole('alert').getByText('unreachable').waitFor();
  await press('Start the job');
  await page.getByText('$6.00 are held for it').waitFor();
  const made = await pages.api.call('GET', '/v1/fine_tuning/jobs', { key: account.key });
  expect(made.json.data).toHaveLength(1);
  await expectWell();
});

test('the balance shows what is held for the job, and the bill what the model has cost', async () => {
  await page.goto(`${pages.origin}/console/usage`);
  await page.locator('.stats').filter({ hasText: 'Held$6.00' }).waitFor();
  await page.getByRole('rowheader', { name: 'Requests to models acme/small' }).waitFor();
  await page.getByRole('rowheader', { name: 'Requests to models acme/artist' }).waitFor();
  await page.getByRole('rowheader', { name: 'acme/director' }).waitFor();
  await expectWell();
});

test('a job without a budget holds what its quote names, as its two lines do', async () => {
  await page.goto(`${pages.origin}/console/fine-tuning`);
  await page.getByLabel('Examples').selectOption({ index: FURTHER_FILES });
  const lines = page.locator('.cmd.long code');
  const budget = page.getByLabel('Budget in dollars');
  const shown = async (typed: string, count: number): Promise<string> => {
    await budget.fill(typed);
    await expect.poll(() => lines.count()).toBe(count);
    for (const line of await lines.allTextContents()) await pages.judge(line);
    return (await lines.allTextContents()).join('\n');
  };
  expect(await shown('7', 2)).toContain('budget');
  await shown('seven', 0);
  expect(await shown('', 2)).not.toContain('budget');
  await expectWell();
  const sent = page.waitForRequest((request) => request.method() === 'POST' && request.url().endsWith('/jobs'));
  await press('Start the job');
  expect(Object.keys((await sent).postDataJSON() as object)).not.toContain('svc');
  await page.getByText(/^The job was created\. \$\d+\.\d\d are held for it/).waitFor();
  await expectWell();
});

// It is the last one, because hours pass in it.
test('a delivery that a dead server has cost all attempts is retried by hand, and arrives', async () => {
  const { world } = pages.api;
  outbound.answer = async () => ({ status: 503 });
  await world.machine();
  await world.launch(account);
  for (const minutes of [0, 1, 6, 34, 133]) {
    await world.clock.advance(minutes * 60_000);
    await carryAll(world);
  }
  await page.goto(`${pages.origin}/console/webhooks`);
  await page.getByRole('link', { name: 'https://hooks.example.com/gpu' }).click();
  await page.getByText('Failed', { exact: true }).click();
  const row = page.getByRole('row').filter({ hasText: 'instance.creating' });
  await row.getByText('503, 5 of 5 failed').waitFor();
  await row.getByRole('button', { name: 'instance.creating' }).click();
  await page.getByText('No further attempt is planned').waitFor();
  await page.getByText('Attempt 5: 503').waitFor();
  await expectWell();
  outbound.answer = async () => ({ status: 204 });
  await press('Retry now');
  await page.getByText('Attempt 6 of 6').waitFor();
  await carryAll(world);
  await page.getByText('Attempt 6: 204').waitFor({ timeout: 20_000 });
  await expectWell();
});
