// `npm run demo` as a person runs it: it shows every step, can be played with, and leaves nothing behind.
import { mkdtempSync, readdirSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { Instance } from '../../shared/api/instance.ts';
import { launch, openApiClient } from '../kit/api-client.ts';
import { leftoverProcesses, listeningPorts, mountsBelow } from '../kit/leaks.ts';
import { startProgram, type Program } from '../kit/processes.ts';
import { openBrowser } from '../kit/web-clients.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const DEMO_MS_MAX = 150_000;

/** Everything that the demo makes lies below `dir`. */
function startDemo(...args: string[]): { program: Program; dir: string } {
  const dir = mkdtempSync(join(tmpdir(), 'd-'));
  const command = { command: 'npm', args: ['run', 'demo', '--', ...args], cwd: ROOT };
  return { program: startProgram({ ...command, env: { TMPDIR: dir } }), dir };
}

/** What a newcomer sees who follows the link. */
async function expectLiveInstance(link: string): Promise<void> {
  const browser = await openBrowser();
  const page = await browser.newPage();
  await page.goto(link);
  await page.getByLabel('Password').fill('correct horse battery');
  await page.getByRole('button', { name: 'Set the password and sign in' }).click();
  await page.getByRole('row').filter({ hasText: 'hello' }).getByText('running').waitFor();
  await browser.close();
}

function expectNothingLeft(dir: string, output: string): void {
  expect(output).toContain('Everything is stopped, and nothing is left behind.');
  expect(leftoverProcesses({ id: dir, dir })).toEqual([]);
  expect(mountsBelow(dir)).toEqual([]);
  expect(readdirSync(dir)).toEqual([]);
  const ports = [...output.matchAll(/(?:127\.0\.0\.1|localhost):(\d+)|ssh -p (\d+)/g)].map(([, first, second]) =>
    Number(first ?? second),
  );
  expect(ports.length).toBeGreaterThan(2);
  expect(ports.filter((port) => listeningPorts().has(port))).toEqual([]);
  rmdirSync(dir);
}

test('with --once it walks through every step, exits 0, and nothing is left', async () => {
  const { program, dir } = startDemo('--once');
  await program.waitForOutput(/nothing is left behind/, DEMO_MS_MAX);
  const { code } = await program.exited;
  const output = program.output();
  expect({ code, failed: output.includes('\u2717') ? output : '' }).toEqual({ code: 0, failed: '' });
  const steps = [...output.matchAll(/\u2713 (.*?) {2,}/g)].map(([, step]) => step);
  expect(steps).toEqual([
    'Programs',
    'Service',
    'Image',
    'Machine registered',
    'Machine enrolled',
    'Offering listed',
    'SSH key',
    'POST /v1/instances',
    'Instance running',
    'nvidia-smi over ssh',
    'hostname over ssh',
    'Model deployed',
    'GET /v1/models',
    'Chat, streamed',
    'Receipt',
    'Replica drained',
    'Usage and balance',
    'Instance deleted',
    'Final bill',
    'Supplier paid',
    'ledger verify',
  ]);
  expect(output).toMatch(/pulling the image: \d+\.\d of \d+\.\d MiB/);
  expect(output).toContain('llama.cpp computes it');
  expect(output).toContain('This is no script');
  expect(output).toMatch(
    /rcp_\w+: completed, \d+ \+ 26 tokens counted by upstream, \$0\.\d+ of \$0\.\d+ that were held/,
  );
  expectNothingLeft(dir, output);
});

test('without it, its link shows a live instance in a browser, and it stays up until Ctrl-C, which ends what still runs too', async () => {
  const { program, dir } = startDemo();
  const [, key] = await program.waitForOutput(/export KEY=(\S+)/, DEMO_MS_MAX);
  const [, baseUrl = ''] = await program.waitForOutput(/curl -s (http\S+\/v1)\/pricing/);
  const [, request = ''] = await program.waitForOutput(/-d '(\{"gpu_type.*\})'/);
  const [, link = ''] = await program.waitForOutput(/(http\S+\/welcome#\S+)/);
  await program.waitForOutput(/logs and data/);
  await expectLiveInstance(link);
  const api = openApiClient(baseUrl, key);
  const { id } = await launch(api, JSON.parse(request));
  expect(await api.get(`/instances/${id}`, Instance)).toMatchObject({ status: 'running' });

  // A terminal sends the signal to npm, its shell and the demo alike.
  process.kill(-program.pid, 'SIGINT');
  await program.exited;
  expectNothingLeft(dir, program.output());
});
