// The part of the demo that calls a model: the model is listed, streams an answer, and leaves a receipt.
import { ChatCompletionChunk } from '../../shared/api/chat.ts';
import { Model } from '../../shared/api/model.ts';
import { Receipt } from '../../shared/api/receipt.ts';
import type { Customer } from '../kit/stack.ts';
import { MODEL } from './model.ts';
import type { Show } from './show.ts';

/** Between two notes: where each is a line of its own, a word is too little. */
const NOTE_CHARS = 24;

/** Returns what the chat cost, in dollars; throws StepFailed at the first step that does not hold. */
export async function chat(show: Show, baseUrl: string, customer: Customer): Promise<number> {
  const { api, key } = customer;
  await show.step('GET /v1/models', async () => {
    const { id, pricing } = await api.get(`/models/${MODEL}`, Model);
    const price = `${pricing.input_per_1m_tokens_cents} and ${pricing.output_per_1m_tokens_cents} cents for a million tokens`;
    const standIn = 'a scripted stand-in answers for it, no GPU computes';
    return { value: undefined, result: `${id}, ${price} in and out; ${standIn}` };
  });
  const receiptId = await show.step('Chat, streamed', async (note) => {
    const started = performance.now();
    const response = await fetch(`${baseUrl}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, stream: true, messages: [{ role: 'user', content: 'What is this?' }] }),
      signal: AbortSignal.timeout(30_000),
    });
    if (!response.ok || response.body === null) throw new Error(`${response.status}: ${await response.text()}`);
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
      const data = event.replace(/^data: /, '');
      if (data === '[DONE]') return;
      const content = ChatCompletionChunk.parse(JSON.parse(data)).choices[0]?.delta.content ?? '';
      if (content !== '') yield content;
    }
  }
  throw new Error('the stream ended without [DONE]');
}
