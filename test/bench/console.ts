// How long the console's long lists take to answer a press of a key or a button, in Chromium: 5,000 instances and 2,000 machines against the same
// screens with 50 rows, and against the 200 ms after which people notice that they wait.
import type { Page } from 'playwright-core';
import { buildConsole } from '../../installer/console.ts';
import type { ApiAccount } from '../contract/api.ts';
import { type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';
import { copyInstances, copyMachines } from '../kit/long-lists.ts';
import { installMissing } from '../kit/setup.ts';
import { openMigrated } from './database.ts';
import { median, percentile, report } from './measure.ts';

const INSTANCES = 5_000;
const MACHINES = 2_000;
const FEW = 50;
const ROUNDS = 3;
/** At or below this, a page feels immediate (the bound of "good" for the metric Interaction to Next Paint). */
const BOUND_MS = 200;
/** The browser does not report shorter ones. */
const SHORTEST_MS = 16;

/** What the page tells of interactions: the longest event of each, from the press to the next painted frame. */
const OBSERVE = `{
  const longest = new Map();
  new PerformanceObserver((list) => {
    for (const { interactionId, duration } of list.getEntries())
      if (interactionId > 0) longest.set(interactionId, Math.max(longest.get(interactionId) ?? 0, duration));
  }).observe({ type: 'event', durationThreshold: ${SHORTEST_MS}, buffered: true });
  window.interactions = () => [...longest.values()];
}`;

export async function benchConsole(): Promise<void> {
  const missing = installMissing(['chromium'], console.log);
  if (missing.length > 0) return console.log(`console: nothing is measured, ${missing.join(', ')} is missing here`);
  await buildConsole();
  const few = await measure(FEW, FEW);
  const many = await measure(INSTANCES, MACHINES);
  for (const [index, rows] of [INSTANCES, MACHINES].entries()) {
    const [ours, peer] = [many[index], few[index]];
    if (ours === undefined || peer === undefined) throw new Error('a list was not measured');
    const what = `console, ${rows.toLocaleString('en-US')} ${index === 0 ? 'instances' : 'machines'}`;
    report({ what: `${what}, all read`, ours: ours.readMs, peer: peer.readMs, peerName: `${FEW} rows`, unit: 'ms' });
    const p75 = { what: `${what}, p75 of interactions`, ours: ours.p75Ms, unit: 'ms' };
    report({ ...p75, peer: peer.p75Ms, peerName: `${FEW} rows` });
    report({ ...p75, peer: BOUND_MS, peerName: 'the bound', target: { rule: 'at most', ratio: 1 } });
  }
}

interface Figures {
  /** The time from the address to the last page of the list. */
  readMs: number;
  p75Ms: number;
}

/** The figures of the instances, then of the machines. */
async function measure(instances: number, machines: number): Promise<[Figures, Figures]> {
  const pages = await openConsolePages({ openDb: () => openMigrated(':memory:') });
  try {
    const account = await fill(pages, { instances, machines });
    const page = await pages.signedIn(await addPerson(pages.api.world, { orgId: account.orgId, role: 'owner' }));
    await page.addInitScript(OBSERVE);
    const onInstances = await rounds(page, { url: `${pages.origin}/console/instances`, rows: instances }, async () => {
      const find = page.getByPlaceholder('Filter by name, id or GPU');
      await find.pressSequentially(`run ${instances - 1}`, { delay: 60 });
      await find.fill('');
      for (const shown of ['Active', 'All', 'Recent']) await page.getByText(shown, { exact: true }).click();
    });
    const onMachines = await rounds(page, { url: `${pages.origin}/console/machines`, rows: machines }, async () => {
      await page.getByRole('button', { name: 'Add a machine' }).click();
      await page.getByLabel('Region').pressSequentially('eu-west', { delay: 60 });
    });
    return [onInstances, onMachines];
  } finally {
    await pages.close();
  }
}

/** Interactions of the screen, with those that all lists have: more rows, into a row, and back. */
async function rounds(
  page: Page,
  { url, rows }: { url: string; rows: number },
  work: () => Promise<void>,
): Promise<Figures> {
  const [readsMs, spentMs]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round += 1) {
    const startMs = performance.now();
    await page.goto(url);
    await page
      .locator('tbody tr')
      .nth(FEW - 1)
      .waitFor();
    if (rows > FEW) await page.getByText(`100 of ${rows.toLocaleString('en-US')}`, { exact: true }).waitFor();
    readsMs.push(performance.now() - startMs);
    const before = await presses(page);
    await work();
    const more = page.getByRole('button', { name: 'Show more' });
    for (let i = 0; i < 5 && (await more.count()) > 0; i += 1) await more.click();
    await page.locator('tbody a').first().click();
    await page.locator('.crumb a').first().click();
    await page.locator('tbody tr').first().waitFor();
    await page.waitForTimeout(200);
    const reported = await page.evaluate<number[]>('window.interactions()');
    const all = (await presses(page)) - before;
    spentMs.push(...reported, ...Array.from({ length: Math.max(0, all - reported.length) }, () => SHORTEST_MS));
  }
  return { readMs: median(readsMs), p75Ms: percentile(spentMs, 0.75) };
}

/** How many interactions the page has had. */
function presses(page: Page): Promise<number> {
  return page.evaluate<number>('performance.interactionCount');
}

async function fill(pages: ConsolePages, counts: { instances: number; machines: number }): Promise<ApiAccount> {
  const { world } = pages.api;
  const account = await pages.api.account();
  await world.clock.advance(Date.now() - world.clock.now());
  await world.machine();
  await copyInstances(world.db, await world.run(account), counts.instances - 1);
  const { machine } = await world.db.tx('bench.machine', async (tx) => {
    await world.rooms.supply.registerSupplier(tx, account.orgId);
    const declared = { gpuCount: null, gpuType: null, vramPerGpuGb: null, region: 'eu-west' };
    return world.rooms.supply.registerMachine(tx, account.orgId, {
      ...declared,
      priceUcentsPerHour: 200_000_000n,
      tier: 'on_demand',
    });
  });
  await copyMachines(world.db, machine.id, counts.machines - 1);
  return account;
}
