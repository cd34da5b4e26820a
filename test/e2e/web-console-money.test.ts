// The console in Chromium where money, webhooks and models are: a deposit is begun and followed, a webhook is inspected and its signature
// checked, a model answers with what was measured, and examples are uploaded and trained with.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseModels } from '../../control-plane/models/catalog/models.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { noteRead, offlineDeposits } from '../kit/deposits.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { modelsFile, tunableEntries } from '../kit/models.ts';
import { addPerson } from '../kit/people.ts';
import { scriptedOutbound } from '../kit/scripted-outbound.ts';
import { HELLO_EVENTS } from '../kit/stream-chunks.ts';
import type { ApiAccount } from '../contract/api.ts';
import { trainingLines } from '../contract/forms.ts';
import { carryAll } from '../control-plane/rental/webhooks/fixture.ts';

const outbound = scriptedOutbound();
let upstream: FakeUpstream;
let pages: ConsolePages;
let page: Page;
let account: ApiAccount;

beforeAll(async () => {
  upstream = await openFakeUpstream();
  upstream.usual = () => ({ events: HELLO_EVENTS, pauseMs: 20 });
  const entries = (JSON.parse(modelsFile(upstream.baseUrl)) as { models: object[] }).models;
  const models = parseModels(JSON.stringify({ models: [...entries, ...tunableEntries().slice(0, 1)] }), 'models.yaml');
  pages = await openConsolePages({ webhookOutbound: outbound, settings: { deposits: offlineDeposits(), models } });
  const { world } = pages.api;
  // The page counts down by the clock of the browser.
  await world.clock.advance(Date.now() - world.clock.now());
  await noteRead(world, 'base');
  account = await pages.api.account();
  const { orgId } = account;
  const { token } = await addPerson(world, { orgId, role: 'owner' }, { isStrong: true });
  const context = await pages.open();
  const url = pages.origin.replace('http:', 'https:');
  await context.addCookies([
    { name: '__Host-svc_session', value: token, url, secure: true, httpOnly: true, sameSite: 'Lax' },
  ]);
  page = await context.newPage();
});
afterAll(async () => {
  await pages.close();
  await upstream.close();
});

const press = (name: string): Promise<void> => page.getByRole('button', { name, exact: true }).click();
/** Nothing on the page hinders people with other senses, and nothing has broken. */
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

test('examples are uploaded, and a job trains with them within its budget', async () => {
  await page.goto(`${pages.origin}/console/files`);
  const content = Buffer.from(trainingLines(12));
  await page
    .locator('input[type=file]')
    .setInputFiles({ name: 'chats.jsonl', mimeType: 'text/jsonl', buffer: content });
  await press('Upload the file');
  await page.getByRole('rowheader', { name: 'chats.jsonl' }).waitFor();
  await expectWell();
  await page.goto(`${pages.origin}/console/fine-tuning`);
  const budget = page.getByLabel('Budget in dollars');
  await budget.fill('1');
  await press('Start the job');
  await expect.poll(() => budget.getAttribute('aria-invalid')).toBe('true');
  await budget.fill('6');
  await press('Start the job');
  await page.getByText('$6.00 are held for it').waitFor();
  await expectWell();
});

test('the balance shows what is held for the job, and the bill what the model has cost', async () => {
  await page.goto(`${pages.origin}/console/usage`);
  await page.locator('.stats').filter({ hasText: 'Held$6.00' }).waitFor();
  await page.getByRole('rowheader', { name: 'Requests to models' }).waitFor();
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
