// The main job with the control plane on PostgreSQL: rent, log in, be killed and come back, end, and the books agree.
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import OpenAI from 'openai';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Instance } from '../../shared/api/instance.ts';
import { openApiClient, terminate } from '../kit/api-client.ts';
import { capture } from '../kit/capture.ts';
import { openBalancer } from '../kit/balancer.ts';
import { openFakeUpstream } from '../kit/fake-upstream.ts';
import { modelsFile } from '../kit/models.ts';
import { sendAndKillAtReply, sendKeyed } from '../kit/dying-reply.ts';
import { eventually, startProgram } from '../kit/processes.ts';
import { startPostgres } from '../kit/postgres.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { startSecond } from '../kit/second-control-plane.ts';
import { makeIdentity } from '../kit/ssh-client.ts';
import { verifyLedger } from '../kit/stack.ts';
import { curlApp, openBrowser } from '../kit/web-clients.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');

let postgres: Awaited<ReturnType<typeof startPostgres>>;
let stack: RentalStack;

beforeAll(async () => {
  postgres = await startPostgres();
  stack = await openRentalStack({ postgresUrl: postgres.url });
});

afterAll(async () => {
  const wrong = await stack.end();
  await postgres.stop();
  expect(wrong).toEqual([]);
});

test('an instance is rented, survives a control plane that is killed while it answers, and ends with the books in order', async () => {
  const instance = await stack.rent();
  const ssh = stack.ssh(instance);
  expect((await ssh.run('hostname')).stdout.toString()).toBe(`${instance.id}\n`);
  const idempotencyKey = 'cut off';
  const { publicKey } = await makeIdentity(join(stack.dir, 'ssh'), 'second');
  const asked = { method: 'POST', path: '/ssh-keys', body: { name: 'second', public_key: publicKey } } as const;
  const request = { ...asked, apiKey: stack.customer.key, idempotencyKey };
  const answer = await sendAndKillAtReply(stack.controlPlane, request);
  // The lease of the dead process must expire first, because nothing else proves its death on PostgreSQL.
  await stack.controlPlane.daemon.start();
  await eventually('login after the restart', 30_000, async () =>
    (await ssh.run('true')).code === 0 ? true : undefined,
  );
  expect(answer).toMatchObject({ status: 201, isReplay: false });
  expect(await sendKeyed(stack.controlPlane, request)).toEqual({ ...answer, isReplay: true });
  await terminate(stack.customer.api, instance.id);
  await verifyLedger(stack.controlPlane);
});

test('a second control plane takes over when the first one dies: the rental goes on, and the books agree', async () => {
  const { controlPlane, customer } = stack;
  const instance = await stack.rent();
  const ssh = stack.ssh(instance);
  expect((await ssh.run('echo kept > /tmp/file')).code).toBe(0);
  // Nothing listens on its ports before it serves, so it can have those of the first one.
  const args = [LAUNCHER, 'serve', '--config', controlPlane.configPath];
  const second = startProgram({ command: process.execPath, args });
  try {
    await second.waitForOutput(/this one stands by/, 30_000);
    await controlPlane.daemon.stop('SIGKILL');
    await second.waitForOutput(/the control plane serves/, 60_000);
    const kept = await eventually('login through the second one', 60_000, async () => {
      const { code, stdout } = await ssh.run('cat /tmp/file');
      return code === 0 ? stdout.toString() : undefined;
    });
    expect(kept).toBe('kept\n');
    await terminate(customer.api, instance.id);
    await verifyLedger(controlPlane);
  } finally {
    await second.stop('SIGTERM');
    await controlPlane.daemon.start();
  }
});

async function statusAt(url: string): Promise<number> {
  return (await fetch(url)).status;
}

