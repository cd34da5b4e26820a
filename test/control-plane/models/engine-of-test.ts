// The public API in front of real model servers (kit/llama-server.ts): calls, prices and receipts for the tests of a file.
import { parseModels } from '../../../control-plane/models/catalog/models.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import { Receipt } from '../../../shared/api/receipt.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Answer } from '../../contract/api.ts';
import { api, openApiForEachTest, owner } from '../../contract/api-of-test.ts';
import type { LlamaServer } from '../../kit/llama-server.ts';
import { eventually } from '../../kit/processes.ts';

const PRICES = { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 };

/** The entry of a model as an operator writes it. Its context is that of the kit's servers. */
export function chatModel({ baseUrl }: LlamaServer, changes: object = {}): object {
  return {
    id: 'acme/tiny',
    modality: 'chat',
    owned_by: 'acme',
    pricing: PRICES,
    context_length: 512,
    max_output_tokens: 256,
    supported_parameters: ['stop', 'seed', 'top_p', 'presence_penalty', 'frequency_penalty'],
    upstreams: [{ base_url: baseUrl, model: 'tiny', engine: 'llama_cpp' }],
    ...changes,
  };
}

/** Every test of the file gets an API and an account of its own. The servers may be those of all tests. */
export function openEngineForEachTest(models: () => object[]): void {
  openApiForEachTest(() => ({
    settings: { models: parseModels(JSON.stringify({ models: models() }), 'models.yaml') },
  }));
}

export const user = (content: string): object => ({ messages: [{ role: 'user', content }] });

/** A chat of the account that says hi. */
export function chat(body: object = {}): Promise<Answer> {
  return api.call('POST', '/v1/chat/completions', {
    key: owner.key,
    body: { model: 'acme/tiny', ...user('hi'), ...body },
  });
}

/** The API over real connections, with its /v1. */
export async function listen(): Promise<string> {
  const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
  return `http://127.0.0.1:${port}/v1`;
}

/** The same as `chat`, but its answer can be left. */
export async function openChat(baseUrl: string, body: object, signal: AbortSignal): Promise<Response> {
  return fetch(`${baseUrl}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${owner.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'acme/tiny', ...user('hi'), ...body }),
    signal,
  });
}

export async function receiptOf({ headers }: Answer): Promise<Receipt> {
  const { json } = await api.call('GET', `/v1/receipts/${headers['x-receipt-id']}`, { key: owner.key });
  return Receipt.parse(json);
}

/** The newest receipts of the account, once all of them are closed. */
export function closedReceipts(): Promise<Receipt[]> {
  return eventually('closed receipts', 10_000, async () => {
    const { json } = await api.call('GET', '/v1/receipts', { key: owner.key });
    const { data } = pageSchema(Receipt).parse(json);
    return data.length > 0 && data.every(({ state }) => state !== 'open') ? data : undefined;
  });
}

/** What a receipt says of an answer with these tokens. */
export function priced(promptTokens: number, completionTokens: number): Partial<Receipt> {
  const { input_per_1m_tokens_cents: input, output_per_1m_tokens_cents: output } = PRICES;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    // A price in cents for a million tokens is the same number in microcents for one.
    cost: dollarText(BigInt(promptTokens * input + completionTokens * output)),
  };
}

/** Cents that are set aside for requests of the account. */
export async function heldCents(): Promise<unknown> {
  const { json } = await api.call('GET', '/v1/balance', { key: owner.key });
  return json['held_cents'];
}
