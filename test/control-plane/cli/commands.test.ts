// Every command of `svc` that is one request: what it prints with --json is the document of the API, and its columns exist.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { argumentsOf, optionsOf, type PlainCommand } from '../../../control-plane/cli/plain.ts';
import { PLAIN_COMMANDS } from '../../../control-plane/cli/svc.ts';
import type { Route } from '../../../control-plane/base/http/route.ts';
import { type Api, type ApiAccount, openApi } from '../../contract/api.ts';
import { makerFor } from '../../contract/resources.ts';
import { bringMachine } from '../../contract/suppliers.ts';
import { KEYS } from '../base/accounts/ssh-key-samples.ts';
import { openSvc, type Svc } from '../../kit/svc.ts';
import { noteRead, offlineDeposits } from '../../kit/deposits.ts';
import { tunableModels } from '../../kit/models.ts';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

let api: Api;
let owner: ApiAccount;
let svc: Svc;
beforeAll(async () => {
  api = await openApi({ settings: { models: tunableModels(), deposits: offlineDeposits() } });
  owner = await api.account();
  const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
  svc = openSvc({ baseUrl: `http://127.0.0.1:${port}/v1`, key: owner.key });
  await api.world.machine();
  // A chain takes deposits once its watcher has read it.
  await noteRead(api.world, 'base');
});
afterAll(async () => {
  svc.close();
  await api.close();
});

const named = PLAIN_COMMANDS.map((plain) => [plain.words.join(' '), plain] as const);

function routeOf({ method, path }: PlainCommand): Route {
  const pattern = `/v1${path}`.replaceAll(/\{\w+\}/g, '{}');
  const found = api.routes.find(
    (route) => route.method === method && route.path.replaceAll(/\{\w+\}/g, '{}') === pattern,
  );
  if (found === undefined) throw new Error(`there is no route ${method} ${path}`);
  return found;
}

function answerOf(plain: PlainCommand): z.ZodType {
  const { responses } = routeOf(plain);
  const [schema] = Object.values(responses).flatMap((response) => response.schema ?? []);
  if (schema === undefined) throw new Error(`${plain.path} answers nothing`);
  return schema;
}

/** What stands for the arguments, made by the owner. */
async function argumentsFor(plain: PlainCommand): Promise<string[]> {
  const names = argumentsOf(plain.path);
  if (names.length === 0) return [];
  const route = routeOf(plain).path;
  if (plain.path === '/models/{id}') return [tunableModels()[0]?.id ?? ''];
  const upTo = route.slice(0, route.lastIndexOf('}') + 1);
  const made = await makerFor(upTo)?.(api, owner);
  if (made === undefined) throw new Error(`nothing makes ${upTo}`);
  return made.split('/deliveries/');
}

/** The options without which the command is refused. */
async function optionsFor(plain: PlainCommand): Promise<string[]> {
  const file = join(svc.home, 'id.pub');
  writeFileSync(file, `${KEYS.rsa2048.line}\n`);
  const training = plain.words.join(' ') === 'job create' ? await makerFor('/v1/files/{id}')?.(api, owner) : undefined;
  const texts: Record<string, string> = {
    name: 'a name',
    public_key: file,
    url: 'https://93.184.216.34/hook',
    event_types: 'instance.running',
    replay_since: '2026-01-01T00:00:00Z',
    region: 'eu-west',
    chain: 'base',
    asset: 'usdc',
    amount_usd_cents: '5000',
    address: `0x${'1'.repeat(40)}`,
    price_per_hour: '2',
    model: 'tiny-base',
    training_file: training ?? '',
    'svc.max_budget_usd': '50',
    scopes: 'instances: read,instances: write',
    role: 'read-only',
    registry: 'ghcr.io',
    username: 'me',
    password: file,
  };
  return (plain.options ?? [])
    .filter(({ required, to }) => required === true || (plain.method === 'PATCH' && to === 'price_per_hour'))
    .flatMap(({ flags, to }) => [flags.split(' ')[0] ?? '', texts[to] ?? '']);
}

/** Afterwards a change of the payee is pending. */
async function changePayee(): Promise<void> {
  const { key } = owner;
  await api.call('POST', '/v1/community/supplier', { key });
  for (const digit of '12') {
    const body = { chain: 'base', address: `0x${digit.repeat(40)}` };
    await api.call('PUT', '/v1/community/payout-destination', { key, body });
  }
}

