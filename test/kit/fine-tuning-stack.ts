// A stack that trains: one trusted machine, the given trainers as models, and a customer with a training file; for e2e tests.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { type FineTuningEvent, FineTuningEventList, FineTuningJob } from '../../shared/api/fine-tuning.ts';
import { DISK_GB_MIN } from '../../shared/limits.ts';
import { trainingLines } from '../contract/forms.ts';
import type { AgentHost } from './agent-host.ts';
import type { EngineOptions } from './engine.ts';
import { eventually } from './processes.ts';
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
} from './stack.ts';
import { trainerImage, type TrainerOptions } from './trainer.ts';

const GPUS = { env: { FAKE_GPU_COUNT: '8' } };
/** One cent a second, for the job and for its machine. */
const DOLLARS_PER_HOUR = 36;
const SCOPES = 'files:read,files:write,finetuning:read,finetuning:write,billing:read,serverless:read';

/** Several jobs are followed at once with one key, each with many requests a second. */
const RATE_LIMITS = { per_key_per_second: 1_000, per_ip_per_second: 2_000, burst: 2_000 };

/** Base models by the trainer behind them. */
export type Trainers = Record<string, Omit<TrainerOptions, 'name'>>;

export interface FineTuningStack extends Stack {
  host: AgentHost;
  customer: Account;
  client: OpenAI;
  /** The training file that `train` names. */
  fileId: string;
  train(model: string, maxBudgetUsd?: number): Promise<FineTuningJob>;
  /** Waits for the status. Rejects with the job and its events if it ends in another one. */
  reached(id: string, status: FineTuningJob['status'], timeoutMs?: number): Promise<FineTuningJob>;
  /** All of them, oldest first. */
  events(id: string): Promise<FineTuningEvent[]>;
  /** Checks the books and ends all of it. Returns what was left over. */
  end(): Promise<string[]>;
}

export async function openFineTuningStack(
  trainers: Trainers,
  options: { engine?: EngineOptions } = {},
): Promise<FineTuningStack> {
  const stack = await openStack({
    ...options,
    gpus: GPUS,
    settings: (_registry, dir) => {
      writeFileSync(join(dir, 'models.yaml'), '{"models": []}');
      return { models_file: join(dir, 'models.yaml'), rate_limits: RATE_LIMITS };
    },
  });
  try {
    await offerTrainers(stack, trainers);
    const host = await addTrustedHost(stack);
    const customer = await openAccount(stack.controlPlane, 'trainer', SCOPES);
    const credit = ['--org', customer.orgId, '--usd', '100', '--reference', 'first'];
    await stack.controlPlane.operator('admin', 'balance', 'add', ...credit);
    const client = new OpenAI({ apiKey: customer.key, baseURL: stack.controlPlane.baseUrl });
    const content = Buffer.from(trainingLines(40));
    const { id } = await client.files.create({ file: await toFile(content, 'train.jsonl'), purpose: 'fine-tune' });
    return { ...stack, host, customer, client, fileId: id, ...jobsOf(customer, id), end: () => end(stack) };
  } catch (error) {
    await stack.stop();
    throw error;
  }
}

async function offerTrainers({ registry, dir, controlPlane }: Stack, trainers: Trainers): Promise<void> {
  const models = await Promise.all(
    Object.entries(trainers).map(async ([name, options]) => ({
      id: `acme/${name}`,
      modality: 'chat',
      status: 'coming_soon',
      owned_by: 'acme',
      context_length: 1_024,
      pricing: { input_per_1m_tokens_cents: 1, output_per_1m_tokens_cents: 1 },
      fine_tuning: {
        base_model: name,
        image: (await trainerImage(registry, { name: `trainer-${name}`, ...options })).pinnedRef,
        base_model_path: '/model',
        disk_gb: DISK_GB_MIN,
        gpu_second_microcents: 1_000_000,
        tokens_per_gpu_second: { min: 10, max: 100 },
        budget_minutes_min: 2,
      },
    })),
  );
  writeFileSync(join(dir, 'models.yaml'), JSON.stringify({ models }));
  await controlPlane.operator('admin', 'reload');
}

async function addTrustedHost(stack: Stack): Promise<AgentHost> {
  const { controlPlane } = stack;
  const supplier = await openSupplier(controlPlane, 'supplier');
  const { machineId, token } = await registerMachine(supplier, DOLLARS_PER_HOUR);
  const host = addHost(stack, GPUS);
  const enrolled = await host.enroll(controlPlane.agentUrl, token);
  if (enrolled.code !== 0) throw new Error(enrolled.stderr);
  await host.daemon.start();
  await controlPlane.operator('admin', 'machine', 'approve', machineId);
  await controlPlane.operator('admin', 'machine', 'trust', machineId);
  await waitForOffering(controlPlane);
  return host;
}

function jobsOf({ api }: Account, fileId: string): Pick<FineTuningStack, 'train' | 'reached' | 'events'> {
  const events = async (id: string): Promise<FineTuningEvent[]> => {
    const page = await api.get(`/fine_tuning/jobs/${id}/events?order=asc&limit=200`, FineTuningEventList);
    return page.data;
  };
  return {
    events,
    train: (model, maxBudgetUsd = 10) => {
      const svc = { max_budget_usd: maxBudgetUsd };
      return api.post(
        '/fine_tuning/jobs',
        { model, training_file: fileId, method: { type: 'lora' }, svc },
        FineTuningJob,
      );
    },
    reached: (id, status, timeoutMs = 120_000) =>
      eventually(`${id} ${status}`, timeoutMs, async () => {
        const job = await api.get(`/fine_tuning/jobs/${id}`, FineTuningJob);
        if (job.finished_at !== null && job.status !== status) throw new Error(JSON.stringify([job, await events(id)]));
        return job.status === status ? job : undefined;
      }),
  };
}

async function end(stack: Stack): Promise<string[]> {
  try {
    await verifyLedger(stack.controlPlane);
    return await stack.stop();
  } catch (error) {
    await stack.stop();
    throw error;
  }
}
