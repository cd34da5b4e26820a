// The part of the demo that calls a model: a replica of it starts on the supplier's machine, streams an answer, leaves a receipt, and ends.
import { ChatCompletionChunk } from '../../shared/api/chat.ts';
import { Model } from '../../shared/api/model.ts';
import { Receipt } from '../../shared/api/receipt.ts';
import { z } from 'zod';
import type { PricingRow } from '../../shared/api/pricing.ts';
import { engineImage } from '../kit/engine-image.ts';
import { eventually } from '../kit/processes.ts';
import type { Customer, Stack } from '../kit/stack.ts';
import type { DemoGpus } from './gpus.ts';
import { type DemoModel, MODEL, PAUSE_MS } from './model.ts';
import type { Show } from './show.ts';

/** What the customer rents; the model needs one more. */
export const GPUS_RENTED = 2;
/** The number of characters between two notes: if each is a line of its own, a word is too little. */
const NOTE_CHARS = 24;

/** How long a replica may take to be pulled, start and answer. */
const ANSWER_MS_MAX = 90_000;

const Machines = z.object({ data: z.array(z.looseObject({ machine_id: z.string() })) });
const Replicas = z.object({
  data: z.array(z.looseObject({ replica_id: z.string(), state: z.string(), instance_id: z.string().nullable() })),
});
const Rental = z.looseObject({ status: z.string() });

/** Puts the model on the fleet if that can be, and returns the name that calls use. */
export async function deployModel(
  show: Show,
  stack: Stack,
  { model, gpus, offering }: { model: DemoModel; gpus: DemoGpus; offering: PricingRow },
): Promise<string> {
  const { runOnFleet } = model;
  const { controlPlane, registry } = stack;
  if (runOnFleet === undefined || offering.available <= GPUS_RENTED) return MODEL;
  return show.step('Model deployed', async (note) => {
    const { ref } = await engineImage(registry, { ...gpus.image, text: model.text, tokenMs: PAUSE_MS });
    note(`${ref} is in the registry`);
    const [machine] = Machines.parse(await controlPlane.operator('admin', 'machine', 'list')).data;
    await controlPlane.operator('admin', 'machine', 'trust', machine?.machine_id ?? '');
    const name = runOnFleet(ref, offering.gpu_type);
    await controlPlane.operator('admin', 'reload');
    return {
      value: name,
      result: `${name} may run on the supplier's machine, which the operator trusts; nothing of it runs yet`,
    };
  });
}

/** Ends the replica, and waits until its machine is free again. */
export async function endReplica(show: Show, { controlPlane }: Stack, name: string): Promise<void> {
  if (name === MODEL) return;
  await show.step('Replica drained', async (note) => {
    const newest = async () => Replicas.parse(await controlPlane.operator('admin', 'model', 'replicas', name)).data[0];
    const replica = await newest();
    await controlPlane.operator('admin', 'model', 'drain', replica?.replica_id ?? '');
    await eventually('an ended replica', 60_000, async () => {
      const rental = Rental.parse(await controlPlane.operator('admin', 'instance', 'show', replica?.instance_id ?? ''));
      note(`${(await newest())?.state}, its rental is ${rental.status}`);
      await new Promise((resolve) => setTimeout(resolve, 500));
      return rental.status === 'terminated' ? true : undefined;
    });
    return {
      value: undefined,
      result: `${replica?.replica_id} has ended; the platform's revenue pays the supplier for it`,
    };
  });
}

/** Returns what the chat cost, in dollars; throws StepFailed at the first step that does not hold. */
export async function chat(
  show: Show,
  baseUrl: string,
  customer: Customer,
  { name, description }: { name: string; description: string },
): Promise<number> {
  const { api, key } = customer;
  await show.step('GET /v1/models', async () => {
    const { id, pricing } = await api.get(`/models/${name}`, Model);
    const price = `${pricing.input_per_1m_tokens_cents} and ${pricing.output_per_1m_tokens_cents} cents for a million tokens`;
    return { value: undefined, result: `${id}, ${price} in and out; ${description}` };
  });
  const receiptId = await show.step('Chat, streamed', async (note) => {
    const started = performance.now();
    const response = await fetch(`${baseUrl}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: name, stream: true, messages: [{ role: 'user', content: 'What is this?' }] }),
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    });
    if (!response.ok || response.body === null) throw new Error(`${response.status}: ${await response.text()}`);
    if (name !== MODEL) note('a replica starts, and the stream has pings meanwhile');
    let [text, shown, firstMs] = ['', 0, 0];
    for await (const content of contents(response.body)) {
      if (text === '') firstMs = performance.now() - started;
      text += content;
      if (text.length < shown + NOTE_CHARS) continue;
      shown = text.length;
      note(text);
    }
    const result = `"${text}" (its first word after ${firstMs.toFixed(0)} ms)`;
    return { value: response.headers.get('x-receipt-id') ?? '', result };
  });
  return show.step('Receipt', async () => {
    const receipt = await api.get(`/receipts/${receiptId}`, Receipt);
    if (receipt.state !== 'settled') throw new Error(`it is ${receipt.state}`);
    const tokens = `${receipt.prompt_tokens} + ${receipt.completion_tokens} tokens`;
    const result = `${receipt.id}: ${receipt.ending}, ${tokens} counted by ${receipt.counted_by}, $${receipt.cost} of $${receipt.held} that were held`;
    return { value: Number(receipt.cost), result };
  });
}

/** Yields the text as it arrives. @throws Error if the stream does not end as it should */
async function* contents(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const piece of body) {
    const events = (rest + decoder.decode(piece, { stream: true })).split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      const data = event.replace(/^(:.*\n)*data: /, '');
      if (data === '[DONE]') return;
      const content = ChatCompletionChunk.parse(JSON.parse(data)).choices[0]?.delta.content ?? '';
      if (content !== '') yield content;
    }
  }
  throw new Error('the stream ended without [DONE]');
}
