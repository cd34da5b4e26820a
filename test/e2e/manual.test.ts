// Runs every command of README and manual as a reader would: from the tour of the README, which starts the service, to the operator's pages.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { UsageRow } from '../../shared/api/billing.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { trainingLines } from '../contract/forms.ts';
import { type ApiClient, openApiClient, terminate } from '../kit/api-client.ts';
import { type Command, commandsOf, pageOf, readPages } from '../kit/manual/documents.ts';
import { NOT_RUN } from '../kit/manual/not-run.ts';
import { logOf, openReader, type Reader, type ReaderOptions } from '../kit/manual/reader.ts';
import { openSurroundings, type Surroundings } from '../kit/manual/surroundings.ts';
import { eventually } from '../kit/processes.ts';
import { LOGIN } from '../kit/registry.ts';
import { makeIdentity } from '../kit/ssh-client.ts';

/** The order of pages, so that each page finds what it needs. Other pages have no command to run. */
const ORDER = [
  'index',
  'supplier',
  'api-conventions',
  'models',
  'customer',
  'cli',
  'people',
  'fleet',
  'deposits',
  'operator',
  'host',
];
const UUID = '[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}';

/** Less would be nothing after the fee of the platform. */
const CENTS_PAID = 3;
/** The answer in which each placeholder is shown. */
const PLACEHOLDERS: ReaderOptions['placeholders'] = {
  'org id': { of: /admin org create/, value: new RegExp(UUID), which: 'latest' },
  'api key': { of: /admin key create/, value: /svc_live_[\w-]{43}/, which: 'first' },
  'api key id': { of: /admin key create|POST \$API\/api-keys/, value: /apk_\w+/, which: 'latest' },
  'enrollment token': { of: /POST \$API\/community\/machines /, value: /"enrollment_token":"([^"]+)"/, which: 'first' },
  'machine id': { of: /POST \$API\/community\/machines /, value: /"machine_id":"([^"]+)"/, which: 'first' },
  'supplier id': { of: /\$API\/community\/supplier/, value: /"supplier_id":"([^"]+)"/, which: 'first' },
  'operation id': { of: /POST \$API\/instances/, value: /"operation_id":"([^"]+)"/, which: 'latest' },
  'instance id': {
    of: /^until .*\$API\/(instances|operations)|admin instance list/,
    value: /\bi-[a-z0-9]{20}\b/,
    which: 'latest',
  },
  'invitation id': { of: /POST \$API\/invitations /, value: /"id":"(inv_[^"]+)"/, which: 'latest' },
  'ssh port': { of: /\$API\/instances/, value: /ssh -p (\d+) root@/, which: 'latest' },
  'credential id': { of: /POST \$API\/registry-credentials/, value: /"id":"([^"]+)"/, which: 'latest' },
  'endpoint id': { of: /POST \$API\/webhook-endpoints /, value: /"id":"([^"]+)"/, which: 'latest' },
  'delivery id': { of: /<endpoint id>\/test /, value: /"id":"(dlv_[^"]+)"/, which: 'latest' },
  'video id': { of: /\$API\/videos /, value: /"id":"([^"]+)"/, which: 'latest' },
  'file id': { of: /\$API\/files /, value: /"id":"([^"]+)"/, which: 'latest' },
  'job id': { of: /\$API\/fine_tuning\/jobs /, value: /"id":"(ftjob_[^"]+)"/, which: 'latest' },
  'upload id': { of: /\$API\/uploads /, value: /"id":"(upload_[^"]+)"/, which: 'latest' },
  'first part id': { of: /@part-1/, value: /"id":"(part_[^"]+)"/, which: 'latest' },
  'second part id': { of: /@part-2/, value: /"id":"(part_[^"]+)"/, which: 'latest' },
  'dispute id': { of: /admin dispute open/, value: /dsp_\w+/, which: 'latest' },
  'reservation id': { of: /admin reservation create/, value: /\b[0-9A-HJKMNP-TV-Z]{26}\b/, which: 'latest' },
  'workload id': 'wl_00000000000000000000000000',
  'access token': LOGIN.password,
};

