// The page of one machine for its supplier: the last day of each GPU and of its
// probes, what this machine alone earned, and the outages that it did not earn by.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CommunityEarnings } from '../../shared/api/community.ts';
import type { ApiAccount } from '../contract/api.ts';
import { bringMachine } from '../contract/suppliers.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';
import { gpuSample, metricsSample } from '../kit/samples.ts';

const HOUR_MS = 3_600_000;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let pages: ConsolePages;
let supplier: ApiAccount;
let page: Page;
let machineId: string;
let idleId: string;
let rentalId: string;

beforeAll(async () => {
  pages = await openConsolePages();
  const { world } = pages.api;
  supplier = await pages.api.account();
  await world.clock.advance(Date.now() - 6 * HOUR_MS - world.clock.now());
  machineId = await bringMachine(pages.api, supplier, { price_per_hour: 2.19 });
  const customer = await world.customer(100_000);
  rentalId = await world.launch(customer);
  await world.drive();
  await world.clock.advance(60_000);
  await world.start(rentalId);
  idleId = await bringMachine(pages.api, supplier);
  for (let hours = 0; hours < 4; hours += 1) {
    await world.clock.advance(HOUR_MS);
    await world.rooms.metering.tick(new AbortController().signal);
  }
  await pages.probe(60_000);
  world.probeAnswers.set(rentalId, DEAD);
  await pages.probe(15 * 60_000);
  world.probeAnswers.delete(rentalId);
  await pages.probe(60_000);
  page = await pages.signedIn(await addPerson(world, { orgId: supplier.orgId, role: 'owner' }));
});
afterAll(async () => pages.close());

async function show(id: string): Promise<void> {
  await page.goto(`${pages.origin}/console/machines/${id}`);
  await page.getByRole('region', { name: 'Outages', exact: true }).waitFor();
  await expect.poll(() => page.getByText('Reading…').count()).toBe(0);
}

test('the machine has its own earnings with their sum, which is that of the API', async () => {
  await show(machineId);
  expect(await page.getByRole('region', { name: 'Figures' }).innerText()).toContain('its agent is connected');
  const path = `/v1/community/earnings?machine_id=${machineId}`;
  const { of_machine: sum, entries } = CommunityEarnings.parse(
    (await pages.api.call('GET', path, { key: supplier.key })).json,
  );
  const table = page.getByRole('region', { name: 'Earnings, table' });
  const rows = table.getByRole('row').filter({ hasText: rentalId });
  expect(await rows.count()).toBe(entries.length);
  expect(entries.length).toBeGreaterThan(3);
  const total = table.getByRole('row').filter({ hasText: 'over its whole life' });
  expect(await total.textContent()).toContain(`$${Number(sum?.accrued).toFixed(4)}`);
  expect(Number(sum?.accrued)).toBeGreaterThan(4);
});

test('the outage has its time, its reason and what was not earned', async () => {
  const row = page.getByRole('region', { name: 'Outages, table' }).getByRole('row').last();
  expect(await row.textContent()).toMatch(
    /Out of reach for 15 m \d+ s, 1 rental.*failed SSH probes since.*\$0\.\d{4}$/,
  );
  await page.getByRole('img', { name: 'The last 24 hours: 1 outage' }).waitFor();
});

test('each GPU has its last day as a ribbon: the start is free, then it is charged but for the outage', async () => {
  const table = page.getByRole('region', { name: 'GPU by GPU, table' });
  const ribbon = table.getByRole('img', { name: /: 2\d\.\d % of the last 24 hours were charged$/ });
  await ribbon.waitFor();
  expect(await ribbon.locator('rect.f1').count()).toBe(2);
  expect(await ribbon.locator('rect[fill="url(#free)"]').count()).toBe(1);
  expect(await ribbon.locator('rect[fill="url(#out)"]').count()).toBe(1);
});

test('the probes of the last day are counted, and drawn by hour', async () => {
  await page
    .getByRole('region', { name: 'Probes' })
    .getByText(/^\d+ of \d+ probes good$/)
    .waitFor();
  const ribbon = page.getByRole('img', { name: /^The last 24 hours: \d+ of \d+ probes good$/ });
  expect(await ribbon.locator('rect.fwarn, rect.fok').count()).toBeGreaterThan(0);
});

