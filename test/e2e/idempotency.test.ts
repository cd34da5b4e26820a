// Idempotency-Key against a control plane of its own process: fifty callers at once, and kill -9 while it answers.
import Database from 'better-sqlite3';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { NewApiKey } from '../../shared/api/account.ts';
import { Balance, UsageRow } from '../../shared/api/billing.ts';
import { CommunityMachineRegistration } from '../../shared/api/community.ts';
import { Instance } from '../../shared/api/instance.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { VideoJob } from '../../shared/api/videos.ts';
import { NewWebhookEndpoint, WebhookDelivery } from '../../shared/api/webhook.ts';
import { type ApiClient, followOperation, openApiClient, terminate } from '../kit/api-client.ts';
import {
  type KeyedRequest,
  sendAndKillAtCommit,
  sendAndKillAtReply,
  sendKeyed,
  type WireAnswer,
} from '../kit/dying-reply.ts';
import { TEST_XPUB } from '../kit/deposits.ts';
import { type EvmChain, startEvmChain } from '../kit/evm-chain.ts';
import { tunableEntries, videoModelsFile } from '../kit/models.ts';
import { trainingLines } from '../contract/forms.ts';
import { eventually } from '../kit/processes.ts';
import { ONE_GPU, openRentalStack, type RentalStack } from '../kit/rental-stack.ts';
import { makeIdentity } from '../kit/ssh-client.ts';
import { type Account, openCustomer, verifyLedger, waitForOffering } from '../kit/stack.ts';

const CALLERS = 50;
const SOAK = process.env['SOAK'] === '1';
const ROUNDS = SOAK ? 10 : 1;
/** Operations that share a kill of the process. Each restart takes a second. */
const SHARING = SOAK ? 1 : 4;
/** The commits of a launch, and a query that sees each one, by the organisation whose only launch it is. */
const COMMITS = {
  claim:
    "select 1 from idempotency_keys k join api_keys a on a.id = k.api_key_id where a.org_id = ? and method = 'POST' and path = '/v1/instances'",
  effect: 'select 1 from operations where org_id = ?',
};
type Moment = [afterMs: number, commit: keyof typeof COMMITS];
const DEATHS: readonly Moment[] = [
  [0, 'claim'],
  ...(SOAK ? [1, 2, 5, 20, 100, 300].map((afterMs): Moment => [afterMs, 'effect']) : []),
];
/** How often a kill may miss the gap between the effect and its reply. */
const TRIES = 20;

const dir = mkdtempSync(join(tmpdir(), 'idempotency-'));
let chain: EvmChain;
let stack: RentalStack;
let apiKey: string;
let api: ApiClient;

beforeAll(async () => {
  const models_file = join(dir, 'models.yaml');
  const videos = videoModelsFile([{ base_url: 'http://127.0.0.1:9/v1', engine: 'sglang' }]);
  const { models } = JSON.parse(videos) as { models: object[] };
  writeFileSync(models_file, JSON.stringify({ models: [...models, ...tunableEntries()] }));
  // Nothing answers there, so that a delivery can be retried and a video waits.
  const webhooks = { allowed_networks: ['127.0.0.0/8'], allowed_ports: [8443] };
  chain = await startEvmChain(Date.now());
  const { usdc, usdt } = chain.tokens;
  const ethereum = { rpc_url: chain.url, contracts: { usdc, usdt }, screening_oracle: 'none' };
  const deposits = { evm_xpub: TEST_XPUB, chains: { ethereum }, open_per_org: 10_000 };
  stack = await openRentalStack({ settings: () => ({ models_file, webhooks, deposits }) });
  const argv = ['admin', 'key', 'create', '--org', stack.customer.orgId, '--name', 'all', '--scopes', 'all'];
  apiKey = NewApiKey.parse(await stack.controlPlane.operator(...argv)).key;
  api = openApiClient(stack.controlPlane.baseUrl, apiKey);
});

afterEach(async () => {
  await verifyLedger(stack.controlPlane);
});

afterAll(async () => {
  await chain.close();
  expect(await stack.end()).toEqual([]);
  rmSync(dir, { recursive: true });
});

const Chains = z.object({ data: z.array(z.looseObject({ final: z.number().nullable() })) });

type Asked = Pick<KeyedRequest, 'method' | 'path' | 'body'>;