const pages = readPages();
const commands: Command[] = [
  ...commandsOf(pageOf(pages, 'README.md')),
  ...ORDER.flatMap((name) => commandsOf(pageOf(pages, `control-plane/docs/${name}.md`))),
];
const listed = new Set(NOT_RUN.map(({ command }) => command));
const isListed = ({ text }: Command): boolean => listed.has(text);

let around: Surroundings;
let reader: Reader;
/** The first failed command. Later ones need its result. */
let failed: string | undefined;
/** Resolves when the launches of the pages before run. */
let over: Promise<void> | undefined;
beforeAll(async () => {
  around = await openSurroundings();
  reader = openReader({ ...around.reader, placeholders: PLACEHOLDERS });
  await makeIdentity(join(reader.home, '.ssh'), 'id_ed25519');
  const lines = trainingLines(10);
  for (const [name, text] of [
    ['train.jsonl', lines],
    ['part-1', lines.slice(0, 500)],
    ['part-2', lines.slice(500)],
  ] as const)
    writeFileSync(join(reader.home, name), text);
});
afterAll(async () => {
  if (failed !== undefined) for (const name of ['control-plane', 'agent']) console.error(logOf(around.dir, name));
  try {
    await endInstances();
  } finally {
    await reader.stop();
    expect(await around.stop()).toEqual([]);
  }
});

test('every command of every page is run here, or is in the list of those that are not', () => {
  const run = new Set(commands.map(({ path, line }) => `${path}:${line}`));
  const rest = pages.flatMap(commandsOf).filter((command) => !run.has(`${command.path}:${command.line}`));
  expect(rest.filter((command) => !isListed(command))).toEqual([]);
  expect(commands.filter((command) => !isListed(command)).length).toBeGreaterThan(90);
});

test.each(commands.filter((command) => !isListed(command)))('$path:$line $text', async (command) => {
  if (failed !== undefined) throw new Error(`this was not run, because an earlier one failed: ${failed}`);
  failed = command.text;
  // A reader comes to the operator's pages later: what was launched runs by then.
  if (command.path.endsWith('/fleet.md')) await (over ??= launchesAreOver());
  await reader.run(command);
  failed = undefined;
});

test('the books agree after all of it, and no instance has failed', async () => {
  expect(await reader.run({ text: 'svc-control-plane ledger verify' })).toBe('ledger verify: OK\n');
  const listed = await reader.run({ text: 'svc-control-plane admin instance list --status any --json' });
  expect(listed).not.toContain('"status":"error"');
});

/** Resolves when all launches run, and each has cost some cents: the pages end one of them and pay its supplier. */
async function launchesAreOver(): Promise<void> {
  const api = await customerApi();
  await eventually('end of the launches', 60_000, async () => {
    const { data } = await api.get('/instances?limit=200', pageSchema(Instance));
    if (data.some(({ status }) => status === 'allocating' || status === 'starting')) return undefined;
    const usage = await api.get('/usage?bucket=month', pageSchema(UsageRow));
    const cents = new Map(usage.data.map((row) => [row.instance_id, row.cost_cents]));
    const running = data.filter(({ status }) => status === 'running');
    return running.every(({ id }) => (cents.get(id) ?? 0) >= CENTS_PAID) ? true : undefined;
  });
}

async function customerApi(): Promise<ApiClient> {
  const key = /svc_live_[\w-]+/.exec(await reader.run({ text: 'echo "$AUTH"' }))?.[0];
  return openApiClient(around.baseUrl, key);
}

async function endInstances(): Promise<void> {
  const api = await customerApi();
  const { data } = await api.get('/instances?limit=200', pageSchema(Instance));
  for (const { id } of data.filter(({ status }) => !['terminated', 'stopped'].includes(status)))
    await terminate(api, id);
}
