// A model on the fleet with real processes: llama.cpp in a container on a supplier's machine, woken by a call and ended when it is idle.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { Receipt } from '../../shared/api/receipt.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { ENGINE_PORT, engineImage } from '../kit/engine-image.ts';
import { TEXT } from '../kit/gguf-model.ts';
import { eventually } from '../kit/processes.ts';
import { openRentalStack, type RentalStack } from '../kit/rental-stack.ts';

const MODEL = 'acme/tiny:economy';
const WAKE_MS_MAX = 90_000;
const Rows = z.object({ data: z.array(z.looseObject({ replica_id: z.string(), state: z.string() })) });
const Machines = z.object({ data: z.array(z.looseObject({ machine_id: z.string() })) });

let stack: RentalStack;
let modelsFile: string;
beforeAll(async () => {
  stack = await openRentalStack({
    settings: (_registryHost, dir) => {
      modelsFile = join(dir, 'models.yaml');
      writeFileSync(modelsFile, '{"models":[]}');
      return { models_file: modelsFile };
    },
  });
});
afterAll(async () => {
  expect(await stack.end()).toEqual([]);
});

async function deploy(): Promise<void> {
  const { ref } = await engineImage(stack.registry);
  const pricing = { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 };
  const deployment = {
    image: ref,
    port: ENGINE_PORT,
    model: 'tiny',
    engine: 'llama_cpp',
    gpu_type: 'H100_SXM',
    max_price_per_hour: 100,
    min_replicas: 0,
    max_replicas: 2,
    start_deadline_seconds: 90,
  };
  const model = {
    id: 'acme/tiny',
    modality: 'chat',
    owned_by: 'acme',
    context_length: 512,
    max_output_tokens: 256,
    pricing,
    upstreams: [{ base_url: 'http://127.0.0.1:9/v1', model: 'nowhere' }],
    economy: { pricing, deployment },
  };
  writeFileSync(modelsFile, JSON.stringify({ models: [model] }));
  await stack.controlPlane.operator('admin', 'reload');
}

const replicas = async (): Promise<z.infer<typeof Rows>['data']> =>
  Rows.parse(await stack.controlPlane.operator('admin', 'model', 'replicas', MODEL)).data;

test('a call wakes a replica on a trusted machine, streams through its tunnel, and a drained replica ends', async () => {
  const { controlPlane, customer } = stack;
  await deploy();
  const [machine] = Machines.parse(await controlPlane.operator('admin', 'machine', 'list')).data;
  await controlPlane.operator('admin', 'machine', 'trust', machine?.machine_id ?? '');
  const client = new OpenAI({
    baseURL: controlPlane.baseUrl,
    apiKey: customer.key,
    maxRetries: 0,
    timeout: WAKE_MS_MAX,
  });
  const messages = [{ role: 'user' as const, content: 'hi' }];

  const stream = await client.chat.completions.create({ model: MODEL, messages, stream: true });
  let said = '';
  for await (const chunk of stream) said += chunk.choices[0]?.delta.content ?? '';
  expect(said).toBe(TEXT);
  const whole = await client.chat.completions.create({ model: MODEL, messages });
  expect(whole.choices[0]?.message.content).toBe(TEXT);
  const [ready, ...others] = await replicas();
  expect([ready?.state, ready?.['machine_id'], others]).toEqual(['ready', machine?.machine_id, []]);
  const receipts = await customer.api.get('/receipts', pageSchema(Receipt));
  expect(receipts.data.map(({ ending, tier, counted_by: by }) => [ending, tier, by])).toEqual([
    ['completed', 'economy', 'upstream'],
    ['completed', 'economy', 'upstream'],
  ]);

  await controlPlane.operator('admin', 'model', 'drain', ready?.replica_id ?? '');
  await eventually('an ended replica', 40_000, async () =>
    (await replicas())[0]?.state === 'ended' ? true : undefined,
  );
});
