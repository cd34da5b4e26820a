// What embeddings hold and cost, and how they are split, depending on the model and on the bytes of the texts.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Reply } from '../../../control-plane/base/http/route.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { parseModels } from '../../../control-plane/models/catalog/models.ts';
import { findReceipt, pageOfReceipts } from '../../../control-plane/models/gateway/store.ts';
import { type Asked, type FakeAnswer, type FakeUpstream, openFakeUpstream } from '../../kit/fake-upstream.ts';
import { openWorld, type World } from '../../kit/world.ts';

/** A token costs a quarter of a cent. */
const CENTS_PER_1M = 250_000;

let upstream: FakeUpstream;
let world: World;
let orgId: string;
let principalId: string;
beforeEach(async () => {
  upstream = await openFakeUpstream();
  const server = { base_url: upstream.baseUrl, model: 'm' };
  const model = {
    id: 'acme/embedder',
    modality: 'embedding',
    owned_by: 'acme',
    pricing: { input_per_1m_tokens_cents: CENTS_PER_1M },
    upstreams: [
      { ...server, max_inputs: 3 },
      { ...server, model: 'n', max_inputs: 2 },
    ],
  };
  world = await openWorld(1, { settings: { models: parseModels(JSON.stringify({ models: [model] }), 'models.yaml') } });
  ({ orgId, principalId } = await world.customer(2_000));
});
afterEach(async () => {
  await world.verify();
  await world.close();
  await upstream.close();
});

const inputsOf = ({ body }: Asked): string[] => body['input'] as string[];
const uncounted = (asked: Asked): FakeAnswer => ({
  body: { data: inputsOf(asked).map((_, index) => ({ index, embedding: [1] })) },
});
function embed(input: string | string[], more: object = {}, { signal: gone } = new AbortController()): Promise<Reply> {
  const caller = { orgId, principalId, scopes: [] };
  const body = { model: 'acme/embedder', input, encoding_format: 'float' as const, ...more };
  return world.rooms.gateway.embed({ caller, requestId: 'req_test', gone, body });
}
const held = async (): Promise<bigint> => (await world.rooms.ledger.balance(world.db.read, wallet(orgId))).heldUcents;

test('texts are split for the server that takes the fewest at once, because any server may be asked', async () => {
  upstream.usual = uncounted;
  await embed(['a', 'b', 'c', 'd', 'e']);
  expect(upstream.asked.map(inputsOf)).toEqual([['a', 'b'], ['c', 'd'], ['e']]);
});

test.each([
  ['more tokens than its texts can have', 1_000_000_000],
  ['a number of tokens whose sum is none', Number.MAX_SAFE_INTEGER],
])('a server that counts %s changes neither the charge nor the usage', async (_what, tokens) => {
  upstream.usual = (asked) => ({
    body: { data: inputsOf(asked).map((_, index) => ({ index, embedding: [1] })), usage: { prompt_tokens: tokens } },
  });
  const { body, headers } = await embed(['a', 'b', 'c']);
  const { usage } = body as { usage: { prompt_tokens: number } };
  const receipt = await findReceipt(world.db.read, headers?.['x-receipt-id'] ?? '');
  expect(receipt?.prompt_tokens).toBe(usage.prompt_tokens);
  expect(receipt?.charged_ucents).toBe(
    BigInt(Math.ceil((usage.prompt_tokens * CENTS_PER_1M) / 1_000_000)) * 1_000_000n,
  );
});

test('a model whose vectors have one length refuses another length, and names the parameter', async () => {
  await expect(embed('a', { dimensions: 3 })).rejects.toMatchObject({
    code: 'unsupported_parameter',
    details: { errors: [{ field: 'dimensions' }] },
  });
  expect(upstream.asked).toEqual([]);
});

test('the most that texts can cost is held, a token for each byte and 16 around each text, in whole cents', async () => {
  upstream.usual = (asked) => ({ ...uncounted(asked), after: gate.promise });
  const gate = Promise.withResolvers<void>();
  const asking = embed(['\u00e9\u00e9', 'a']);
  await upstream.came(1);
  // 4 + 16 and 1 + 16 tokens: 9.25 cents.
  expect(await held()).toBe(10_000_000n);
  gate.resolve();
  await asking;
  expect(await held()).toBe(0n);
});

test('texts that nobody counts are estimated by their bytes, and their receipt shows a completed request', async () => {
  upstream.usual = uncounted;
  const reply = await embed('\u00e9'.repeat(10));
  expect(await findReceipt(world.db.read, reply.headers?.['x-receipt-id'] ?? '')).toMatchObject({
    ending: 'completed',
    state: 'settled',
    prompt_tokens: 5,
    completion_tokens: 0,
    counted_by: 'estimate',
    charged_ucents: 2_000_000n,
    upstream: upstream.baseUrl,
  });
});

test('a caller that leaves pays for the texts that were embedded until then', async () => {
  const leaving = new AbortController();
  upstream.usual = (asked) => (inputsOf(asked)[0] === 'e' ? { ending: 'stall' } : uncounted(asked));
  const asking = embed(['a', 'b', 'c', 'd', 'e'], {}, leaving);
  await upstream.came(3);
  leaving.abort();
  await expect(asking).rejects.toMatchObject({ code: 'invalid_request' });
  const [receipt] = await pageOfReceipts(world.db.read, { orgId }, undefined, 1);
  expect(receipt).toMatchObject({ ending: 'client_left', prompt_tokens: 4, charged_ucents: 1_000_000n });
  expect(await held()).toBe(0n);
});

test('a caller that leaves before any text was embedded pays nothing', async () => {
  const leaving = new AbortController();
  upstream.usual = () => ({ ending: 'stall' });
  const asking = embed(['a', 'b', 'c'], {}, leaving);
  await upstream.came(1);
  leaving.abort();
  await expect(asking).rejects.toMatchObject({ code: 'invalid_request' });
  const [receipt] = await pageOfReceipts(world.db.read, { orgId }, undefined, 1);
  expect(receipt).toMatchObject({ ending: 'client_left', prompt_tokens: null, charged_ucents: 0n });
});

test('vectors that cannot fit into an answer are refused after the first batch, so that they keep no server busy for nothing', async () => {
  const spaces = ' '.repeat(1024 ** 2);
  upstream.usual = (asked) => ({ body: `${JSON.stringify(uncounted(asked).body)}${spaces}` });
  const inputs = Array.from({ length: 300 }, (_, index) => `${index}`);
  await expect(embed(inputs)).rejects.toMatchObject({
    code: 'upstream_response_too_large',
    message: expect.stringContaining('at most 127 texts') as string,
  });
  expect(upstream.asked).toHaveLength(1);
  const [receipt] = await pageOfReceipts(world.db.read, { orgId }, undefined, 1);
  expect(receipt).toMatchObject({ ending: 'upstream_failed', charged_ucents: 0n });
});
