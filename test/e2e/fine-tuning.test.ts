// Fine-tuning on a real fleet: upload, quote, train, follow, download and pay to the second; then everything that a trainer or host can do wrong.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  type FineTuningEvent,
  FineTuningEventList,
  FineTuningJob,
  FineTuningQuoteList,
} from '../../shared/api/fine-tuning.ts';
import { Balance } from '../../shared/api/billing.ts';
import { trainingLines } from '../contract/forms.ts';
import type { AgentHost } from '../kit/agent-host.ts';
import { eventually } from '../kit/processes.ts';
import {
  addHost,
  openAccount,
  openStack,
  openSupplier,
  registerMachine,
  verifyLedger,
  waitForOffering,
  type Account,
  type Stack,
} from '../kit/stack.ts';
import { trainerImage, type TrainerOptions } from '../kit/trainer.ts';

const GPUS = { env: { FAKE_GPU_COUNT: '8' } };
/** One cent a second, for the job and for its machine. */
const DOLLARS_PER_HOUR = 36;
const SCOPES = 'files:read,files:write,finetuning:read,finetuning:write,billing:read,serverless:read';

/** Base models by the trainer behind them. */
const TRAINERS: Record<string, Omit<TrainerOptions, 'name'>> = {
  quick: { steps: 20, every: 8 },
  long: { steps: 100_000, every: 20 },
  crash: { steps: 20, every: 100, fault: 'crashes' },
  hang: { steps: 20, every: 4, fault: 'hangs' },
  liar: { steps: 8, every: 100, fault: 'lies' },
  noise: { steps: 12, every: 100, fault: 'prints garbage' },
};

let stack: Stack;
let host: AgentHost;
let customer: Account;
let client: OpenAI;
let fileId: string;

beforeAll(async () => {
  stack = await openStack({
    gpus: GPUS,
    settings: (_registry, dir) => {
      writeFileSync(join(dir, 'models.yaml'), '{"models": []}');
      return { models_file: join(dir, 'models.yaml') };
    },
  });
  await offerTrainers();
  const supplier = await openSupplier(stack.controlPlane, 'supplier');
  const { machineId, token } = await registerMachine(supplier, DOLLARS_PER_HOUR);
  host = addHost(stack, GPUS);
  const enrolled = await host.enroll(stack.controlPlane.agentUrl, token);
  if (enrolled.code !== 0) throw new Error(enrolled.stderr);
  await host.daemon.start();
  await stack.controlPlane.operator('admin', 'machine', 'approve', machineId);
  await stack.controlPlane.operator('admin', 'machine', 'trust', machineId);
  await waitForOffering(stack.controlPlane);
  customer = await openAccount(stack.controlPlane, 'trainer', SCOPES);
  const credit = ['--org', customer.orgId, '--usd', '100', '--reference', 'first'];
  await stack.controlPlane.operator('admin', 'balance', 'add', ...credit);
  client = new OpenAI({ apiKey: customer.key, baseURL: stack.controlPlane.baseUrl });
  const content = Buffer.from(trainingLines(40));
  fileId = (await client.files.create({ file: await toFile(content, 'train.jsonl'), purpose: 'fine-tune' })).id;
});
afterAll(async () => {
  await verifyLedger(stack.controlPlane);
  expect(await stack.stop()).toEqual([]);
});

async function offerTrainers(): Promise<void> {
  const models = await Promise.all(
    Object.entries(TRAINERS).map(async ([name, options]) => ({
      id: `acme/${name}`,
      modality: 'chat',
      status: 'coming_soon',
      owned_by: 'acme',
      context_length: 1_024,
      pricing: { input_per_1m_tokens_cents: 1, output_per_1m_tokens_cents: 1 },
      fine_tuning: {
        base_model: name,
        image: (await trainerImage(stack.registry, { name: `trainer-${name}`, ...options })).pinnedRef,
        base_model_path: '/model',
        gpu_second_microcents: 1_000_000,
        tokens_per_gpu_second: { min: 10, max: 100 },
        budget_minutes_min: 2,
      },
    })),
  );
  writeFileSync(join(stack.dir, 'models.yaml'), JSON.stringify({ models }));
  await stack.controlPlane.operator('admin', 'reload');
}

function start(model: string, maxBudgetUsd = 10): Promise<FineTuningJob> {
  const body = { model, training_file: fileId, method: { type: 'lora' }, svc: { max_budget_usd: maxBudgetUsd } };
  return customer.api.post('/fine_tuning/jobs', body, FineTuningJob);
}

const read = (id: string): Promise<FineTuningJob> => customer.api.get(`/fine_tuning/jobs/${id}`, FineTuningJob);

