// The page on which a person approves a program that asks for a key, in Chromium.
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Role } from '../../shared/api/auth.ts';
import type { Answer, ApiAccount } from '../contract/api.ts';
import { axeFindings, type ConsolePages, openConsolePages } from '../kit/console-pages.ts';
import { addPerson } from '../kit/people.ts';

let pages: ConsolePages;
let owner: ApiAccount;
beforeAll(async () => {
  pages = await openConsolePages();
  owner = await pages.api.account();
});
afterAll(async () => {
  expect(pages.broken).toEqual([]);
  await pages.close();
});

interface Codes {
  device_code: string;
  user_code: string;
}
async function begin(scopes: string[]): Promise<Codes> {
  const { json } = await pages.api.call('POST', '/v1/auth/device', { body: { host: 'laptop', scopes } });
  return json as unknown as Codes;
}
const redeem = ({ device_code: code }: Codes): Promise<Answer> =>
  pages.api.call('POST', '/v1/auth/device/token', { body: { device_code: code } });

async function openAs(role: Role, hash = ''): Promise<Page> {
  const page = await pages.signedIn(await addPerson(pages.api.world, { orgId: owner.orgId, role }));
  await page.goto(`${pages.origin}/device${hash}`);
  return page;
}

test('a person types the code, sees what the key may and may not do, and approves', async () => {
  const codes = await begin(['billing: read', 'instances: write']);
  const page = await openAs('billing');
  await page.getByRole('textbox', { name: 'Code' }).fill(codes.user_code.toLowerCase());
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('heading', { name: 'A program on laptop asks for a key' }).waitFor();
  const shown = await page.locator('dl.kv').innerText();
  expect(shown).toMatch(/May\s+billing: read\s+Your role may not\s+instances: write/);
  expect(await axeFindings(page)).toEqual([]);
  await page.getByRole('button', { name: 'Approve' }).click();
  await page.getByText('The program gets its key now').waitFor();
  expect(await redeem(codes)).toMatchObject({ status: 200, json: { scope: 'billing: read' } });
});

test('a link fills the code in, and nothing is approved before the person says so', async () => {
  const codes = await begin(['instances: read']);
  const page = await openAs('member', `#${codes.user_code}`);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('button', { name: 'Approve' }).waitFor();
  expect(await redeem(codes)).toMatchObject({ status: 400, json: { error: 'authorization_pending' } });
  await page.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('The program gets no key').waitFor();
  expect(await redeem(codes)).toMatchObject({ status: 400, json: { error: 'access_denied' } });
});

test('a person who may do nothing of it can only deny it', async () => {
  const codes = await begin(['instances: write']);
  const page = await openAs('billing', `#${codes.user_code}`);
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByText('nothing: your role has none of what it asks for').waitFor();
  expect(await page.getByRole('button', { name: 'Approve' }).count()).toBe(0);
  await page.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('The program gets no key').waitFor();
});
