// An operator resolves an outage in the console: a host dies, the outage stands on the overview and in the list, its held credit is released, the
// machine is suspended, and the customer's balance shows the credit.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import { findMachine } from '../../control-plane/fleet/supply/store.ts';
import { pageOfOutages } from '../../control-plane/money/credits/outages.ts';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/instances/quiet.ts';
import { addAuthenticator, axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { loseHost } from '../kit/machines.ts';

const NO_CREDITS = { orgCreditsUcents: 0n, supplierCreditsUcents: 0n, supplierPaymentsUcents: 0n };
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;
const PASSWORD = 'correct horse battery';

let pages: ConsolePages;
let page: Page;
let customer: Page;
let machineId: string;
let instanceId: string;

beforeAll(async () => {
  pages = await openConsolePages({ settings: { lossBounds: NO_CREDITS } });
  const { world } = pages.api;
  ({ machineId } = await world.machine({ gpus: 2, dollars: 100 }));
  const who = await world.customer(1_000_000);
  instanceId = await world.run(who);
  const person = { email: 'ada@example.com', name: 'Ada', isOperator: false } as const;
  const owner = await world.rooms.users.people.add({ ...person, member: { orgId: who.orgId, role: 'owner' } });
  const olga = { email: 'olga@example.com', name: 'Olga', isOperator: true, member: undefined } as const;
  const operator = await world.rooms.users.people.add(olga);
  customer = await signIn(owner.url);
  page = await signIn(operator.url);
  await addAuthenticator(page);
  await page.getByLabel('Name').fill('key');
  await page.getByRole('button', { name: 'Add a passkey' }).click();
  await page.getByRole('button', { name: 'I have kept them' }).click();
  await page.getByRole('link', { name: 'Outages' }).waitFor();
});
afterAll(async () => pages.close());

async function signIn(url: string): Promise<Page> {
  const opened = await (await pages.open()).newPage();
  await opened.goto(url);
  await opened.getByLabel('Password').fill(PASSWORD);
  await opened.getByRole('button', { name: 'Set the password and sign in' }).click();
  return opened;
}

async function show(path: string): Promise<void> {
  await page.goto(`${pages.origin}${path}`);
  await expect.poll(() => page.getByText('Reading…').count()).toBe(0);
}

async function checkLook(name: string): Promise<void> {
  expect(await axeFindings(page)).toEqual([]);
  for (const line of await page.locator('.cmd code').allTextContents()) await pages.judge(line);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
}

/** Twenty hours of links, with a silence and a restart, up to now. */
async function noteMinutes(): Promise<void> {
  const nowMs = pages.api.world.clock.now();
  await pages.api.world.db.tx('test.minutes', async (tx) => {
    for (let back = 1_200; back > 0; back -= 1) {
      const minuteMs = Math.floor(nowMs / 60_000) * 60_000 - back * 60_000;
      const linked = back > 700 && back < 720 ? 1 : 2;
      if (back < 900 && back > 890) continue;
      await tx.run(sql`insert into service_minutes (minute_ms, listed, linked) values (${minuteMs}, 2, ${linked})`);
    }
    for (const [driver, done] of Object.entries({ instances: 94, videos: 12, deposits: 0 }))
      await tx.run(
        sql`insert into work_minutes (minute_ms, kind, process, done) values (${nowMs - 60_000}, ${driver}, 'prc_1', ${done})`,
      );
    for (let n = 0; n < 60; n += 1) {
      const ending = n === 0 ? 'upstream_failed' : 'completed';
      const times = sql`${nowMs - n * 1_000 - 300}, ${nowMs - n * 1_000}`;
      await tx.run(sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, state, held_ucents, charged_ucents, opened_ms,
              closed_ms, ending)
            values (${`r${n}`}, 'o', 'k', 'r', ${n % 3 === 0 ? 'qwen/qwen3-32b' : 'meta/llama-4-70b-instruct'}, 'serverless', 'x', 0, 0, ${times}, ${ending})`);
    }
  });
}

const figure = (name: string) => page.getByLabel('Figures').locator('div', { hasText: name }).last();

/** The balance in the frame of the customer's console, in cents. */
async function balanceOf(): Promise<number> {
  await customer.goto(`${pages.origin}/console/instances`);
  const text = (await customer.locator('.gauge b').textContent()) ?? '';
  return Math.round(Number(text.replaceAll(/[$,]/g, '')) * 100);
}

test('a host dies: the outage stands on the overview, in the list, and on the page of the machine', async () => {
  await pages.probe(QUIET_AFTER_START_MS);
  await show('/console/operate/overview');
  await expect.poll(() => figure('Outages now').textContent()).toContain('0 rentals');
  pages.api.world.probeAnswers.set(instanceId, DEAD);
  await pages.probe(60_000);
  await show('/console/operate/overview');
  await expect.poll(() => figure('Outages now').textContent()).toContain('1 rental,');
  await noteMinutes();
  await show('/console/operate/overview');
  await page.getByRole('img', { name: 'The last 24 hours: 1 outage, at most 1 machine without a link' }).waitFor();
  expect(await page.getByRole('row').filter({ hasText: 'instances' }).last().textContent()).toMatch(/94$/);
  const models = page.getByRole('region', { name: 'Requests to models, table' });
  expect(await models.getByRole('row').last().textContent()).toMatch(/qwen3-32b0\.07300 ms5\.00 %$/);
  expect(await figure('Rented').textContent()).toMatch(/GPUs?on the market now: \d+, rented or not; \$[\d.]+\/h$/);
  await checkLook('overview-outage');
  await page.getByRole('link', { name: 'Outages' }).click();
  await page.getByText('Now', { exact: true }).click();
  const row = page.getByRole('row').filter({ hasText: machineId });
  await row.waitFor();
  await checkLook('outages');
  await row.getByRole('link').first().click();
  await page.getByText('It lasts.').waitFor();
  await page.getByText('failed SSH probes').first().waitFor();
  await page.getByRole('row').filter({ hasText: instanceId }).waitFor();
  await checkLook('outage-lasts');
  await page.getByRole('link', { name: machineId.slice(-8), exact: true }).click();
  await page.getByRole('heading', { name: `Machine ${machineId.slice(-8)}` }).waitFor();
  await page.getByRole('cell', { name: 'unreachable' }).waitFor();
  await checkLook('machine');
});

test('the operator suspends the machine', async () => {
  await page.getByRole('button', { name: `Suspend ${machineId}` }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Suspend' }).click();
  await page.getByText('Nothing of it is on offer: The operator has suspended it.').waitFor();
  expect((await findMachine(pages.api.world.db.read, machineId))?.status).toBe('suspended');
});

test('the host comes back: the operator releases what was held, and the balance of the customer shows it', async () => {
  pages.api.world.probeAnswers.delete(instanceId);
  await pages.probe(12_000);
  await show('/console/operate/overview');
  const waiting = page.getByRole('row').filter({ hasText: 'waits for your decision' });
  await waiting.waitFor();
  expect(await figure('Outages now').textContent()).toContain('0 rentals');
  await checkLook('overview-waits');
  const before = await balanceOf();
  await page.getByRole('link', { name: 'Outages' }).click();
  await page.getByRole('row').filter({ hasText: machineId }).getByRole('link').first().click();
  await page.getByText('1 credit to decide.').waitFor();
  const held = (await page.getByText(/^\$[\d.]+ held$/).textContent()) ?? '';
  await page.getByRole('button', { name: /^Release/ }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Note').fill('the host was dead');
  await checkLook('outage-decision');
  await dialog.getByRole('button', { name: 'Release' }).click();
  await page.getByText(held.replace('held', 'released')).waitFor();
  await page.getByText('It is over.').waitFor();
  const cents = Math.round(Number(held.replace(/^\$([\d.]+) held$/, '$1')) * 100);
  expect(cents).toBeGreaterThan(100);
  // Both amounts are shown in whole cents.
  expect(Math.abs((await balanceOf()) - before - cents)).toBeLessThanOrEqual(1);
  await show('/console/operate/overview');
  await page.getByText('Nothing waits for an operator.').waitFor();
  expect(pages.broken).toEqual([]);
});

test('the list of rentals leads to the explanation of a placement', async () => {
  await show('/console/operate/rentals');
  await page.getByRole('link', { name: instanceId }).click();
  await page.getByRole('heading', { name: `Why ${instanceId} got its machine` }).waitFor();
  await page.getByText('No offering fits now.').waitFor();
  await page.getByRole('row').filter({ hasText: 'GPU type is H100_SXM' }).waitFor();
  await page.getByText('No change of one point helps.').waitFor();
  await checkLook('placement-nothing');
  await pages.api.world.machine({ gpus: 4, dollars: 3 });
  await page.getByRole('button', { name: 'Explain again' }).click();
  await page.getByText('1 offering fits now.').waitFor();
  expect(await page.getByRole('region', { name: 'Ranked candidates, table' }).textContent()).toContain('$3.00');
  await checkLook('placement');
  expect(pages.broken).toEqual([]);
});

test('a machine whose agent is connected says so, and one whose agent is away says when it was heard', async () => {
  const { world } = pages.api;
  const link = page.getByRole('region', { name: 'Figures' });
  await page.goto(`${pages.origin}/console/operate/fleet/${machineId}`);
  await link.getByText('its agent is connected').waitFor();
  const away = await world.machine();
  await loseHost(world, away.machineId);
  await page.goto(`${pages.origin}/console/operate/fleet/${away.machineId}`);
  await link.getByText(/^(last|never) heard/).waitFor();
  expect(await link.getByText('its agent is connected').count()).toBe(0);
});

test.each([
  ['light', false],
  ['dark', true],
])('the pages fit a phone, %s', async (name, isDark) => {
  const phone = await (await pages.open({ isPhone: true, isDark })).newPage();
  await phone.context().addCookies(await page.context().cookies());
  const all = { machineId: undefined, isOpen: false };
  const [outage] = await pageOfOutages(pages.api.world.db.read, all, { count: 1 });
  const shown = ['overview', 'outages', `outages/${outage?.id}`, `fleet/${machineId}`, `rentals/${instanceId}`];
  for (const path of shown) {
    await phone.goto(`${pages.origin}/console/operate/${path}`);
    await expect.poll(() => phone.getByText('Reading…').count()).toBe(0);
    await phone.locator('main .card').first().waitFor();
    expect(await phone.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
    expect(await axeFindings(phone)).toEqual([]);
    const shots = process.env['CONSOLE_SHOTS'];
    const file = `phone-${name}-${path.replaceAll('/', '_').slice(0, 20)}.png`;
    if (shots !== undefined) await phone.screenshot({ path: `${shots}/${file}`, fullPage: true });
  }
});