async function reached(id: string, status: FineTuningJob['status'], timeoutMs = 120_000): Promise<FineTuningJob> {
  return eventually(`${id} ${status}`, timeoutMs, async () => {
    const job = await read(id);
    if (job.finished_at !== null && job.status !== status) throw new Error(JSON.stringify([job, await events(id)]));
    return job.status === status ? job : undefined;
  });
}

/** All of them, oldest first. */
async function events(id: string): Promise<FineTuningEvent[]> {
  const page = await customer.api.get(`/fine_tuning/jobs/${id}/events?order=asc&limit=200`, FineTuningEventList);
  return page.data;
}

const metricsOf = async (id: string): Promise<FineTuningEvent['data'][]> =>
  (await events(id)).filter(({ type }) => type === 'metrics').map(({ data }) => data);

const download = async (url: string): Promise<string> => {
  const answer = await fetch(url);
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer.text();
};

test('a job is quoted, trained, followed, downloaded and paid to the second', async () => {
  const { data } = await customer.api.post(`/files/${fileId}/quote`, undefined, FineTuningQuoteList);
  expect(data.find(({ model }) => model === 'quick')).toMatchObject({ min_budget_usd: 1.2 });
  const { id } = await start('quick');
  const running = await reached(id, 'running');
  expect(running.result_files).toEqual([]);
  const done = await reached(id, 'succeeded');
  const figures = await metricsOf(id);
  expect(figures.map(({ step }) => step)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
  expect(Number(figures.at(-1)?.['loss'])).toBeLessThan(Number(figures[0]?.['loss']) / 2);
  const checkpoints = await client.fineTuning.jobs.checkpoints.list(id);
  expect(checkpoints.data.map(({ step_number: step }) => step)).toEqual([16, 8]);
  const [url = ''] = done.result_files;
  expect(await download(url)).toContain('after 20 steps');
  // Whole cents are whole seconds here, and the job took about as long as its steps.
  const seconds = done.svc.cost_usd * 100;
  expect(seconds).toBeGreaterThan(3);
  expect(seconds).toBeLessThan(60);
  const { held_cents: held } = await customer.api.get('/balance', Balance);
  expect(held).toBe(0);
});

test('a job goes on while its agent is killed, and each event comes once', async () => {
  const { id } = await start('quick');
  await reached(id, 'running');
  await eventually('some steps', 30_000, async () => ((await metricsOf(id)).length > 3 ? true : undefined));
  await host.daemon.stop('SIGKILL');
  await host.daemon.start();
  await reached(id, 'succeeded');
  expect((await metricsOf(id)).map(({ step }) => step)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
});

test('a cancelled job is stopped on its host, and its last checkpoint is stored', async () => {
  const { id } = await start('long');
  await reached(id, 'running');
  await eventually('some steps', 30_000, async () => ((await metricsOf(id)).length > 3 ? true : undefined));
  await client.fineTuning.jobs.cancel(id);
  const { svc } = await reached(id, 'cancelled');
  expect(svc.cost_usd).toBeGreaterThan(0);
  expect((await client.fineTuning.jobs.checkpoints.list(id)).data).not.toEqual([]);
});

test('a job whose budget is used up is stopped, and what it has learnt is kept', async () => {
  const { id } = await start('long', 1.2);
  const failed = await reached(id, 'failed', 180_000);
  expect(failed).toMatchObject({ error: { code: 'budget_exceeded' } });
  expect(failed.svc.cost_usd).toBeLessThanOrEqual(1.2);
  expect(failed.svc.cost_usd).toBeGreaterThan(0.5);
  expect(await download(failed.result_files[0] ?? '')).toMatch(/after \d+ steps/);
});

test.each([
  ['crash', 'training_failed', 0],
  ['liar', 'result_invalid', 0],
  ['hang', 'budget_exceeded', 60],
] as const)('a job fails if its trainer is a %s: %s', async (model, code, mostCents) => {
  const { id } = await start(model, 1.2);
  const failed = await reached(id, 'failed', 240_000);
  expect(failed).toMatchObject({ error: { code } });
  // What was trained before the last stored checkpoint is paid, and nothing after it.
  expect(failed.svc.cost_usd * 100).toBeLessThanOrEqual(mostCents);
});

test('a trainer that prints garbage between its events still succeeds', async () => {
  const { id } = await start('noise');
  const done = await reached(id, 'succeeded');
  expect(await metricsOf(id)).toHaveLength(12);
  expect(await download(done.result_files[0] ?? '')).toContain('after 12 steps');
});
