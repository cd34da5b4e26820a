// A refusal of a model server may quote a prompt, so its text is read but never logged.
import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { refusalOf } from '../../../control-plane/models/gateway/upstream-refusals.ts';
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
