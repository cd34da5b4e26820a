// A refusal of a model server may quote a prompt, so its text is read but never logged.
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { contextExceeded, isLoading, refusalOf } from '../../../control-plane/models/gateway/upstream-refusals.ts';
import { createLog } from '../../../shared/log.ts';
import { someModels } from '../../kit/models.ts';

const PROMPT = 'my diagnosis is secret';

test.each([
  [
    400,
    { error: { type: 'exceed_context_size_error', code: 400, message: `too long: ${PROMPT}` } },
    'context_length_exceeded',
  ],
  [422, { error: { type: 'bad_request', code: 'odd_order', message: PROMPT } }, 'invalid_request'],
  [500, { error: { type: PROMPT, message: PROMPT } }, 'upstream_error'],
  [500, PROMPT, 'upstream_error'],
])('a status %d with %j is %s, and the log has the names of the error alone', async (status, answer, code) => {
  const lines: string[] = [];
  const log = createLog('test', 'info', { write: (line: string) => void lines.push(line) });
  const [model] = someModels();
  if (model === undefined) throw new Error('there is no model');
  const exchange = { status, headers: {}, body: Readable.from([Buffer.from(JSON.stringify(answer))]) };
  const upstream = { base_url: 'http://127.0.0.1:1/v1' };
  const refusal = await refusalOf(exchange as never, { upstream: upstream as never, model, log });
  expect(refusal.code).toBe(code);
  expect(lines).toHaveLength(1);
  expect(lines[0]).not.toContain(PROMPT);
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ status, upstream: upstream.base_url });
});

const logged: object[] = [];
async function refused(status: number, text: string): Promise<{ code: string; detail: string }> {
  logged.length = 0;
  const write = (line: string): void => void logged.push(JSON.parse(line) as object);
  const [model] = someModels();
  if (model === undefined) throw new Error('there is no model');
  const exchange = { status, headers: {}, body: Readable.from([Buffer.from(text)]) };
  const about = { upstream: { base_url: 'http://a/v1' } as never, model, log: createLog('test', 'info', { write }) };
  const { code, details } = await refusalOf(exchange as never, about);
  return { code, detail: details.detail };
}

describe('a status', () => {
  test.each([
    [401, 'api_key_file'],
    [404, 'base_url'],
    [500, 'its own log'],
  ])('%d tells the operator in the log to look at %s', async (status, what) => {
    await refused(status, '{}');
    expect(logged[0]).toMatchObject({ msg: expect.stringContaining(what) as string });
  });

  test.each([
    [400, 'invalid_request'],
    [413, 'invalid_request'],
    [422, 'invalid_request'],
    [401, 'upstream_error'],
    [404, 'upstream_error'],
    [500, 'upstream_error'],
    [501, 'upstream_error'],
  ])('%d is %s', async (status, code) => {
    expect((await refused(status, '{}')).code).toBe(code);
    const { level } = logged[0] as { level: number };
    expect(level).toBe(code === 'upstream_error' ? 50 : 30);
  });

  test.each([
    [400, "This model's maximum context length is 4096 tokens", true],
    [400, 'the prompt is longer than the max model len', true],
    [400, 'it exceeds the context window', true],
    [400, 'input must have less than 512 tokens', true],
    [500, 'input is too large to process', true],
    [501, 'input is too large to process', false],
    [400, 'the maximum temperature is 2', false],
    [400, 'input must have less than 512 words', false],
  ])('%d with the text %j is too long: %s', async (status, text, isTooLong) => {
    expect((await refused(status, text)).code === 'context_length_exceeded').toBe(isTooLong);
  });

  test.each([
    [{ type: 'exceed_context_size_error', n_prompt_tokens: 77 }, 'What was sent has 77 tokens.'],
    [
      { code: 'context_length_exceeded' },
      'Messages and answer do not fit into the 8192 tokens of acme/small-chat. Shorten',
    ],
  ])('400 with %j says so in its detail', async (error, words) => {
    const { code, detail } = await refused(400, JSON.stringify({ error }));
    expect(code).toBe('context_length_exceeded');
    expect(detail).toContain(words);
  });

  test('has the names of the error in the log, if they are names', async () => {
    await refused(400, JSON.stringify({ error: { type: 'a.b-c', code: 'x'.repeat(64) } }));
    expect(logged[0]).toMatchObject({ error_type: 'a.b-c', error_code: 'x'.repeat(64) });
    await refused(400, JSON.stringify({ error: { type: 'two words', code: 'x'.repeat(65) } }));
    expect(logged[0]).not.toHaveProperty('error_type');
    expect(logged[0]).not.toHaveProperty('error_code');
  });
});

test('a text is too long in other words than a conversation', () => {
  const embedder = someModels().find(({ modality }) => modality === 'embedding');
  if (embedder === undefined) throw new Error('there is no embedder');
  const { context_length: _any, ...unknown } = embedder;
  const field = (error: ReturnType<typeof contextExceeded>): unknown => error.details.errors?.[0]?.field;
  const [known, other] = [contextExceeded(embedder, 'unknown'), contextExceeded(unknown, 3)];
  expect(known.details.detail).toBe(
    'A text does not fit into the 512 tokens of acme/embedder. Shorten it, or send it in parts.',
  );
  expect(other.details.detail).toContain('does not fit into the context of acme/embedder. What was sent has 3 tokens.');
  expect([field(known), field(other)]).toEqual(['input', 'input']);
});

test.each([
  [503, { error: { type: 'unavailable_error' } }, true],
  [503, { error: { type: 'other' } }, false],
  [503, 'no', false],
  [500, { error: { type: 'unavailable_error' } }, false],
])('a server that answers %d with %j is loading: %s', async (status, body, loads) => {
  const exchange = { status, headers: {}, body: Readable.from([Buffer.from(JSON.stringify(body))]) };
  expect(await isLoading(exchange as never)).toBe(loads);
});
