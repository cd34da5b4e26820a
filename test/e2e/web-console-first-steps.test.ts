// The first minutes of a customer who signs up by themselves, in Chromium: each refusal leads on.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ApiAccount } from '../contract/api.ts';
import { addPerson } from '../kit/people.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { fleetModels } from '../kit/models.ts';

let pages: ConsolePages;
let page: Page;
beforeAll(async () => {
  pages = await openConsolePages({ settings: { models: fleetModels() } });
  await pages.api.world.machine();
  page = await (await pages.open()).newPage();
  await page.goto(`${pages.origin}/console`);
  await page.getByRole('button', { name: 'Create an account' }).click();
  await page.getByLabel('E-mail').fill('nina@example.com');
  await page.getByLabel('Your name').fill('Nina');
  await page.getByLabel('Organisation').fill('Nina Labs');
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Create the account' }).click();
  await page.getByRole('heading', { name: 'Nothing runs yet' }).waitFor();
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

async function launch(): Promise<void> {
  await page.goto(`${pages.origin}/console/launch`);
  await page.getByRole('radio', { name: /GB/ }).check();
  await page.getByRole('button', { name: /^Launch at/ }).click();
}

async function ask(): Promise<void> {
  await page.goto(`${pages.origin}/console/models`);
  await page.getByLabel('Message').fill('Say hello');
  await page.getByRole('button', { name: 'Send' }).click();
}

test.each([
  ['a launch', launch],
  ['a question to a model', ask],
])('%s without a balance is refused, and leads to the place that adds to it', async (_, act) => {
  await act();
  const refusal = page.getByRole('alert');
  await refusal.getByText('org_unfunded').waitFor();
  expect(await axeFindings(page)).toEqual([]);
  await refusal.getByRole('link', { name: 'Add to the balance' }).click();
  await page.getByRole('link', { name: 'Add funds' }).waitFor();
});

test('an installation that takes no stablecoins offers none', async () => {
  await page.goto(`${pages.origin}/console/deposits`);
  await page.getByText('This installation takes no stablecoins.').waitFor();
  expect(await page.getByRole('button', { name: 'Get an address' }).count()).toBe(0);
  await page.getByText('This installation takes no stablecoins, so none is listed.').waitFor();
  expect(await page.getByText('svc deposit create').count()).toBe(0);
  expect(await axeFindings(page)).toEqual([]);
});

describe('with a balance', () => {
  let owner: ApiAccount;
  let funded: Page;
  beforeAll(async () => {
    owner = await pages.api.account();
    funded = await pages.signedIn(await addPerson(pages.api.world, { orgId: owner.orgId, role: 'owner' }));
  });

  test('a launch says what is missing before it can be sent, and which port is none', async () => {
    await funded.goto(`${pages.origin}/console/launch`);
    await funded.getByRole('radio', { name: /GB/ }).check();
    const send = funded.getByRole('button', { name: /^Launch at/ });
    for (const [source, missing] of [
      ['Template', 'Choose a template to run.'],
      ['Own image', 'Name the image to run.'],
    ] as const) {
      await funded.getByRole('radio', { name: source }).check();
      await funded.getByText(missing).waitFor();
      expect(await send.isDisabled()).toBe(true);
    }
    await funded.getByLabel('Image', { exact: true }).fill('busybox');
    await funded.getByLabel('Ports').fill('8080 web');
    await funded.getByText(/--image busybox --port 8080\/http --port web$/).waitFor();
    await send.click();
    await funded.getByText('Ports (ports[1].port) must be a number').waitFor();
  });

  test.each([
    [1_440, 'H100 SXM 80 GB'],
    [390, 'H100 SXM 80 GB eu-west'],
  ])('at %d px, an offering is called %s', async (width, name) => {
    await funded.setViewportSize({ width, height: 900 });
    await funded.goto(`${pages.origin}/console/launch`);
    const offering = funded.getByRole('radio', { name, exact: true });
    await offering.first().waitFor();
    expect(await offering.first().locator('xpath=ancestor::label').textContent()).toBe('H100 SXM 80 GB eu-west');
    const shots = process.env['CONSOLE_SHOTS'];
    if (shots !== undefined) await funded.screenshot({ path: `${shots}/launch-${width}.png` });
    await funded.setViewportSize({ width: 1_440, height: 900 });
  });

  test('a person whose role may not launch is told so', async () => {
    const reader = await addPerson(pages.api.world, { orgId: owner.orgId, role: 'read-only' });
    const other = await pages.signedIn(reader);
    await other.goto(`${pages.origin}/console/launch`);
    await other.getByText('Your role may not launch.').waitFor();
    expect(await other.getByRole('button', { name: /^Launch/ }).isDisabled()).toBe(true);
  });

  test('an instance that still looks for its GPUs shows no price', async () => {
    const [, id] = [await pages.api.world.launch(owner), await pages.api.world.launch(owner)];
    await funded.goto(`${pages.origin}/console/instances/${id}`);
    await funded.getByText('known once it has its GPUs').waitFor();
  });
});