/** A request of each operation that takes an Idempotency-Key, with what it needs to be there. */
const REQUESTS: Record<string, () => Promise<Asked>> = {
  createInstance: async () => post('/instances', await oneLaunch()),
  renameInstance: async () => ({ method: 'PATCH', path: `/instances/${await launched()}`, body: { name: 'renamed' } }),
  deleteInstance: async () => ({ method: 'DELETE', path: `/instances/${await launched()}` }),
  createApiKey: async () => post('/api-keys', { name: 'made', scopes: ['instances: read'] }),
  createInvitation: async () => post('/invitations', { role: 'member' }),
  createSshKey: async () => {
    const { publicKey } = await makeIdentity(join(stack.dir, 'ssh'), randomUUID());
    return post('/ssh-keys', { name: 'made', public_key: publicKey });
  },
  createRegistryCredential: async () => {
    const login = { username: 'me', password: 'secret' };
    return post('/registry-credentials', { name: 'made', registry: stack.guarded.host, ...login });
  },
  createWebhookEndpoint: async () => post('/webhook-endpoints', ENDPOINT),
  changeWebhookEndpoint: async () => {
    return { method: 'PATCH', path: `/webhook-endpoints/${await endpoint()}`, body: { enabled: false } };
  },
  rotateWebhookSecret: async () => post(`/webhook-endpoints/${await endpoint()}/rotate-secret`),
  testWebhookEndpoint: async () => post(`/webhook-endpoints/${await endpoint()}/test`, {}),
  retryWebhookDelivery: async () => {
    const id = await endpoint();
    await launched();
    const path = `/webhook-endpoints/${id}/deliveries`;
    const delivery = await eventually('failed delivery', 20_000, async () => {
      const { data } = await api.get(path, pageSchema(WebhookDelivery));
      return data.find(({ status }) => status === 'retrying');
    });
    return post(`${path}/${delivery.id}/retry`);
  },
  becomeSupplier: async () => post('/community/supplier'),
  registerMachine: async () => {
    await api.post('/community/supplier', undefined, z.unknown());
    return post('/community/machines', MACHINE);
  },
  reissueEnrollmentToken: async () => post(`/community/machines/${await machine()}/token`),
  changeMachine: async () => {
    return { method: 'PATCH', path: `/community/machines/${await machine()}`, body: { price_per_hour: 2 } };
  },
  delistMachine: async () => ({ method: 'DELETE', path: `/community/machines/${await machine()}` }),
  relistMachine: async () => post(`/community/machines/${await machine()}/list`),
  changePayoutDestination: async () => {
    await api.post('/community/supplier', undefined, z.unknown());
    return { method: 'PUT', path: '/community/payout-destination', body: DESTINATION };
  },
  cancelPayoutDestination: async () => {
    await api.post('/community/supplier', undefined, z.unknown());
    const path = '/community/payout-destination';
    for (const digit of ['1', '2'])
      await api.put(path, { ...DESTINATION, address: `0x${digit.repeat(40)}` }, z.unknown());
    return { method: 'DELETE', path: `${path}/pending` };
  },
  createVideo: async () => post('/videos', VIDEO),
  cancelVideo: async () => post(`/videos/${(await api.post('/videos', VIDEO, VideoJob)).id}/cancel`),
  createUpload: async () => post('/uploads', UPLOAD),
  completeUpload: async () => {
    const { id } = await api.post('/uploads', UPLOAD, Named);
    const part = await sendForm(`/uploads/${id}/parts`, { data: new Blob([TRAINING]) });
    return post(`/uploads/${id}/complete`, { part_ids: [part] });
  },
  cancelUpload: async () => post(`/uploads/${(await api.post('/uploads', UPLOAD, Named)).id}/cancel`),
  createDeposit: async () => {
    await eventually('chain that is read', 20_000, async () => {
      const { data } = Chains.parse(await stack.controlPlane.operator('admin', 'deposit', 'chains'));
      return data.find(({ final }) => final !== null);
    });
    return post('/deposits', { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 });
  },
  createFineTuningJob: async () => post('/fine_tuning/jobs', await trainingJob()),
  cancelFineTuningJob: async () => {
    const { id } = await api.post('/fine_tuning/jobs', await trainingJob(), Named);
    return post(`/fine_tuning/jobs/${id}/cancel`);
  },
};