test('a chart whose library is gone says so, with the newest figure in words', async () => {
  const { clock, rooms } = pages.api.world;
  for (const waitMs of [60_000, 0]) {
    rooms.fleetMetrics.take(machineId, metricsSample(clock.monotonicMs(), { gpus: [gpuSample('GPU-a')] }));
    await clock.advance(waitMs);
  }
  await rooms.fleetMetrics.tick();
  await page.route('**/console/assets/uPlot*', (route) => route.fulfill({ status: 404, body: '{}' }));
  await show(machineId);
  const text = await page.getByText('The chart cannot be drawn').first().innerText();
  expect(text).toMatch(/^Utilisation, now \d+%\. The chart cannot be drawn, .*: load the page again\.$/);
  expect(await axeFindings(page)).toEqual([]);
  await page.unrouteAll();
  await page.reload();
  await page.getByRole('img', { name: /^Utilisation, now \d+%$/ }).waitFor();
});

test('a machine is called like its host until its supplier names it, and again once the name is removed', async () => {
  await show(idleId);
  await page.getByRole('heading', { name: 'Machine host', exact: true }).waitFor();
  const rename = async (name: string): Promise<void> => {
    await page.getByRole('button', { name: 'Rename' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name').fill(name);
    expect(await axeFindings(page)).toEqual([]);
    for (const line of await dialog.locator('.cmd code').allTextContents()) await pages.judge(line);
    await dialog.getByRole('button', { name: 'Rename' }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  await rename('rack 7');
  await page.getByRole('heading', { name: 'Machine rack 7', exact: true }).waitFor();
  await page.getByRole('link', { name: 'Machines', exact: true }).first().click();
  await page.getByRole('link', { name: 'host', exact: true }).waitFor();
  await page.getByRole('link', { name: 'rack 7', exact: true }).click();
  await rename('');
  await page.getByRole('heading', { name: 'Machine host', exact: true }).waitFor();
});

test('a machine that nothing has run on says so', async () => {
  await show(idleId);
  await page.getByRole('heading', { name: 'Nothing earned yet' }).waitFor();
  await page.getByRole('heading', { name: 'No outage' }).waitFor();
  await page.getByRole('heading', { name: 'Nothing was rented' }).waitFor();
  await page.getByRole('heading', { name: 'No probe' }).waitFor();
  expect(await axeFindings(page)).toEqual([]);
});

test('a machine that has never enrolled asks for its enrolment alone, on the page of its supplier and of an operator', async () => {
  const { world } = pages.api;
  const body = { region: 'eu-west', price_per_hour: 2 };
  const made = await pages.api.call('POST', '/v1/community/machines', { key: supplier.key, body });
  const id = String((made.json['machine'] as { machine_id: string }).machine_id);
  const operator = await pages.signedIn(await addPerson(world, undefined, { isOperator: true, isStrong: true }));
  for (const [on, path] of [[page, 'machines'] as const, [operator, 'operate/fleet'] as const]) {
    await on.goto(`${pages.origin}/console/${path}/${id}`);
    await on.getByText('Install the agent on the host with the enrolment token.').waitFor();
    expect(await on.locator('.steps .wide').count()).toBe(1);
    expect(await on.locator('.steps .at', { hasText: 'waiting' }).count()).toBeGreaterThan(8);
    expect(await on.getByText('does not answer').count()).toBe(0);
    const figures = await on.getByRole('region', { name: 'Figures' }).innerText();
    expect(figures).not.toContain('no data rented');
    expect(figures).not.toContain('0 of 0 launches');
    expect(await axeFindings(on)).toEqual([]);
    const shots = process.env['CONSOLE_SHOTS'];
    if (shots !== undefined)
      await on.screenshot({ path: `${shots}/never-${path.replace('/', '-')}.png`, fullPage: true });
  }
});

test('the page of all earnings says by which rules they are paid', async () => {
  await page.goto(`${pages.origin}/console/earnings`);
  await page
    .getByText(/^A payout becomes due as soon as \$25\.00 are payable, once in each week from Monday on\./)
    .waitFor();
  await page.getByText(/There was none in this week yet\. \$\d+\.\d\d are missing\./).waitFor();
  expect(await axeFindings(page)).toEqual([]);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/earnings.png`, fullPage: true });
});

test('the list leaves out machines that are delisted, adds up what it shows, and finds machines by their words', async () => {
  const { key } = supplier;
  const gone = await bringMachine(pages.api, supplier, { name: 'gone' });
  await pages.api.call('DELETE', `/v1/community/machines/${gone}`, { key });
  await page.goto(`${pages.origin}/console/machines`);
  const rows = page.locator('tbody tr');
  await page.getByRole('rowheader', { name: '3 machines, 2 online' }).waitFor();
  expect(await rows.filter({ hasText: 'gone' }).count()).toBe(0);
  await page.getByText('All', { exact: true }).click();
  await rows.filter({ hasText: 'gone' }).waitFor();
  await page.getByRole('rowheader', { name: /^4 machines/ }).waitFor();
  await page.getByText('Off offer', { exact: true }).click();
  await page.getByRole('rowheader', { name: '1 machine, 0 online' }).waitFor();
  await page.getByText('In supply', { exact: true }).click();
  await page.getByLabel('Filter').fill(idleId);
  await page.getByRole('rowheader', { name: '1 machine, 1 online' }).waitFor();
  await page.getByLabel('Filter').fill('no such machine');
  await page.getByRole('heading', { name: 'No machine matches' }).waitFor();
  await page.getByLabel('Filter').fill('H100 SXM');
  await page.getByRole('rowheader', { name: '2 machines, 2 online' }).waitFor();
  expect(await axeFindings(page)).toEqual([]);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/machines.png`, fullPage: true });
});

test('the end of the offer is set and withdrawn, and the page says which is set', async () => {
  await show(idleId);
  const card = page.getByRole('region', { name: 'End of the offer' });
  const stored = async () =>
    (await pages.api.call('GET', `/v1/community/machines/${idleId}`, { key: supplier.key })).json['rentable_until'];
  await card.getByLabel('On offer until, in UTC').fill('2099-01-31T18:00');
  await card.getByRole('button', { name: 'Set the end' }).click();
  await card.getByText('31 Jan 2099 18:00 UTC').waitFor();
  expect(await stored()).toBe('2099-01-31T18:00:00.000Z');
  await card.getByLabel('On offer until, in UTC').fill('2020-01-31T18:00');
  await card.getByRole('button', { name: 'Set the end' }).click();
  await card.getByRole('alert').waitFor();
  expect(await stored()).toBe('2099-01-31T18:00:00.000Z');
  await card.getByLabel('On offer until, in UTC').fill('');
  await card.getByRole('button', { name: 'Offer it without an end' }).click();
  await card.getByText('none is set').waitFor();
  expect(await stored()).toBeNull();
});

test.each([
  { isPhone: false, isDark: false },
  { isPhone: false, isDark: true },
  { isPhone: true, isDark: false },
  { isPhone: true, isDark: true },
])('phone $isPhone, dark $isDark: the page fits, and its commands are taken', async ({ isPhone, isDark }) => {
  const shown = await (await pages.open({ isPhone, isDark })).newPage();
  await shown.context().addCookies(await page.context().cookies());
  await shown.goto(`${pages.origin}/console/machines/${machineId}`);
  await shown.getByText('over its whole life').waitFor();
  await shown.getByText('Out of reach').waitFor();
  await expect.poll(() => shown.getByText('Reading…').count()).toBe(0);
  expect(await axeFindings(shown)).toEqual([]);
  for (const line of await shown.locator('.cmd code').allTextContents()) await pages.judge(line);
  expect(await shown.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
  const shots = process.env['CONSOLE_SHOTS'];
  const file = `machine-${isPhone ? 'phone' : 'wide'}-${isDark ? 'dark' : 'light'}.png`;
  if (shots !== undefined) await shown.screenshot({ path: `${shots}/${file}`, fullPage: true });
  expect(pages.broken).toEqual([]);
});