test('two control planes serve behind a balancer; the primary is killed, and the console, requests to models, the rental and its SSH go on', async () => {
  const { controlPlane, customer, dir } = stack;
  const upstream = await openFakeUpstream();
  const models_file = join(dir, 'models.yaml');
  writeFileSync(models_file, modelsFile(upstream.baseUrl));
  const ports = [Number(new URL(controlPlane.agentUrl).port)];
  const balancer = await openBalancer(() => ports);
  const base_url = `http://127.0.0.1:${balancer.port}/v1`;
  const {
    program: second,
    url: secondUrl,
    host: secondHost,
  } = await startSecond(controlPlane, { models_file, base_url });
  ports.push(Number(new URL(secondUrl).port));
  const throughSecond = openApiClient(`${secondUrl}/v1`, customer.key);
  const client = new OpenAI({ apiKey: customer.key, baseURL: `${secondUrl}/v1`, maxRetries: 0 });
  const chat = (): Promise<unknown> =>
    client.chat.completions.create({ model: 'small', messages: [{ role: 'user', content: 'hi' }] });
  const browser = await openBrowser();
  try {
    const page = await signIn(browser);
    const instance = await throughSecond.get(`/instances/${await launchIn(page, 'beside')}`, Instance);
    const seen = (): Promise<Instance> => throughSecond.get(`/instances/${instance.id}`, Instance);
    const ssh = stack.ssh(instance);
    await chat();
    const through = [...ssh.argv(['-o', `HostName=${secondHost}`]), 'hostname'] as const;
    await eventually('login through a secondary', 10_000, async () =>
      (await capture(through)).stdout.toString() === `${instance.id}\n` ? true : undefined,
    );
    await controlPlane.daemon.stop('SIGKILL');
    await chat();
    expect(await seen()).toMatchObject({ id: instance.id });
    expect(await statusAt(`${secondUrl}/v1/nothing`)).toBe(503);
    await second.waitForOutput(/is the primary now/, 60_000);
    await chat();
    expect(await seen()).toMatchObject({ id: instance.id, status: 'running' });
    // The host knows only the address of the first one, which passes its link and its streams on.
    await controlPlane.daemon.start();
    await eventually('login through the second one', 60_000, async () =>
      (await ssh.run('true')).code === 0 ? true : undefined,
    );
    expect(await pageOfTerminal(instance.id)).toContain('<!doctype html>');
    await terminateIn(page, 'beside');
    expect(balancer.taken.map((count) => count > 0)).toEqual([true, true]);
  } finally {
    await browser.close();
    balancer.close();
    await second.stop('SIGTERM');
    await upstream.close();
  }
  await eventually('the first one is the primary again', 20_000, () =>
    verifyLedger(controlPlane).then(
      () => true as const,
      () => undefined,
    ),
  );
});

/** A page of an owner of the customer's organisation, who has followed the operator's link. */
async function signIn(browser: Browser): Promise<Page> {
  const page = await (await browser.newContext({ reducedMotion: 'reduce' })).newPage();
  const person = ['--email', 'ada@example.com', '--name', 'Ada', '--org', stack.customer.orgId, '--role', 'owner'];
  const { url } = (await stack.controlPlane.operator('admin', 'user', 'add', ...person)) as { url: string };
  await page.goto(url);
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Set the password and sign in' }).click();
  return page;
}

/** The id of an instance that was launched in the console and runs. */
async function launchIn(page: Page, name: string): Promise<string> {
  await page.getByRole('link', { name: 'Launch' }).first().click();
  await page.getByRole('radio', { name: /H100/ }).check();
  await page.getByRole('radio', { name: 'Own image' }).check();
  await page.getByLabel('Image', { exact: true }).fill(stack.image.ref);
  await page.getByLabel('Name, optional').fill(name);
  await page.getByRole('button', { name: /^Launch at \$/ }).click();
  await page.getByRole('heading', { name }).waitFor();
  await page.locator('.badge.ok', { hasText: 'running' }).waitFor({ timeout: 120_000 });
  return new URL(page.url()).pathname.split('/').at(-1) ?? '';
}

/** The page of its terminal, at the address of the first control plane. */
async function pageOfTerminal(id: string): Promise<string> {
  const { customer, controlPlane, dir } = stack;
  const { connection } = await customer.api.get(`/instances/${id}?include=credentials`, Instance);
  const caFile = join(dir, 'apps-ca.pem');
  writeFileSync(caFile, controlPlane.appCertificate);
  const { terminal_url: url, app_user: user, app_password: password } = connection ?? {};
  return (await curlApp(caFile, `${url}/`, '--user', `${user}:${password}`)).body;
}

/** The page is the one of the instance. */
async function terminateIn(page: Page, name: string): Promise<void> {
  await page.getByRole('button', { name: 'Terminate' }).click();
  await page.getByLabel(/^Type the name to confirm/).fill(name);
  await page.getByRole('button', { name: 'Terminate and delete disk' }).click();
  await page.locator('.badge', { hasText: 'terminated' }).first().waitFor({ timeout: 60_000 });
}