describe('each command that is one request', () => {
  test.each(named)('svc %s --json prints the document of the API', async (name, plain) => {
    if (name === 'machine keep-payee') await changePayee();
    const words = [...plain.words, ...(await argumentsFor(plain)), ...(await optionsFor(plain))];
    const { code, stdout, stderr } = await svc.run(...words, '--json');
    expect(stderr).toBe(plain.done === undefined ? '' : `${plain.done}\n`);
    expect(code).toBe(0);
    // One line, or none for an answer without a body.
    const documents = stdout.split('\n').slice(0, -1);
    expect(documents).toHaveLength(plain.done === undefined ? 1 : 0);
    for (const text of documents) answerOf(plain).parse(JSON.parse(text));
  });

  test.each(named.filter(([, { done }]) => done === undefined))(
    'svc %s shows members that the API has',
    async (_name, plain) => {
      const schema: unknown = z.toJSONSchema(answerOf(plain), { io: 'output', unrepresentable: 'any' });
      const text = JSON.stringify(schema);
      const parts = (plain.parts ?? []).flatMap(({ of, columns }) => [of, ...columns]);
      const last = [...(plain.columns ?? []), ...parts, ...(plain.sums ?? []), plain.id ?? 'id'].map(
        (column) => column.split('.').at(-1) ?? '',
      );
      expect(last.filter((name) => !text.includes(`"${name}":`))).toEqual([]);
    },
  );

  test.each(named)('svc %s has only options that its route takes', (_name, plain) => {
    const { query, body } = routeOf(plain);
    const membersOf = (part: Route['body']): string =>
      part === undefined ? '' : JSON.stringify(z.toJSONSchema(part, { io: 'input', unrepresentable: 'any' }));
    const taken = { query: membersOf(query), body: membersOf(body) };
    const names = optionsOf(plain).map((option) => ({ part: option.in, name: option.to.split('.').at(-1) ?? '' }));
    expect(names.filter(({ part, name }) => !taken[part].includes(`"${name}":`))).toEqual([]);
  });

  // These are sent again after a network error. A quote only reads.
  test.each(named.filter(([name, { method }]) => method === 'POST' && name !== 'file quote'))(
    'svc %s may be repeated, because its route takes an Idempotency-Key',
    (_name, plain) => {
      expect(routeOf(plain).idempotency).not.toBe('none');
    },
  );

  test.each(named.filter(([, { rows }]) => rows !== undefined))('svc %s has the pages of its route', (_name, plain) => {
    const { query } = routeOf(plain);
    const members = query === undefined ? [] : Object.keys((query as z.ZodObject).shape);
    const taken = members.filter((name) => name === 'cursor' || name === 'after');
    const paging = plain.pages === undefined ? [] : [plain.pages];
    // The events of an organisation can be followed after one, too.
    expect(taken.filter((name) => plain.path !== '/events' || name !== 'after')).toEqual(paging);
  });
});

test('a job can be one of QLoRA, with a rank of its own', async () => {
  const bodies: unknown[] = [];
  const answer: typeof fetch = async (url, init) => {
    bodies.push(await new Request(url, init).json());
    return Response.json({ id: 'ftjob_1' });
  };
  const strange = openSvc({ baseUrl: 'https://api.test/v1', key: 'svc_live_x', fetch: answer });
  const words = ['job', 'create', '--model', 'tiny-base', '--file', 'file_1'];
  await strange.run(...words);
  await strange.run(...words, '--method', 'qlora', '--rank', '8');
  strange.close();
  const job = { model: 'tiny-base', training_file: 'file_1' };
  expect(bodies).toEqual([
    { ...job, method: { type: 'lora' } },
    { ...job, method: { type: 'qlora', lora: { lora_r: 8 } } },
  ]);
});

test('a model shows its longest answer, its other names and what requests may set; the list has the base of a job', async () => {
  const { stdout } = await svc.run('model', 'get', 'acme/tunable');
  expect(stdout).toMatch(/^aliases +tunable$/m);
  expect(stdout).toMatch(/^max_output_tokens +1024$/m);
  expect(stdout).toMatch(/^supported_parameters +max_tokens,/m);
  expect((await svc.run('model', 'list')).stdout).toMatch(
    /^ID .* FINE_TUNE_BASE_MODEL .*\n(.*\n)*acme\/tunable .* tiny-base /,
  );
});

test('usage has the exact cost, like the API', () => {
  const usage = named.find(([words]) => words === 'usage show')?.[1];
  expect(usage?.columns).toContain('cost');
  expect(usage?.columns).not.toContain('cost_cents');
});

