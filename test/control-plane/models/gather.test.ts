// A whole answer that is read as a stream: what the server of the model and its caller learn from each ending.
import { expect, test } from 'vitest';
import { OutboundError } from '../../../control-plane/base/outbound/policy.ts';
import { gather } from '../../../control-plane/models/gateway/whole-answer.ts';
import { type Clock, systemClock } from '../../../shared/clock.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { CHAT_ANSWER_BYTES_MAX, STREAM_EVENT_BYTES_MAX } from '../../../shared/limits.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const chunk = (content: string, last?: object): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }], ...last })}\n\n`;
const LAST = {
  choices: [{ index: 0, delta: { content: 'there.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 },
};

/** The server sends these texts; the last one is followed by `end`, or by nothing. */
function stage(
  texts: readonly string[],
  end?: (signal: AbortController) => Promise<void>,
  clock: Clock = systemClock(),
) {
  const caller = new AbortController();
  const told: string[] = [];
  async function* body(): AsyncGenerator<Buffer> {
    for (const text of texts) yield Buffer.from(text);
    await end?.(caller);
  }
  const answering = {
    exchange: { body: body() },
    answered: () => void told.push('answered'),
    failed: () => void told.push('failed'),
    end: () => void told.push('end'),
  } as never;
  return { told, gathered: gather(answering, caller, { clock }) };
}

test('a whole answer counts for the server as a success, and its connection is read to the end', async () => {
  const { gathered, told } = stage([chunk('Hello '), chunk('there.', LAST), 'data: [DONE]\n\n']);
  expect(await gathered).toMatchObject({ completion: { content: 'Hello there.' } });
  await expect.poll(() => told).toEqual(['answered', 'end']);
});

test('a caller that leaves after the answer has begun pays for what was there', async () => {
  const { gathered, told } = stage([chunk('Hello ')], async (caller) => {
    caller.abort(new Error('the connection was closed'));
    throw new Error('aborted');
  });
  expect(await gathered).toMatchObject({ left: { content: 'Hello ' } });
  expect(told).toEqual(['end']);
});

test('a caller that leaves while the model thinks pays for the thoughts', async () => {
  const thought = { choices: [{ index: 0, delta: { reasoning_content: 'Well, ' }, finish_reason: null }] };
  const { gathered } = stage([`data: ${JSON.stringify(thought)}\n\n`], async (caller) => {
    caller.abort(new Error('the connection was closed'));
    throw new Error('aborted');
  });
  expect(await gathered).toMatchObject({ left: { content: '', thought: 'Well, ' } });
});

test('a server that keeps its stream open after [DONE] is left after two seconds', async () => {
  const clock = virtualClock(1_000_000);
  const open = Promise.withResolvers<void>();
  const { gathered, told } = stage([chunk('there.', LAST), 'data: [DONE]\n\n'], () => open.promise, clock);
  await gathered;
  clock.jump(1_999);
  expect(told).toEqual(['answered']);
  clock.jump(1);
  expect(told).toEqual(['answered', 'end']);
  open.resolve();
});

test('an answer that this process ends itself is no answer that the caller has left', async () => {
  const { gathered } = stage([chunk('Hello ')], async (caller) => {
    caller.abort(new ServiceError('unavailable', { detail: 'the service stops' }));
    throw new Error('aborted');
  });
  await expect(gathered).rejects.toMatchObject({ code: 'unavailable' });
});

test('an answer that takes too long is the fault of the server', async () => {
  const { gathered, told } = stage([chunk('Hello ')], async () => {
    throw new OutboundError('timeout', 'no whole answer within 60000 ms');
  });
  await expect(gathered).rejects.toMatchObject({ code: 'upstream_timeout' });
  expect(told).toContain('failed');
});

test.each<[string, readonly string[], object]>([
  [
    'the marker of its end',
    [chunk('a'), chunk('', LAST), 'data: [DONE]\n\n'],
    { content: 'athere.', finishReason: 'stop' },
  ],
  ['the end of its stream', [chunk('', LAST)], { content: 'there.', finishReason: 'stop' }],
  [
    'counts before its last event, which has none',
    [chunk('a', { usage: LAST.usage }), chunk('', { choices: LAST.choices })],
    { content: 'athere.', usage: LAST.usage },
  ],
])('an answer is whole with %s', async (_what, texts, completion) => {
  const { gathered } = stage(texts);
  const found = await gathered;
  expect('completion' in found && found.completion).toMatchObject(completion);
});

test.each<[string, readonly string[]]>([
  ['has no reason for its end', [chunk('Hello'), 'data: [DONE]\n\n']],
  ['is empty', []],
  ['has an error in it', [chunk('Hello'), 'data: {"error":{}}\n\n']],
  ['has an event that is too large', [`data: ${'x'.repeat(STREAM_EVENT_BYTES_MAX)}`]],
])('an answer that %s cannot be used, and the server has failed', async (_what, texts) => {
  const { gathered, told } = stage(texts);
  await expect(gathered).rejects.toMatchObject({ code: 'upstream_error' });
  expect(told).toEqual(['end', 'failed']);
});

test('an answer of as many characters as are read is read, and one more is refused without a failure of the server', async () => {
  const most = (more: number): string[] => {
    const piece = 'x'.repeat(512 * 1024);
    const pieces = Array.from({ length: CHAT_ANSWER_BYTES_MAX / piece.length }, () => chunk(piece));
    return [...pieces, chunk('', { choices: [{ delta: { content: 'y'.repeat(more) }, finish_reason: 'stop' }] })];
  };
  const whole = await stage(most(0)).gathered;
  expect('completion' in whole && whole.completion.content).toHaveLength(CHAT_ANSWER_BYTES_MAX);
  const { gathered, told } = stage(most(1));
  await expect(gathered).rejects.toMatchObject({ code: 'upstream_response_too_large' });
  expect(told).toEqual(['end']);
});

test.each([
  ['nothing', [], undefined],
  ['a text', [chunk('Hello')], 'Hello'],
  ['tokens without a text', [chunk('', { usage: { prompt_tokens: 5, completion_tokens: 1 } })], ''],
  ['a count of the prompt alone', [chunk('', { usage: { prompt_tokens: 5, completion_tokens: 0 } })], undefined],
])('a caller that leaves after %s pays for it if the model has begun', async (_what, texts, content) => {
  const { gathered } = stage(texts, async (caller) => {
    caller.abort(new Error('the connection was closed'));
    throw new Error('aborted');
  });
  const outcome = await gathered.then(
    (found) => ('left' in found ? found.left.content : 'whole'),
    () => undefined,
  );
  expect(outcome).toBe(content);
});
