// A whole answer that is read as a stream: what the server of the model and its caller learn from each ending.
import { expect, test } from 'vitest';
import { gather } from '../../../control-plane/models/gateway/whole-answer.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const ANSWER_MS = 60_000;

const chunk = (content: string, last?: object): string =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }], ...last })}\n\n`;
const LAST = {
  choices: [{ index: 0, delta: { content: 'there.' }, finish_reason: 'stop' }],
  usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 },
};

/** The server sends these texts; the last one is followed by `end`, or by nothing. */
function stage(texts: readonly string[], end?: (signal: AbortController) => Promise<void>) {
  const clock = virtualClock();
  const caller = new AbortController();
  const told: string[] = [];
  async function* body(): AsyncGenerator<Buffer> {
    for (const text of texts) yield Buffer.from(text);
    await end?.(caller);
  }
  const answering = {
    upstream: { answer_ms: ANSWER_MS },
    exchange: { body: body() },
    answered: () => void told.push('answered'),
    failed: () => void told.push('failed'),
    end: () => void told.push('end'),
  } as never;
  const request = { startedMs: clock.monotonicMs(), signal: caller.signal };
  return { told, clock, gathered: gather(answering, request, { clock } as never) };
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

test('an answer that this process ends itself is no answer that the caller has left', async () => {
  const { gathered } = stage([chunk('Hello ')], async (caller) => {
    caller.abort(new ServiceError('unavailable', { detail: 'the service stops' }));
    throw new Error('aborted');
  });
  await expect(gathered).rejects.toMatchObject({ code: 'unavailable' });
});

test('an answer that takes too long is the fault of the server', async () => {
  const { gathered, told, clock } = stage([chunk('Hello ')], async () => {
    await clock.advance(ANSWER_MS);
    throw new Error('ended');
  });
  await expect(gathered).rejects.toMatchObject({ code: 'upstream_timeout' });
  expect(told).toContain('failed');
});