const Named = z.looseObject({ id: z.string() });
const TRAINING = trainingLines(10);
const UPLOAD = {
  bytes: Buffer.byteLength(TRAINING),
  filename: 'a.jsonl',
  mime_type: 'text/jsonl',
  purpose: 'fine-tune',
};

async function trainingJob(): Promise<object> {
  const file = await sendForm('/files', { purpose: 'fine-tune', file: new Blob([TRAINING]) });
  return { model: 'tiny-base', training_file: file, method: { type: 'lora' }, svc: { max_budget_usd: 6 } };
}

/** The id of what the form has made. */
async function sendForm(path: string, fields: Record<string, string | Blob>): Promise<string> {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string') body.set(name, value);
    else body.set(name, value, 'a.jsonl');
  }
  const headers = { authorization: `Bearer ${apiKey}` };
  const answer = await fetch(`${stack.controlPlane.baseUrl}${path}`, { method: 'POST', headers, body });
  return Named.parse(await answer.json()).id;
}

const ENDPOINT = { url: 'https://127.0.0.1:8443/hook', event_types: ['instance.creating'] };
const VIDEO = { model: 'acme/director', prompt: 'a cat', seconds: 4 };
const DESTINATION = { chain: 'base', address: `0x${'3'.repeat(40)}` };
const MACHINE = { region: 'eu-west', price_per_hour: 1 };

function post(path: string, body?: object): Asked {
  return { method: 'POST', path, ...(body === undefined ? {} : { body }) };
}

async function endpoint(): Promise<string> {
  return (await api.post('/webhook-endpoints', ENDPOINT, NewWebhookEndpoint)).id;
}

async function machine(): Promise<string> {
  await api.post('/community/supplier', undefined, z.unknown());
  return (await api.post('/community/machines', MACHINE, CommunityMachineRegistration)).machine.machine_id;
}

/** The machine is on offer after a restart as soon as its agent is back. */
async function oneLaunch(): Promise<object> {
  await waitForOffering(stack.controlPlane);
  return { ...ONE_GPU, image: stack.image.ref };
}

async function launched(): Promise<string> {
  await waitForOffering(stack.controlPlane);
  return (await stack.rent()).id;
}

function keyed(asked: Asked, key = apiKey): KeyedRequest {
  return { ...asked, apiKey: key, idempotencyKey: randomUUID() };
}

/** The only launch of the customer: checks what it must have had once, when it runs. */
async function oneOfEach(customer: Account, { headers }: WireAnswer): Promise<Instance> {
  expect(await followOperation(customer.api, headers['operation-id'] ?? '')).toMatchObject({ state: 'succeeded' });
  const { data } = await customer.api.get('/instances', pageSchema(Instance));
  expect(data).toHaveLength(1);
  const database = new Database(stack.controlPlane.databaseFile, { readonly: true });
  const count = `select count(*) from operations where kind = 'instance.create' and org_id = ?`;
  expect(database.prepare(count).pluck().get(customer.orgId)).toBe(1);
  database.close();
  const [instance] = data as [Instance];
  const filters = { label: [`svc.instance_id=${instance.id}`] };
  expect(await stack.engine.docker.listContainers({ all: true, filters })).toHaveLength(1);
  return instance;
}

/** Ends the one instance of a customer: what its balance has lost is what its one row of usage says. */
async function oneCharge({ api: payer }: Account, { id }: Instance): Promise<void> {
  await terminate(payer, id);
  const { data: usage } = await payer.get('/usage?bucket=month', pageSchema(UsageRow));
  expect(usage.map((row) => row.instance_id)).toEqual([id]);
  const { balance, held_cents: held } = await payer.get('/balance', Balance);
  expect(held).toBe(0);
  expect(Math.abs((100 - Number(balance)) * 100 - (usage[0]?.cost_cents ?? 0))).toBeLessThanOrEqual(1);
}

