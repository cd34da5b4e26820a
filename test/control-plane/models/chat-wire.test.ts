// Answers and chunks of model servers: those of the common form are read without the schema, and exactly as the schema would.
import { expect, test } from 'vitest';
import { readChunk, readCompletion } from '../../../control-plane/models/gateway/chat-wire.ts';

const USAGE = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };

test.each([
  ['a text', { choices: [{ delta: { content: 'x' } }] }, { content: 'x' }],
  [
    'a text and an open end',
    { choices: [{ delta: { content: 'x' }, finish_reason: null }], usage: null },
    { content: 'x' },
  ],
  ['no text', { choices: [{ delta: {} }] }, { content: '' }],
  ['no delta', { choices: [{ delta: null }] }, { content: '' }],
  [
    'the end',
    { choices: [{ delta: { content: 'x' }, finish_reason: 'stop' }] },
    { content: 'x', finishReason: 'stop' },
  ],
  [
    'usage during the stream',
    { choices: [{ delta: { content: 'x' } }], usage: { prompt_tokens: 1 } },
    { content: 'x', usage: { ...USAGE, completion_tokens: 0, total_tokens: 1 } },
  ],
  ['no content', { choices: [{ delta: { role: 'assistant', content: null } }] }, { content: '', usage: undefined }],
  ['usage alone', { choices: [], usage: { prompt_tokens: 1, completion_tokens: 2 } }, { content: '', usage: USAGE }],
  [
    'usage of nothing yet',
    { choices: [], usage: { prompt_tokens: 1 } },
    { content: '', usage: { ...USAGE, completion_tokens: 0, total_tokens: 1 } },
  ],
  [
    'usage with thoughts',
    {
      choices: [],
      usage: { prompt_tokens: 1, completion_tokens: 2, completion_tokens_details: { reasoning_tokens: 1 } },
    },
    { content: '', usage: { ...USAGE, completion_tokens_details: { reasoning_tokens: 1 } } },
  ],
  [
    'usage that is not a count',
    { choices: [], usage: { prompt_tokens: -1, completion_tokens: 2 } },
    { content: '', usage: undefined },
  ],
  ['a thought', { choices: [{ delta: { content: null, reasoning_content: 'h' } }] }, { content: '', thought: 'h' }],
  ['a thought of another name', { choices: [{ delta: { reasoning: 'h' } }] }, { content: '', thought: 'h' }],
  ['a number as thought', { choices: [{ delta: { content: 'x', reasoning: 1 } }] }, { content: 'x' }],
  ['a text as delta', { choices: [{ delta: 'x' }] }, undefined],
  ['an error', { choices: [{ delta: { content: 'x' } }], error: {} }, undefined],
  ['a number as text', { choices: [{ delta: { content: 1 } }] }, undefined],
  ['an unknown end', { choices: [{ delta: { content: 'x' }, finish_reason: 1 }] }, undefined],
  ['no choices', { choices: 'x' }, undefined],
  ['null', null, undefined],
])('a chunk of a server with %s is read as the schema says', (_what, chunk, read) => {
  expect(readChunk(JSON.stringify(chunk))).toEqual(
    read && { thought: '', finishReason: undefined, usage: undefined, ...read },
  );
});

test('a chunk and an answer with a hundred thousand values are not read, because that would take long', () => {
  const many = Array.from({ length: 100_000 }, () => ({}));
  expect(readChunk(JSON.stringify({ choices: [], many }))).toBeUndefined();
  expect(readCompletion(JSON.stringify({ ...ANSWER, many }))).toBeUndefined();
});

const ANSWER = {
  choices: [{ message: { content: 'x' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 1, completion_tokens: 2 },
};

test.each([
  ['of the common form', ANSWER, { content: 'x', finishReason: 'stop', usage: USAGE }],
  ['without usage', { ...ANSWER, usage: null }, { content: 'x', finishReason: 'stop' }],
  [
    'without a text',
    { choices: [{ message: { content: null }, finish_reason: 'length' }] },
    { content: '', finishReason: 'length' },
  ],
  [
    'with a thought',
    { choices: [{ message: { content: 'x', reasoning_content: 'h' }, finish_reason: 'stop' }] },
    { content: 'x', thought: 'h', finishReason: 'stop' },
  ],
  [
    'with a thought alone',
    { choices: [{ message: { content: null, reasoning: 'h' }, finish_reason: 'length' }] },
    { content: '', thought: 'h', finishReason: 'length' },
  ],
  ['with an unknown end', { choices: [{ message: { content: 'x' }, finish_reason: 'x' }] }, undefined],
  ['without choices', { choices: [] }, undefined],
  ['with a number as text', { choices: [{ message: { content: 1 }, finish_reason: 'stop' }] }, undefined],
  ['with usage that is no count', { ...ANSWER, usage: { prompt_tokens: 'x' } }, undefined],
])('an answer of a server %s is read as the schema says', (_what, answer, read) => {
  expect(readCompletion(JSON.stringify(answer))).toEqual(read && { thought: '', usage: undefined, ...read });
});
