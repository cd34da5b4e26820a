// The list of instances: what each has spent, equal to its bill, and its last 24 hours as a ribbon. On a large screen and a phone, light and dark.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { InstanceBill } from '../../shared/api/instance-bill.ts';
import type { ApiAccount } from '../contract/api.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';

const HOUR_MS = 3_600_000;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;

let pages: ConsolePages;
let account: ApiAccount;
let page: Page;
const ids: Record<string, string> = {};

beforeAll(async () => {
  pages = await openConsolePages();
  const { world } = pages.api;
  account = await pages.api.account();
  await world.clock.advance(Date.now() - 12 * HOUR_MS - world.clock.now());
  await world.machine({ gpus: 4, dollars: 2.19 });
  const run = async (name: string): Promise<string> => {
    const id = await world.launch(account, { name });
    await world.clock.advance(4 * 60_000);
    await world.start(id);
    ids[name] = id;
    return id;
  };
  const ended = await run('sweep-030');
  await world.clock.advance(4 * HOUR_MS);
  await world.end(account, ended);
  await run('llama-serve');
  await world.clock.advance(2 * HOUR_MS);
  const failed = await run('train-vit-l');
  await world.clock.advance(2 * HOUR_MS);
  await pages.probe(60_000);
  world.probeAnswers.set(failed, DEAD);
  await pages.probe(600_000);
  world.probeAnswers.delete(failed);
  await pages.probe(60_000);
  const dead = await run('notebook-2');
  await world.clock.advance(Date.now() - 120_000 - world.clock.now());
  world.probeAnswers.set(dead, DEAD);
  await pages.probe(120_000);
  ids['eval-nightly'] = await world.launch(account, { name: 'eval-nightly' });
  page = await pages.signedIn(await addPerson(world, { orgId: account.orgId, role: 'owner' }));
});
afterAll(async () => pages.close());

const rowOf = (name: string) => page.getByRole('row').filter({ hasText: name });

async function spentBy(name: string): Promise<string> {
  const cell = rowOf(name).locator('td').last();
  await expect.poll(() => cell.textContent()).toMatch(/^\$/);
  return (await cell.textContent()) ?? '';
}

async function billed(name: string): Promise<string> {
  const { json } = await pages.api.call('GET', `/v1/instances/${ids[name]}/bill`, { key: account.key });
  return `$${Number((json as unknown as InstanceBill).totals.cost).toFixed(2)}`;
}

test('each row says what was spent, which is what the bill says, and the last row has their sum', async () => {
  await page.goto(`${pages.origin}/console/instances`);
  const names = ['sweep-030', 'llama-serve', 'train-vit-l', 'notebook-2', 'eval-nightly'];
  for (const name of names) expect(await spentBy(name)).toBe(await billed(name));
  expect(await spentBy('eval-nightly')).toBe('$0.00');
  const { json } = await pages.api.call('GET', '/v1/instance-costs', { key: account.key });
  const sum = (json['data'] as { cost: string }[]).reduce((total, { cost }) => total + Number(cost), 0);
  expect(await spentBy('Billing now: 2 of 4 active')).toBe(`$${sum.toFixed(2)}`);
});

test('the ribbon of a row says in words what was charged, starting, and not charged', async () => {
  const ribbonOf = (name: string) => rowOf(name).getByRole('img').getAttribute('aria-label');
  expect(await ribbonOf('train-vit-l')).toMatch(
    /hours: \d+ h \d+ m charged, 4 m \d+ s starting, 1?\d m \d+ s not charged$/,
  );
  expect(await ribbonOf('sweep-030')).toMatch(/hours: \d+ h \d+ m charged, 4 m \d+ s starting$/);
  expect(await ribbonOf('eval-nightly')).toMatch(/hours: \d+ s starting$|hours: nothing$/);
});