test.each(Array.from({ length: ROUNDS }, (_, round) => round))(
  'fifty equal launches at once over their own connections: one operation, one container, one charge, equal answers (%d)',
  async (round) => {
    const customer = await openCustomer(stack, `crowd ${round}`);
    const request = keyed(post('/instances', await oneLaunch()), customer.key);
    const answers = await Promise.all(Array.from({ length: CALLERS }, () => sendKeyed(stack.controlPlane, request)));
    // A caller that has waited too long is asked to send the request again.
    const late = answers.filter(({ status }) => status === 409);
    expect(late.filter(({ body }) => !body.includes('idempotency_key_in_use'))).toEqual([]);
    const accepted = answers.filter((answer) => !late.includes(answer));
    const firsts = accepted.filter(({ isReplay }) => !isReplay);
    expect(firsts).toMatchObject([{ status: 202 }]);
    const [first] = firsts as [WireAnswer];
    const replay = { ...first, isReplay: true };
    expect(accepted.filter(({ isReplay }) => isReplay)).toEqual(Array(accepted.length - 1).fill(replay));
    expect(await sendKeyed(stack.controlPlane, request)).toEqual(replay);
    await oneCharge(customer, await oneOfEach(customer, first));
  },
);

test('every route that takes an Idempotency-Key has a request here', async () => {
  const Document = z.object({ paths: z.record(z.string(), z.record(z.string(), z.unknown())) });
  const Taking = z.object({ operationId: z.string(), parameters: z.array(z.object({ name: z.string() })) });
  const { paths } = await api.get('/openapi.json', Document);
  const taking = Object.values(paths)
    .flatMap((methods) => Object.values(methods))
    .flatMap((operation) => Taking.safeParse(operation).data ?? [])
    .filter(({ parameters }) => parameters.some(({ name }) => name === 'Idempotency-Key'));
  expect(taking.map(({ operationId }) => operationId).toSorted()).toEqual(Object.keys(REQUESTS).toSorted());
});

// Specification 8: Every answer to an Idempotency-Key outlives its process, byte for byte, with the secrets in it.
test.each(inParts(Object.keys(REQUESTS)))(
  '%s: the process is killed with the last reply, and the next one gives the same answers, byte for byte',
  async (_names, operationIds) => {
    const answered: [KeyedRequest, WireAnswer][] = [];
    for (const operationId of operationIds) {
      const request = keyed((await REQUESTS[operationId]?.()) ?? post('/none'));
      const isLast = operationId === operationIds.at(-1);
      const first = await (isLast ? sendAndKillAtReply : sendKeyed)(stack.controlPlane, request);
      expect(first.status).toBeLessThan(300);
      expect(first.isReplay).toBe(false);
      answered.push([request, first]);
    }
    await stack.controlPlane.daemon.start();
    for (const [request, first] of answered)
      expect(await sendKeyed(stack.controlPlane, request)).toEqual({ ...first, isReplay: true });
  },
);

/** The operations that share a kill, and their names for the title of the test. */
function inParts(operationIds: readonly string[]): [names: string, operationIds: readonly string[]][] {
  return Array.from({ length: Math.ceil(operationIds.length / SHARING) }, (_, part) => {
    const its = operationIds.slice(part * SHARING, (part + 1) * SHARING);
    return [its.join(', '), its];
  });
}

test.each(DEATHS)('a launch that is killed %d ms after the commit of its %s is one launch', async (...moment) => {
  await launchThatDies(moment);
});

// Specification 8: A process that dies between an effect and its answer: an equal request gets that answer from the next one.
test('kill -9 between the effect of a launch and its reply: the next process returns the result', async () => {
  const fates: string[] = [];
  while (fates.length < TRIES && !fates.includes('done, not answered')) fates.push(await launchThatDies([0, 'effect']));
  expect(fates).toContain('done, not answered');
});

/** The state of a launch at the death of its process, as the next process reports it. */
async function launchThatDies([afterMs, commit]: Moment): Promise<'not begun' | 'done, not answered' | 'answered'> {
  const customer = await openCustomer(stack, randomUUID());
  const request = keyed(post('/instances', await oneLaunch()), customer.key);
  const reply = await sendAndKillAtCommit(stack.controlPlane, request, {
    query: COMMITS[commit],
    value: customer.orgId,
    afterMs,
  });
  await stack.controlPlane.daemon.start();
  const answer = await sendKeyed(stack.controlPlane, request);
  expect(answer).toMatchObject({ ...reply, status: 202, isReplay: reply !== undefined || answer.isReplay });
  expect(await sendKeyed(stack.controlPlane, request)).toEqual({ ...answer, isReplay: true });
  await oneCharge(customer, await oneOfEach(customer, answer));
  if (reply !== undefined) return 'answered';
  return answer.isReplay ? 'done, not answered' : 'not begun';
}
