// The browser console as a customer uses it: Chromium at terminal_url with the instance's login, and a shell in the container.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Instance } from '../../shared/api/instance.ts';
import { openBrowser, openTab, curlApp } from '../kit/web-clients.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

let stack: RentalStack;
let instance: Instance;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  stack = await openRentalStack();
  const { id } = await stack.rent();
  instance = await stack.customer.api.get(`/instances/${id}?include=credentials`, Instance);
  browser = await openBrowser();
  page = await openTab(browser, login());
  await page.goto(consoleUrl());
});
afterAll(async () => {
  await browser.close();
  expect(await stack.end()).toEqual([]);
});

const consoleUrl = (): string => instance.connection?.terminal_url ?? '';
function login(): { username: string; password: string } {
  const { app_user: username = '', app_password: password = '' } = instance.connection ?? {};
  return { username, password };
}
const status = (): Promise<string | null> => page.locator('#status').textContent();
const screen = (): Promise<string> => page.locator('.xterm-rows').innerText();
async function connected(): Promise<void> {
  await expect.poll(status, { timeout: 30_000 }).toBe('connected');
}
/** Types a line at a prompt, and waits for the expected output. */
async function enter(line: string, shows: string): Promise<void> {
  await expect.poll(screen).toMatch(/[#$]\s*$/);
  await page.keyboard.type(`${line}\n`);
  await expect.poll(screen).toContain(shows);
}

/** Does what the browser does for Ctrl-V. It is written in words of the page, whose globals these tests do not have. */
function paste(text: string): Promise<unknown> {
  return page.evaluate(`{
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', '${text}');
    document.activeElement.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true }));
  }`);
}

// Specification 2.2: connection.terminal_url is a browser console that needs no SSH key.
test('a shell in the container, in a terminal of the size of the window', async () => {
  await connected();
  await enter('echo "I am on $(hostname)"', `I am on ${instance.id}`);
  await enter('test $(stty size | cut -d" " -f2) -gt 80 && echo wi""de', 'wide');
  expect(await page.title()).toBe(instance.id);
});

test('a reload finds the same shell, with what it has shown', async () => {
  await enter('MARK=kept; echo before the re""load', 'before the reload');
  await page.reload();
  await expect.poll(screen).toContain('before the reload');
  await enter('echo my mark is $MARK', 'my mark is kept');
});

test('what is typed while the past is shown arrives, and what programs asked in the past is not answered again', async () => {
  // The terminal reports its attributes in seven bytes, which the shell would take for input.
  const question = `stty -icanon -echo; printf '\\033[c'; head -c 7 | wc -c; stty sane`;
  await enter(`seq 1 20000; ${question}; echo ans""wered`, 'answered');
  await page.reload();
  await connected();
  await page.keyboard.type('echo typed at $((40 + 2))\n');
  await expect.poll(screen).toContain('typed at 42');
  expect(await screen()).not.toContain('1;2c');
});

test('a killed control plane is waited for, and the shell goes on', async () => {
  const { daemon } = stack.controlPlane;
  // What is typed is lost if it is under way when the control plane dies.
  await enter('(sleep 2; echo meanwhile) & clear; echo cle""ared', 'cleared');
  await daemon.stop('SIGKILL');
  await expect.poll(status).toContain('connection is lost');
  await daemon.start();
  await connected();
  await expect.poll(screen).toContain('meanwhile');
  await page.keyboard.press('Enter');
  await enter('echo $MARK again', 'kept again');
});

test('much output comes whole, and what is pasted arrives whole', async () => {
  await enter('clear; seq 1 30000 | tail -n 3; echo do""ne', '29999\n30000\ndone');
  // Read as it comes: a terminal that edits lines keeps no more than 4096 characters of one.
  await enter('clear; stty -icanon -echo; echo rea""dy; head -c 60000 | md5sum; stty sane', 'ready');
  const text = Array.from({ length: 60_000 }, (_, i) => String(i % 10)).join('');
  await paste(text);
  const sum = createHash('md5').update(text).digest('hex');
  await expect.poll(screen).toContain(sum);
});

test('the end of the shell is shown, and a key starts a new one', async () => {
  await enter('exit 3', 'exit 3');
  await expect.poll(status).toBe('the shell has ended (exit code 3); press any key');
  await page.keyboard.press('a');
  await connected();
  await enter('echo mark ${MARK:-none}', 'mark none');
});

// Specification 5: The browser console uses the same HTTP Basic login.
test('without the login there is no page', async () => {
  const caFile = join(stack.dir, 'apps-ca.pem');
  writeFileSync(caFile, stack.controlPlane.appCertificate);
  expect((await curlApp(caFile, `${consoleUrl()}/`)).status).toBe('401');
  const { username, password } = login();
  expect((await curlApp(caFile, `${consoleUrl()}/`, '--user', `${username}:${password}`)).body).toContain(
    '<!doctype html>',
  );
});