test.each([1_024, 1_440])('the GPUs and the region of a row stand in one line each at %d px', async (width) => {
  await page.setViewportSize({ width, height: 900 });
  await page.goto(`${pages.origin}/console/instances`);
  const cell = rowOf('llama-serve').getByRole('cell').nth(1);
  const lineHeight = 1.43 * 16;
  for (const text of ['1 × H100 SXM', 'eu-west'])
    expect((await cell.getByText(text, { exact: true }).boundingBox())?.height).toBeLessThan(lineHeight);
  const cut = await page.evaluate(
    `(() => { const table = document.querySelector('.scroll'); return table.scrollWidth - table.clientWidth; })()`,
  );
  expect(cut).toBe(0);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/instances-${width}.png`, fullPage: true });
});

test('the badge of an instance that starts turns, but not for a person who asks for less motion', async () => {
  const moving = () => page.evaluate<number>('document.getAnimations().length');
  await page.emulateMedia({ reducedMotion: 'no-preference' });
  expect(await moving()).toBeGreaterThan(0);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  expect(await moving()).toBe(0);
});

test('an instance that recovers is read again as soon as the service says so', async () => {
  const { world } = pages.api;
  const before = await rowOf('notebook-2').locator('td').last().textContent();
  world.probeAnswers.delete(ids['notebook-2'] ?? '');
  await pages.probe(12_000);
  await world.clock.advance(HOUR_MS);
  const read = page.waitForResponse((response) => response.url().includes('/v1/instance-costs'));
  await world.rooms.live.tick();
  await rowOf('notebook-2').getByText('running').waitFor();
  // The launch that still waits may change at the same time. Nothing else has.
  const asked = new URL((await read).url()).searchParams.get('instance_ids')?.split(',');
  expect(asked).toContain(ids['notebook-2']);
  expect([ids['notebook-2'], ids['eval-nightly']]).toEqual(expect.arrayContaining(asked ?? []));
  await expect.poll(() => rowOf('notebook-2').locator('td').last().textContent()).not.toBe(before);
});

describe.each([
  { isPhone: false, isDark: false },
  { isPhone: false, isDark: true },
  { isPhone: true, isDark: false },
  { isPhone: true, isDark: true },
])('phone $isPhone, dark $isDark', ({ isPhone, isDark }) => {
  test('the list fits, axe-core finds nothing, and the service takes the commands that it shows', async () => {
    const shown = await (await pages.open({ isPhone, isDark })).newPage();
    await shown.context().addCookies(await page.context().cookies());
    await shown.goto(`${pages.origin}/console/instances`);
    await shown.getByRole('row').filter({ hasText: 'llama-serve' }).getByText(/^\$\d/).last().waitFor();
    await expect.poll(() => shown.getByText('…', { exact: true }).count()).toBe(0);
    expect(await axeFindings(shown)).toEqual([]);
    for (const line of await shown.locator('.cmd code').allTextContents()) await pages.judge(line);
    expect(await shown.evaluate('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0);
    const shots = process.env['CONSOLE_SHOTS'];
    const file = `instances-${isPhone ? 'phone' : 'wide'}-${isDark ? 'dark' : 'light'}.png`;
    if (shots !== undefined) await shown.screenshot({ path: `${shots}/${file}`, fullPage: true });
  });
});

test('a batch job whose program failed looks different from one that ended well, and its page has the image', async () => {
  const { world } = pages.api;
  await world.machine({ gpus: 2, dollars: 2.19 });
  const runJob = async (name: string, code: number): Promise<void> => {
    const id = await world.launch(account, {
      name,
      image: 'busybox',
      cmd: ['train', '--fast'],
      env: { TOKEN: 'secret', EPOCHS: '3' },
      requirements: { min_vram_gb: 40 },
      auto_terminate_on_exit: true,
    });
    await world.drive();
    await world.start(id);
    const exit = { host_key: 'ssh-ed25519 AAAA', main_exit: { code, signal: null } };
    await world.observe(id, { phase: 'running', ...exit });
    await world.drive();
    await world.clock.advance(60_000);
    await world.drive();
    await world.observe(id, { phase: 'stopped', ...exit });
    await world.drive();
  };
  await runJob('job-good', 0);
  await runJob('job-bad', 3);
  await page.setViewportSize({ width: 1_440, height: 900 });
  await page.goto(`${pages.origin}/console/instances`);
  await rowOf('job-good').getByText('terminated', { exact: true }).waitFor();
  await rowOf('job-bad').getByText('terminated, exit code 3', { exact: true }).waitFor();
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/jobs.png`, fullPage: true });
  await page.getByRole('link', { name: 'job-bad' }).click();
  await page.getByText('terminated, exit code 3', { exact: true }).waitFor();
  await page.getByText(/^(.*\/)?busybox(:latest)?@sha256:[0-9a-f]{64}$/).waitFor();
  await page
    .getByText(/^The main process exited with code 3; counts from \d\d:\d\d:\d\d$/)
    .first()
    .waitFor();
  expect(await axeFindings(page)).toEqual([]);
  if (shots !== undefined) await page.screenshot({ path: `${shots}/job-bad.png`, fullPage: true });
});

test('an ended instance is launched again with what its launch has asked for, and filters that no offering meets are named', async () => {
  await page.getByRole('link', { name: 'Launch again' }).click();
  await page.getByText('The form is filled in like job-bad.').waitFor();
  await page.getByText('add what the form could not take over: the values of the variables.').waitFor();
  expect(await page.getByLabel('Image', { exact: true }).inputValue()).toBe('busybox');
  expect(await page.getByLabel('VRAM per GPU').inputValue()).toBe('40');
  expect(await page.getByRole('textbox', { name: 'Variables' }).inputValue()).toBe('TOKEN=\nEPOCHS=');
  expect(await page.getByLabel('GPU type').inputValue()).toBe('H100_SXM');
  expect(await page.getByLabel('Stop by itself when the program has ended').isChecked()).toBe(true);
  await page
    .getByRole('radio', { name: /^H100 SXM/ })
    .first()
    .waitFor();
  expect(await axeFindings(page)).toEqual([]);
  const shots = process.env['CONSOLE_SHOTS'];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/again.png`, fullPage: true });
  await page.getByLabel('VRAM per GPU').selectOption('141');
  await page.getByText(/^Of 2 offerings: 2 under 141 GB of VRAM\.$/).waitFor();
  if (shots === undefined) return;
  await page.setViewportSize({ width: 390, height: 844 });
  await page.screenshot({ path: `${shots}/again-phone.png`, fullPage: true });
});

test('a host that leaves tomorrow can be chosen as soon as the launch ends before that', async () => {
  const { world } = pages.api;
  const { orgId, machineId } = await world.machine({ gpu: { name: 'NVIDIA L40S', memory_mib: 46_068 } });
  await world.db.tx('leave', async (tx) => {
    await tx.lock('machine', machineId);
    await world.rooms.supply.change(tx, orgId, machineId, { rentable_until_ms: world.clock.now() + 24 * HOUR_MS });
  });
  await page.goto(`${pages.origin}/console/launch`);
  const leaving = page.getByRole('radio', { name: /^L40S/ });
  await leaving.waitFor();
  expect(await leaving.isDisabled()).toBe(true);
  await page.getByLabel('Stop by itself after, hours').fill('2');
  await expect.poll(() => leaving.isEnabled()).toBe(true);
});

test('no page has broken the policy, thrown an error or left the origin', () => {
  expect(pages.broken).toEqual([]);
});