test('the bill shows people what each section and each line took, and not only the balances', async () => {
  const { stdout } = await svc.run('bill');
  expect(stdout).toMatch(/^totals\nSECTION +AMOUNT\ndeposit +10000\.00$/m);
  expect(stdout).toMatch(
    /^lines\nSECTION +SUBJECT_ID +MODEL +COUNT +AMOUNT +POSTED_AT +REASON\ndeposit .* 10000\.00 /m,
  );
});

test.each([
  [['deposit', 'methods'], { min_usd_cents: null, methods: [] }, 'This service takes no stablecoins.\n'],
  [['environment', 'list'], { frameworks: [] }, 'none\n'],
])('svc %j says so if there is nothing to show', async (argv, document, told) => {
  const answer: typeof fetch = async () => Response.json(document);
  const strange = openSvc({ baseUrl: 'https://api.test/v1', key: 'svc_live_x', fetch: answer });
  expect(await strange.run(...argv)).toEqual({ code: 0, stdout: told, stderr: '' });
  strange.close();
});

test('the statement of a supplier has its sums and its lines too', () => {
  const statement = named.find(([words]) => words === 'machine statement')?.[1];
  expect(statement?.parts?.map(({ of }) => of)).toEqual(['totals', 'lines']);
});

test('the earnings of a supplier end with their sums', async () => {
  const { stdout } = await svc.run('machine', 'earnings');
  expect(stdout).toBe('none\n\naccrued_cents  0\nunpaid_cents   0\npayable_cents  0\n');
});

test('the earnings of one machine end with the sum of that machine', async () => {
  const { world } = api;
  const id = await bringMachine(api, owner, { price_per_hour: 1 });
  const rented = await world.run(owner);
  await world.clock.advance(3_600_000);
  await world.end(owner, rented);
  const { stdout } = await svc.run('machine', 'earnings', '--machine', id);
  const sums = [
    'of_machine.accrued  0.80',
    'accrued_cents       80',
    'unpaid_cents        80',
    'payable_cents       80',
  ];
  expect(stdout).toContain(`\n\n${sums.join('\n')}\n`);
});

test('a machine has the GPUs that its host reports, and whether its agent is connected', async () => {
  const id = await bringMachine(api, owner, { price_per_hour: 1 });
  const { stdout: list } = await svc.run('machine', 'list');
  expect(list).toMatch(
    /^MACHINE_ID +NAME +HOSTNAME +STATUS +ONLINE +ON_OFFER +REPORTED_GPUS.GPU_TYPE +REPORTED_GPUS.COUNT +REPORTED_GPUS.RENTED /,
  );
  expect(list).toMatch(new RegExp(`^${id} +host +listed +true +true +H100_SXM +1 +0 `, 'm'));
  const { stdout: one } = await svc.run('machine', 'get', id);
  expect(one).toMatch(/^online +true$/m);
  expect(one).toMatch(/^reported_gpus.gpu_type +H100_SXM$/m);
});

test('an instance has its other ports below the rest, with the address of each', async () => {
  await api.world.machine();
  const id = await api.world.run(owner, {
    ports: [
      { port: 8080, protocol: 'http', primary: true },
      { port: 8081, protocol: 'http' },
      { port: 5432, protocol: 'tcp' },
    ],
  });
  const { stdout } = await svc.run('instance', 'get', id);
  expect(stdout).toMatch(/^connection.app_url +https?:/m);
  expect(stdout).toMatch(/^connection.ports\nPORT +PROTOCOL +URL +HOSTNAME +PUBLIC_PORT\n8081 +http +https?:\S+\n/m);
  expect(stdout).toMatch(/^5432 +tcp +\S+ +\d+$/m);
});

test('a contract has its GPUs, those that are in use, and their regions', async () => {
  await api.world.machine({ gpus: 2, region: 'us-east' });
  await api.world.rooms.reservations.create({
    org_id: owner.orgId,
    title: 'two regions',
    starts_at: '2030-01-01T00:00:00Z',
    ends_at: '2030-02-01T00:00:00Z',
    renewal: 'none',
    commitment: [
      { gpu_type: 'H100_SXM', gpu_count: 1, region: 'eu-west' },
      { gpu_type: 'H100_SXM', gpu_count: 2, region: 'us-east' },
    ],
  });
  const { stdout } = await svc.run('reservation', 'list');
  expect(stdout).toMatch(
    /^RESERVATION_ID +STATUS +COMMITMENT.GPU_COUNT +COMMITMENT.GPU_TYPE +COMMITMENT.REGION +UTILIZATION.ALLOCATED_GPUS /,
  );
  expect(stdout).toMatch(/ pending +1,2 +H100_SXM,H100_SXM +eu-west,us-east +0 +2030-01-01/);
});
