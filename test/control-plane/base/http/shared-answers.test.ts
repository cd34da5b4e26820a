// Callers that ask the same public question at the same moment share its answer, and a later caller never gets an older one.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { sharedRoute, type WireReply } from '../../../../control-plane/base/http/route.ts';
import { openSharedAnswers } from '../../../../control-plane/base/http/shared-answers.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { fail } from '../../../../shared/errors.ts';
import { type Bench, openBench, problemOf } from './fixture.ts';

let bench: Bench;
let made: string[] = [];
const newsRoute = sharedRoute({
  method: 'GET',
  path: '/v1/news',
  operationId: 'readNews',
  tag: 'news',
  summary: 'The news',
  scope: 'none',
  idempotency: 'none',
  query: z.strictObject({ about: z.string().default('all') }),
  responses: { 200: { description: 'The news', schema: z.strictObject({ about: z.string(), reads: z.int() }) } },
  errors: ['not_found'],
  handler: async ({ query: { about } }) => {
    made.push(about);
    if (about === 'nobody') fail('not_found', 'There is no such person.');
    return { status: 200, body: { about, reads: made.length } };
  },
});

beforeAll(async () => {
  bench = await openBench({ routes: () => [newsRoute] });
  await ask('/v1/news');
});
beforeEach(() => {
  made = [];
});
afterAll(() => bench.close());

const ask = (url: string): Promise<WireReply> => bench.http.inject({ method: 'GET', url });
const bodiesOf = (replies: WireReply[]): unknown[] => replies.map(({ body }) => JSON.parse(body));

test('callers of the same moment get one answer, each with the id of its own request', async () => {
  const replies = await Promise.all([ask('/v1/news'), ask('/v1/news'), ask('/v1/news')]);
  expect(made).toEqual(['all']);
  expect(new Set(replies.map(({ body }) => body))).toEqual(new Set(['{"about":"all","reads":1}']));
  expect(new Set(replies.map(({ headers }) => headers['x-request-id'])).size).toBe(3);
});

test('each question has its own answer', async () => {
  const replies = await Promise.all([ask('/v1/news?about=a'), ask('/v1/news?about=b'), ask('/v1/news?about=a')]);
  expect(made).toEqual(['a', 'b']);
  expect(bodiesOf(replies)).toMatchObject([{ about: 'a' }, { about: 'b' }, { about: 'a' }]);
});

test('a caller that comes after an answer gets another', async () => {
  const replies = [await ask('/v1/news'), await ask('/v1/news')];
  expect(bodiesOf(replies)).toMatchObject([{ reads: 1 }, { reads: 2 }]);
});

test('every caller gets a refusal, each with the id of its own request', async () => {
  const replies = await Promise.all([ask('/v1/news?about=nobody'), ask('/v1/news?about=nobody')]);
  expect(made).toEqual(['nobody']);
  expect(replies.map((reply) => problemOf(reply)['code'])).toEqual(['not_found', 'not_found']);
  expect(new Set(replies.map((reply) => problemOf(reply)['request_id'])).size).toBe(2);
});

test('a caller that comes while an answer is made does not get that answer', async () => {
  const share = openSharedAnswers<number>(systemClock());
  const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const first = share('what', async () => {
    begun.resolve();
    await end.promise;
    return 1;
  });
  const together = share('what', () => Promise.reject(new Error('the first caller makes it')));
  await begun.promise;
  expect(await share('what', async () => 2)).toBe(2);
  end.resolve();
  expect(await Promise.all([first, together])).toEqual([1, 1]);
});

test('an answer that fails is not kept', async () => {
  const share = openSharedAnswers<number>(systemClock());
  const broken = (): Promise<number> => Promise.reject(new Error('broken'));
  await expect(Promise.all([share('what', broken), share('what', broken)])).rejects.toThrow('broken');
  expect(await share('what', async () => 1)).toBe(1);
});
