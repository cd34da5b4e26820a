// What a person has typed in the console, in Chromium, while their session ends: it stands in its form again after the sign-in, for this person only.
import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { noteRead, offlineDeposits } from '../kit/deposits.ts';
import { fleetModels } from '../kit/models.ts';
import { type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson, type Person } from '../kit/people.ts';

let pages: ConsolePages;
let ada: Person;
let bob: Person;
let page: Page;
beforeAll(async () => {
  pages = await openConsolePages({ settings: { models: fleetModels(), deposits: offlineDeposits() } });
  await noteRead(pages.api.world, 'base');
  const { orgId, key } = await pages.api.account();
  await pages.api.call('POST', '/v1/community/supplier', { key });
  [ada, bob] = [await addOwner(orgId), await addOwner(orgId)];
  await pages.api.world.machine();
});
beforeEach(async () => {
  page = await pages.signedIn(ada);
});
afterEach(async () => {
  await page.context().close();
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

const addOwner = (orgId: string): Promise<Person> =>
  addPerson(pages.api.world, { orgId, role: 'owner' }, { isStrong: true, isOperator: true });

/** The service takes the session no longer, and `act` makes the page notice that. */
async function endSession(act: () => Promise<void>): Promise<void> {
  await page.route('**/v1/**', (route) =>
    route.fulfill({ status: 401, json: { code: 'unauthorized', detail: 'It ended.' } }),
  );
  await act();
  await page.getByRole('heading', { name: 'Sign in', exact: true }).waitFor();
  await page.unrouteAll();
}

/** The browser gets the session of this person. Resolves with what the service says about it. */
async function takeSession(person: Person): Promise<unknown> {
  const url = pages.origin.replace('http:', 'https:');
  await page
    .context()
    .addCookies([
      { name: '__Host-svc_session', value: person.token, url, secure: true, httpOnly: true, sameSite: 'Lax' },
    ]);
  return (await pages.api.call('GET', '/v1/auth/session', { as: person })).json;
}

/** Signs this person in on the page that asks for it. */
async function signIn(person: Person): Promise<void> {
  const json = await takeSession(person);
  await page.route('**/v1/auth/sign-in', (route) => route.fulfill({ json }));
  await page.getByLabel('E-mail').fill(person.email);
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('heading', { name: 'Sign in', exact: true }).waitFor({ state: 'detached' });
  await page.unrouteAll();
}

/** Loads the page again, without a session. */
async function loadSignedOut(): Promise<void> {
  await page.context().clearCookies();
  await page.reload();
  await page.getByRole('heading', { name: 'Sign in', exact: true }).waitFor();
}

const variables = () => page.getByLabel('Variables');
const launch = () => page.getByRole('button', { name: /^Launch at/ }).click();
/** What the tab keeps beyond the page that is shown. */
const kept = () =>
  page.evaluate<string>('JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + location.href');

async function fillLaunch(): Promise<void> {
  await page.goto(`${pages.origin}/console/launch`);
  await page.getByRole('radio', { name: /GB/ }).first().check();
  await page.getByRole('radio', { name: 'Own image' }).check();
  await page.getByLabel('Image', { exact: true }).fill('ghcr.io/acme/train:3');
  await variables().fill('HF_TOKEN=hf_secret');
}

async function expectLaunch(env: string): Promise<void> {
  await expect.poll(() => variables().inputValue()).toBe(env);
  expect(await page.getByLabel('Image', { exact: true }).inputValue()).toBe('ghcr.io/acme/train:3');
  expect(await page.getByRole('radio', { name: /GB/ }).first().isChecked()).toBe(true);
}

test('a launch that is filled in while the session ends stands in its form again after the sign-in', async () => {
  await fillLaunch();
  await endSession(launch);
  expect(await kept()).toContain('ghcr.io/acme/train:3');
  expect(await kept()).not.toContain('hf_secret');
  await signIn(ada);
  await expectLaunch('HF_TOKEN=hf_secret');
  expect(await kept()).not.toContain('ghcr.io/acme/train:3');
});

test('a launch stands in its form again if the page is loaded again, and asks for the values of its variables', async () => {
  await fillLaunch();
  await loadSignedOut();
  expect(await kept()).not.toContain('hf_secret');
  await signIn(ada);
  await expectLaunch('HF_TOKEN=');
  await page.getByText('Type the values of the variables: they may be secrets, so they are not kept.').waitFor();
  expect(await page.getByRole('button', { name: /^Launch at/ }).isDisabled()).toBe(true);
  await variables().fill('HF_TOKEN=hf_secret');
  expect(await page.getByRole('button', { name: /^Launch at/ }).isDisabled()).toBe(false);
});

test('a launch stands in its form again after a single sign-on, which leaves the console', async () => {
  await page.route('**/v1/auth/methods', (route) =>
    route.fulfill({ json: { sign_up: 'closed', single_sign_on: true } }),
  );
  await fillLaunch();
  await loadSignedOut();
  const json = await takeSession(ada);
  // The provider sends the browser back at once.
  await page.route('**/v1/auth/oidc/begin', (route) =>
    route.fulfill({ json: { url: `${pages.origin}/oidc?code=1`, login: 'sealed' } }),
  );
  await page.route('**/v1/auth/oidc/finish', (route) => route.fulfill({ json }));
  const finished = page.waitForRequest('**/v1/auth/oidc/finish');
  await page.getByRole('button', { name: 'Single sign-on' }).click();
  expect((await finished).postDataJSON()).toEqual({ login: 'sealed', query: 'code=1' });
  await expectLaunch('HF_TOKEN=');
});

test('another person who signs in finds nothing of it', async () => {
  await fillLaunch();
  await endSession(launch);
  await signIn(bob);
  await page.getByRole('radio', { name: 'Own image' }).check();
  expect(await variables().inputValue()).toBe('');
  expect(await kept()).not.toContain('ghcr.io/acme/train:3');
});

test('a sign-out deletes what was typed', async () => {
  await fillLaunch();
  await page.getByRole('button', { name: '▾' }).click();
  await page.route('**/v1/auth/sign-out', (route) => route.fulfill({ status: 204 }));
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in', exact: true }).waitFor();
  expect(await kept()).not.toContain('ghcr.io/acme/train:3');
  await signIn(ada);
  expect(await variables().inputValue()).toBe('');
});

test('a question that the ended session refuses stands in its field again, at the chosen model', async () => {
  await page.goto(`${pages.origin}/console/models`);
  await page.getByLabel('System, optional').fill('Be brief.');
  await page.getByLabel('Message').fill('Say hello');
  await page.getByLabel('Max tokens').fill('64');
  await endSession(() => page.getByRole('button', { name: 'Send' }).click());
  await signIn(ada);
  await expect.poll(() => page.getByLabel('Message').inputValue()).toBe('Say hello');
  expect(await page.getByLabel('System, optional').inputValue()).toBe('Be brief.');
  expect(await page.getByLabel('Max tokens').inputValue()).toBe('64');
});

const press = (name: string): Promise<void> => page.getByRole('button', { name, exact: true }).click();

/** Opens the form, if it is in a dialog or behind a button. */
const opens = (name: string) => (): Promise<void> => press(name);
const isShown = async (): Promise<void> => undefined;

interface KeptForm {
  path: string;
  open(): Promise<void>;
  /** What is typed, by the label of the field. */
  typed: Record<string, string>;
  submit: string;
  /** Fields for secrets, which are empty after the sign-in. */
  secrets?: readonly string[];
}

const FORMS: Record<string, KeptForm> = {
  'an SSH key': {
    path: 'ssh-keys',
    open: isShown,
    typed: { 'Public key': 'ssh-ed25519 AAAA ada@laptop', Name: 'laptop' },
    submit: 'Add the key',
  },
  'a webhook': {
    path: 'webhooks',
    open: isShown,
    typed: { URL: 'https://hooks.example.com/gpu' },
    submit: 'Add the endpoint',
  },
  'a deposit': { path: 'deposits', open: isShown, typed: { 'Amount in dollars': '250' }, submit: 'Get an address' },
  'an invitation': { path: 'members', open: isShown, typed: { 'E-mail': 'eve@example.com' }, submit: 'Make the link' },
  'a login to a registry': {
    path: 'registry-credentials',
    open: isShown,
    typed: { Name: 'ours', Registry: 'ghcr.io', User: 'robot' },
    secrets: ['Password or token'],
    submit: 'Store the login',
  },
  'a machine': {
    path: 'machines',
    open: opens('Add a machine'),
    typed: { Region: 'eu-north', 'Price of one GPU per hour, in dollars': '0.80' },
    submit: 'Register the machine',
  },
  'a decision about an organisation': {
    path: 'operate/orgs',
    open: () =>
      page
        .getByRole('button', { name: /^Suspend/ })
        .last()
        .click(),
    typed: { Reason: 'It does not pay' },
    submit: 'Suspend',
  },
  'a reservation': {
    path: 'operate/reservations',
    open: opens('Make a reservation'),
    typed: {
      Organisation: 'org_1',
      Title: 'The year',
      Begin: '2036-12-01',
      End: '2037-12-01',
      GPUs: 'H100_SXM:8@eu-west',
    },
    submit: 'Make a reservation',
  },
};

test.each(Object.entries(FORMS))('the fields of %s are kept, but no secret', async (_, form) => {
  await page.goto(`${pages.origin}/console/${form.path}`);
  await form.open();
  const field = (label: string) => page.getByRole('textbox', { name: label, exact: true });
  for (const [label, text] of Object.entries(form.typed)) await field(label).fill(text);
  const secrets = form.secrets ?? [];
  for (const label of secrets) await field(label).fill('hf_secret');
  await endSession(() => page.locator('form').getByRole('button', { name: form.submit, exact: true }).click());
  expect(await kept()).not.toContain('hf_secret');
  await signIn(ada);
  for (const [label, text] of Object.entries(form.typed)) await expect.poll(() => field(label).inputValue()).toBe(text);
  for (const label of secrets) await expect.poll(() => field(label).inputValue()).toBe('');
});

test('the scopes of an API key are kept over a load of the page', async () => {
  await page.goto(`${pages.origin}/console/api-keys`);
  await page.getByLabel('Name', { exact: true }).fill('ci');
  await page.getByLabel('instances: read').check();
  await page.reload();
  await expect.poll(() => page.getByLabel('instances: read').isChecked()).toBe(true);
  expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('ci');
});
