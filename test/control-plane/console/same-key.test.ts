// The Idempotency-Key of a decision: a repeat after a lost answer has the key of the first request, and any other request has a new one.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

interface SameKey {
  openSameKey(): <T>(body: unknown, send: (options: { idempotencyKey: string }) => Promise<T>) => Promise<T>;
}
interface Api {
  ApiError: new (status: number, code: string, detail: string) => Error;
  post(path: string, body: unknown, options: { idempotencyKey: string }): Promise<unknown>;
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const SAME_KEY_FILE: string = '../../../control-plane/console/web/core/same-key.ts';
const API_FILE: string = '../../../control-plane/console/web/core/api.ts';
const { openSameKey } = (await import(SAME_KEY_FILE)) as SameKey;
const { ApiError, post } = (await import(API_FILE)) as Api;

const JOB = { model: 'acme/small', training_file: 'file-1' };

type Answered = number | 'lost' | 'idempotency_key_in_use';
let keys: (string | undefined)[];
let answers: Answered[];

beforeEach(() => {
  keys = [];
  vi.stubGlobal('fetch', async (_path: string, { headers }: RequestInit) => {
    keys.push((headers as Record<string, string>)['idempotency-key']);
    const answer = answers.shift();
    if (answer === undefined || answer === 'lost') throw new TypeError('Failed to fetch');
    if (answer === 'idempotency_key_in_use') return Response.json({ code: answer }, { status: 409 });
    return Response.json({ id: 'job' }, { status: answer });
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

/** Sends the bodies one after another, with these answers. Returns the number of different keys. */
async function sent(bodies: readonly object[], answered: readonly Answered[]): Promise<number> {
  answers = [...answered];
  const withSameKey = openSameKey();
  for (const body of bodies) {
    await withSameKey(body, (options) => post('/v1/fine_tuning/jobs', body, options)).catch(() => undefined);
  }
  expect(keys).toHaveLength(bodies.length);
  expect(keys).not.toContain(undefined);
  return new Set(keys).size;
}

test.each(['lost', 500, 502, 504, 429, 'idempotency_key_in_use'] as const)(
  'a request that is sent again after the answer %s has the same key',
  async (answer) => {
    expect(await sent([JOB, { ...JOB }, JOB], [answer, answer, 200])).toBe(1);
  },
);

test.each([402, 404, 409, 422])('a request that is sent again after the refusal %d has a new key', async (status) => {
  expect(await sent([JOB, JOB], [status, 200])).toBe(2);
});

test('a request with another body has a new key, also after a lost answer', async () => {
  expect(await sent([JOB, { ...JOB, suffix: 'two' }], ['lost', 200])).toBe(2);
});

test('the same request after a success has a new key', async () => {
  expect(await sent([JOB, JOB], [200, 200])).toBe(2);
});

test.each([
  ['operation_failed', 2],
  ['unreachable', 1],
])('a launch that was accepted and then fails with %s has %d keys after its repeat', async (code, count) => {
  answers = [202, 202];
  const withSameKey = openSameKey();
  for (let click = 0; click < 2; click += 1) {
    await withSameKey(JOB, async (options) => {
      await post('/v1/instances', JOB, options);
      throw new ApiError(0, code, 'The launch has no machine.');
    }).catch(() => undefined);
  }
  expect(new Set(keys).size).toBe(count);
});
